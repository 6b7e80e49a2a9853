"""The attacking half from above: who is where, who has the ball, where it came from. Drawn with Pillow from positions.

The engine's coordinates stretch the pitch; here a unit is a metre in both directions, x to the right and y down.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from emu.envs.football.features import pitch_of
from emu.envs.spec import Sketch

METRES = np.array([54.0, 83.0])  # a unit of the engine, along and across the pitch
LEFT, TOP = -0.14, -0.47  # the engine's coordinates of the picture's corner; the side lines are at +-0.42
WIDTH, HEIGHT = 65.0, 78.0  # of the picture, in metres
CAPTION = 6.0  # metres above the pitch
PIXELS = 14  # a metre, before scaling down
SCALE = 2
TRAIL = 12  # steps of the ball's way

GRASS, STRIPE, LINE = "#3f7d48", "#3a7543", "#d7e6d5"
TEAM, OTHERS, BALL = "#2f6db5", "#c8553d", "#ffffff"
DARK, PAPER = "#22301f", "#fbfaf7"
PLAYER, BALL_SIZE = 1.3, 0.55  # radii in metres, larger than life


def place(xy: Any) -> np.ndarray:
    """(..., 2) of the engine -> metres from the picture's upper left corner."""
    return (np.asarray(xy, float)[..., :2] - (LEFT, TOP)) * METRES


def draw(env: Any, moment: Any, trail: Sequence[np.ndarray] = ()) -> np.ndarray:
    """One picture, (H, W, 3) uint8; `trail`: where the ball was before."""
    image = _grass().copy()
    pen = ImageDraw.Draw(image, "RGBA")
    pitch = moment.pitch
    for player, direction in zip(pitch.agents, pitch.agents_direction, strict=True):
        _heading(pen, place(player), direction, TEAM)
    for player, direction in zip(pitch.opponents, pitch.opponents_direction, strict=True):
        _heading(pen, place(player), direction, OTHERS)
    _way(pen, [*trail, pitch.ball])
    _player(pen, place(moment.keeper), TEAM, "K", moment.owner == (0, 0))
    for number, player in enumerate(pitch.agents, 1):
        _player(pen, place(player), TEAM, str(number), moment.owner == (0, number))
    for number, player in enumerate(pitch.opponents):
        _player(pen, place(player), OTHERS, str(number) if number else "K", moment.owner == (1, number))
    _ball(pen, pitch.ball)
    _caption(pen, env, moment)
    return np.asarray(image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.LANCZOS))


def frames(env: Any, moments: Iterable[Any]) -> Iterator[np.ndarray]:
    """A picture a moment, with the ball's way so far."""
    way: list[np.ndarray] = []
    for moment in moments:
        yield draw(env, moment, way[-TRAIL:])
        way.append(moment.pitch.ball)


def _pixels(metres: Any) -> list[float]:
    """Points on the pitch as Pillow wants them: x, y, x, y, ... below the caption."""
    return (np.add(np.reshape(metres, (-1, 2)), (0, CAPTION)) * PIXELS).ravel().tolist()


def _circle(centre: Any, radius: float) -> list[float]:
    return _pixels([np.subtract(centre, radius), np.add(centre, radius)])


@functools.cache
def _grass() -> Image.Image:
    size = (round(WIDTH * PIXELS), round((HEIGHT + CAPTION) * PIXELS))
    image = Image.new("RGB", size, GRASS)
    pen = ImageDraw.Draw(image)
    for stripe in range(0, size[0], 12 * PIXELS):
        pen.rectangle((stripe, 0, stripe + 6 * PIXELS, size[1]), fill=STRIPE)
    for line in lines():
        pen.line(_pixels(line), fill=LINE, width=4)
    pen.arc(_circle(place([0, 0]), 9.15), 0, 360, fill=LINE, width=4)
    pen.rectangle((0, 0, size[0], CAPTION * PIXELS), fill=PAPER)
    return image


def lines() -> list[np.ndarray]:
    """Side lines, half-way line, goal line, both areas and the goal, as (points, 2) metres."""
    (middle_x, top), (goal_x, bottom) = place([0, -0.42]), place([1, 0.42])
    middle_y = (top + bottom) / 2

    def box(depth: float, width: float) -> np.ndarray:
        near, far = middle_y - width / 2, middle_y + width / 2
        return np.array([[goal_x, near], [goal_x + depth, near], [goal_x + depth, far], [goal_x, far]])

    side = [np.array([[0, y], [goal_x, y]]) for y in (top, bottom)]
    across = [np.array([[x, top], [x, bottom]]) for x in (middle_x, goal_x)]
    return [*side, *across, box(-16.5, 40.3), box(-5.5, 18.3), box(2.4, 7.3)]


