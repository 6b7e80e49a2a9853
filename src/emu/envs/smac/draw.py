"""A top-down picture of a battle: ground, units by type, health and shields, shots, healing beams, ranges.

Drawn with Pillow at twice the size and scaled down, which is fast and smooth. The camera frames the units that are
alive, with a margin. `frames` fills in between two steps so that films run fluently, and moves the camera gently.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from emu.envs.smac import terrain
from emu.envs.smac.roster import Roster
from emu.envs.smac.terrain import Terrain

SIZE = 640  # pixels of the longer side
SCALE = 2
MARGIN = 3.0  # cells around the units
CLOSEST = 14.0  # cells of the longer side at least
CALM = 4  # steps before and after over which a film's camera is averaged
BACKGROUND = (17, 21, 28)
GROUND = (40, 49, 60)
HIGH_GROUND = (52, 62, 74)
GRID = (46, 56, 68)
EDGE = (84, 98, 114)
TEAMS = ((86, 156, 255), (255, 104, 96))
DARK_TEAMS = ((32, 62, 118), (122, 40, 38))
SHIELD = (120, 220, 255)
LIFE = (110, 220, 120)
HURT = (250, 190, 80)
DYING = (245, 85, 75)
SHOT = ((170, 210, 255), (255, 190, 150))
BEAM = (120, 255, 170)


Place = tuple[float, float]


class Camera(NamedTuple):
    """What is shown: the middle and the width, in cells; the height follows from the map's shape."""

    x: float
    y: float
    width: float


class Canvas:
    """A picture being drawn, at twice its size: where cells are on it, and how large."""

    def __init__(self, ground: Terrain, camera: Camera) -> None:
        x0, y0, x1, y1 = window(ground)
        scale = SCALE * SIZE / max(x1 - x0, y1 - y0)
        self.size = (int((x1 - x0) * scale), int((y1 - y0) * scale))
        self.cell = self.size[0] / camera.width
        self.left, self.top = camera.x - camera.width / 2, camera.y + self.size[1] / self.cell / 2
        self.image = Image.new("RGB", self.size, BACKGROUND)
        _draw_ground(self, ground)
        self.pen = ImageDraw.Draw(self.image, "RGBA")

    def at(self, x: float, y: float) -> Place:
        return (x - self.left) * self.cell, (self.top - y) * self.cell

    def finish(self) -> np.ndarray:
        small = (self.size[0] // SCALE, self.size[1] // SCALE)
        return np.asarray(self.image.resize(small, Image.Resampling.LANCZOS))


def draw(env: Any, state: Any, before: Any = None, part: float = 1.0, camera: Camera | None = None) -> np.ndarray:
    """One picture, (H, W, 3) uint8. With `before`, positions are those a `part` of the way from there to `state`."""
    r, w = env.roster_of(state), state.world
    canvas = Canvas(r.terrain, camera or frame(r.terrain, state))
    x, y = np.asarray(w.x, float), np.asarray(w.y, float)
    life, shield = np.asarray(w.life, float), np.asarray(w.shield, float)
    shown = life > 0
    if before is not None:
        b = before.world
        x = np.asarray(b.x) * (1 - part) + x * part
        y = np.asarray(b.y) * (1 - part) + y * part
        shown = (np.asarray(b.life) > 0) if part < 1 else shown
    place = [canvas.at(px, py) for px, py in zip(x, y, strict=True)]
    for i in np.flatnonzero(shown).tolist():
        _action(canvas, r, w, i, place)
    layers = {"ground": 0, "tall": 1, "air": 2}
    for i in sorted(np.flatnonzero(shown).tolist(), key=lambda i: layers[r.units[i].layer]):
        _unit(canvas, r, i, place[i], life[i] / r.life[i, 0], shield[i] / max(r.shield[i, 0], 1.0))
    _caption(canvas, r, state, shown)
    return canvas.finish()


def frames(env: Any, states: Iterable[Any], between: int = 2) -> Iterator[np.ndarray]:
    """Pictures of a recorded episode, `between` of them a step."""
    states = list(states)
    cameras = _follow([frame(env.roster_of(state).terrain, state) for state in states])
    yield draw(env, states[0], camera=cameras[0])
    for k in range(1, len(states)):
        for part in (np.arange(between) + 1) / between:
            camera = Camera(*(np.array(cameras[k - 1]) * (1 - part) + np.array(cameras[k]) * part))
            yield draw(env, states[k], states[k - 1], part, camera)
    for _ in range(4 * between):  # let the end stand for a moment
        yield draw(env, states[-1], camera=cameras[-1])


def frame(ground: Terrain, state: Any) -> Camera:
    """The part of the map where the living units are, in the shape of the whole."""
    x0, y0, x1, y1 = window(ground)
    whole = Camera((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0)
    x, y, alive = (np.asarray(values) for values in (state.world.x, state.world.y, state.world.life))
    if not (alive > 0).any():
        return whole
    x, y = x[alive > 0], y[alive > 0]
    shape = (x1 - x0) / (y1 - y0)
    spread = max(np.ptp(x) + 2 * MARGIN, (np.ptp(y) + 2 * MARGIN) * shape)
    width = min(max(spread, CLOSEST * min(shape, 1.0)), whole.width)
    height = width / shape
    middle_x = np.clip((x.min() + x.max()) / 2, x0 + width / 2, x1 - width / 2)
    middle_y = np.clip((y.min() + y.max()) / 2, y0 + height / 2, y1 - height / 2)
    return Camera(float(middle_x), float(middle_y), float(width))


def _follow(cameras: list[Camera]) -> list[Camera]:
    """The same way, averaged over a few steps before and after."""
    path = np.array(cameras)
    around = [path[max(k - CALM, 0) : k + CALM + 1] for k in range(len(path))]
    return [Camera(*near.mean(axis=0)) for near in around]


def window(ground: Terrain) -> tuple[float, float, float, float]:
    """The part of the map worth showing: the reachable ground and a cell around it."""
    rows, columns = np.nonzero(terrain.walkable_cells(ground))
    return float(columns.min() - 1), float(rows.min() - 1), float(columns.max() + 2), float(rows.max() + 2)


def _draw_ground(canvas: Canvas, ground: Terrain) -> None:
    pen = ImageDraw.Draw(canvas.image)
    pixels = [[canvas.at(x, y) for x, y in outline(planes)] for planes in ground.pieces]
    for polygon in pixels:  # first all edges, then all insides, so that pieces join without seams
        pen.line([*polygon, polygon[0]], fill=EDGE, width=int(0.2 * canvas.cell), joint="curve")
    for polygon in pixels:
        pen.polygon(polygon, fill=GROUND)
    if ground.plateau:
        x0, y0, x1, y1 = ground.plateau
        inside = Image.new("L", canvas.size, 0)
        for polygon in pixels:
            ImageDraw.Draw(inside).polygon(polygon, fill=255)
        high = Image.new("L", canvas.size, 0)
        ImageDraw.Draw(high).rectangle((*canvas.at(x0, y1), *canvas.at(x1, y0)), fill=255)
        mask = Image.fromarray(np.minimum(np.asarray(inside), np.asarray(high)))
        canvas.image.paste(HIGH_GROUND, (0, 0), mask)


def outline(planes: Any) -> list[tuple[float, float]]:
    """Corners of a convex piece, in order."""
    corners = []
    for i, (a, b, c) in enumerate(planes):
        for d, e, f in planes[i + 1 :]:
            det = a * e - b * d
            if abs(det) > 1e-9:
                x, y = (c * e - b * f) / det, (a * f - c * d) / det
                if all(p * x + q * y <= s + 1e-6 for p, q, s in planes):
                    corners.append((x, y))
    cx, cy = np.mean(corners, axis=0)
    return sorted(set(corners), key=lambda p: math.atan2(p[1] - cy, p[0] - cx))


def _action(canvas: Canvas, r: Roster, w: Any, i: int, place: list[Place]) -> None:
    """The shot, blow or beam of a unit, while it is fresh; and a faint ring for its range."""
    team, target, pen, cell = int(i >= r.n_allies), int(w.target[i]), canvas.pen, canvas.cell
    if r.units[i].heal:
        if bool(w.healing[i]) and target >= 0:
            pen.line([place[i], place[target]], fill=(*BEAM, 170), width=_thick(0.12, cell))
        return
    weapon = r.units[i].weapon
    if weapon is None or target < 0:
        return
    since = r.period[i, 0] - float(w.cooldown[i])
    fresh = float(w.cooldown[i]) > 0 and since < 10
    if weapon.range > 1 and (fresh or float(w.windup[i]) > 0):
        reach = (weapon.range + r.radius[i, 0]) * cell
        x, y = place[i]
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=(*TEAMS[team], 26), width=2)
    if not fresh:
        return
    strength = int(40 + 215 * max(0.0, 1 - since / 10))
    pen.line(
        [place[i], place[target]], fill=(*SHOT[team], strength), width=_thick(0.1 if weapon.range > 1 else 0.18, cell)
    )
    if weapon.bar[0]:
        _bar(canvas, place[i], place[target], weapon.bar, strength, team)


def _thick(cells: float, cell: float) -> int:
    """A line's width in pixels."""
    return max(int(cells * cell), 1)


def _bar(canvas: Canvas, start: Place, end: Place, bar: tuple[float, float], strength: int, team: int) -> None:
    cell = canvas.cell
    dx, dy = end[0] - start[0], end[1] - start[1]
    norm = math.hypot(dx, dy) or 1.0
    ox, oy = -dy / norm * bar[0] * cell, dx / norm * bar[0] * cell
    line = [(end[0] - ox, end[1] - oy), (end[0] + ox, end[1] + oy)]
    canvas.pen.line(line, fill=(*SHOT[team], strength), width=_thick(2 * bar[1] + 0.1, cell))


def _unit(canvas: Canvas, r: Roster, i: int, at: Place, life: float, shield: float) -> None:
    """Body in its team's colour and its type's shape, a letter, and arcs of life (inner) and shield (outer)."""
    unit, team, pen, cell = r.units[i], int(i >= r.n_allies), canvas.pen, canvas.cell
    x, y, size = *at, max(unit.radius, 0.42) * cell
    body = _shape(unit.name, x, y, size)
    if unit.layer == "air":
        dx, dy = 0.2 * cell, 0.35 * cell
        pen.ellipse(
            (x - size * 0.9 + dx, y - size * 0.7 + dy, x + size * 0.9 + dx, y + size * 0.7 + dy), fill=(0, 0, 0, 70)
        )
    pen.polygon(body, fill=DARK_TEAMS[team])
    pen.line([*body, body[0]], fill=TEAMS[team], width=_thick(0.075, cell), joint="curve")
    pen.text((x, y), unit.letter, fill=(240, 244, 250), font=_font(int(size * 1.15)), anchor="mm")
    ring = size + 0.125 * cell
    colour = LIFE if life > 0.6 else HURT if life > 0.3 else DYING
    end = -90 + 360 * max(life, 0.02)
    pen.arc((x - ring, y - ring, x + ring, y + ring), -90, end, fill=colour, width=_thick(0.1, cell))
    if shield > 0:
        ring += 0.125 * cell
        end = -90 + 360 * shield
        pen.arc((x - ring, y - ring, x + ring, y + ring), -90, end, fill=SHIELD, width=_thick(0.075, cell))


CORNERS = {"marine": 4, "marauder": 6, "stalker": 3, "colossus": 8, "hydralisk": 5, "spine_crawler": 8, "medivac": 4}


def _shape(name: str, x: float, y: float, size: float) -> list[tuple[float, float]]:
    corners = CORNERS.get(name, 20)
    turn = math.pi / 4 if name == "marine" else math.pi / 2
    return [
        (x + size * math.cos(turn + 2 * math.pi * k / corners), y - size * math.sin(turn + 2 * math.pi * k / corners))
        for k in range(corners)
    ]


@functools.lru_cache(maxsize=64)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _caption(canvas: Canvas, r: Roster, state: Any, shown: np.ndarray) -> None:
    allies, enemies = int(shown[r.ally].sum()), int(shown[r.enemy].sum())
    pen, right, font = canvas.pen, canvas.size[0], _font(26)
    pen.text((14, 10), f"{r.spec.name}   step {int(state.step)}", fill=(200, 208, 220), font=font)
    pen.text((right - 110, 10), f"{allies}", fill=TEAMS[0], font=font, anchor="ra")
    pen.text((right - 84, 10), "vs", fill=(150, 160, 172), font=font, anchor="ma")
    pen.text((right - 58, 10), f"{enemies}", fill=TEAMS[1], font=font, anchor="la")