def _heading(pen: ImageDraw.ImageDraw, centre: np.ndarray, direction: np.ndarray, colour: str) -> None:
    """Where a player goes: a line as long as the way of half a second."""
    end = centre + 5 * np.asarray(direction) * METRES
    pen.line(_pixels([centre, end]), fill=colour, width=8)


def _player(pen: ImageDraw.ImageDraw, centre: np.ndarray, colour: str, letter: str, has_ball: bool) -> None:
    if has_ball:
        pen.ellipse(_circle(centre, PLAYER + 0.6), fill="#ffe9a8")
    pen.ellipse(_circle(centre, PLAYER), fill=colour, outline=PAPER, width=3)
    x, y = _pixels(centre)
    pen.text((x, y), letter, fill=PAPER, font=_font(24), anchor="mm")


def _way(pen: ImageDraw.ImageDraw, balls: Sequence[np.ndarray]) -> None:
    for age, (start, end) in enumerate(itertools.pairwise(map(place, balls)), 1):
        pen.line(_pixels([start, end]), fill=(255, 255, 255, 200 * age // len(balls)), width=5)


def _ball(pen: ImageDraw.ImageDraw, ball: np.ndarray) -> None:
    """A ball in the air is drawn larger, above its shadow."""
    x, y = place(ball)
    height = max(0.0, float(ball[2]) - 0.11)  # 0.11: on the ground
    if height > 0.1:
        pen.ellipse(_circle((x, y), BALL_SIZE), fill=(0, 0, 0, 90))
    pen.ellipse(_circle((x, y - height), BALL_SIZE * (1 + 0.15 * height)), fill=BALL, outline=DARK, width=3)


def _caption(pen: ImageDraw.ImageDraw, env: Any, moment: Any) -> None:
    scored, conceded = moment.score
    word = "goal!" if scored else "conceded" if conceded else ""
    left, height = 2 * PIXELS, CAPTION / 2 * PIXELS
    pen.text((left, height), f"{env.spec.name}   step {moment.step}", fill=DARK, font=_font(36), anchor="lm")
    right = WIDTH * PIXELS - left
    pen.text((right, height), f"{word}   {scored} : {conceded}", fill=TEAM, font=_font(36), anchor="rm")


@functools.cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


# For a browser


def sketch(env: Any, states: np.ndarray) -> Sketch:
    """Agents, opponents and the ball, read back from (n, S) state vectors; who is outside of the picture has life 0."""
    pitch = pitch_of(states, env.scenario)
    points = np.concatenate([pitch.agents, pitch.opponents, pitch.ball[:, None, :2]], axis=1)
    metres = place(points)
    there = ((metres >= 0) & (metres <= [WIDTH, HEIGHT])).all(axis=-1, keepdims=True)
    figures = np.concatenate([metres, there, 0 * there], axis=-1)
    return Sketch(_scene(env), figures.astype(np.float32))


def _scene(env: Any) -> dict[str, Any]:
    corners = np.array([0.0, 0.0]), np.array([WIDTH, HEIGHT])
    shapes = [
        {"line": [_rounded(start, corners), _rounded(end, corners)], "stroke": LINE, "thickness": 0.3}
        for line in lines()
        for start, end in itertools.pairwise(line)
    ]
    agents = [_figure(TEAM, str(number), f"agent {number}") for number in range(1, env.scenario.n_agents + 1)]
    opponents = [
        _figure(OTHERS, str(number) if number else "K", "defender" if number else "keeper")
        for number in range(env.scenario.n_opponents)
    ]
    ball = {**_figure(BALL, "", "ball"), "size": 0.8}
    figures = [*agents, *opponents, ball]
    return {"width": WIDTH, "height": HEIGHT, "background": GRASS, "shapes": shapes, "figures": figures}


def _rounded(point: np.ndarray, corners: tuple[np.ndarray, np.ndarray]) -> list[float]:
    return [round(float(value), 2) for value in np.clip(point, *corners)]


def _figure(colour: str, letter: str, name: str) -> dict[str, Any]:
    look = {"corners": 0, "turn": 0, "size": 1.6, "letter": letter, "name": name, "rings": False}
    return {**look, "fill": colour, "stroke": DARK}
