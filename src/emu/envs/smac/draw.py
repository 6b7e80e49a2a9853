"""A top-down picture of a battle: ground, units by type, health and shields, shots, healing beams, ranges.

Drawn with Pillow at twice the size and scaled down, which is fast and smooth. `frames` fills in between two steps so
that films run fluently.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from emu.envs.smac import terrain
from emu.envs.smac.roster import Roster
from emu.envs.spec import Sketch

CELL = 40  # pixels a map cell, before scaling down
SCALE = 2
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


def draw(env: Any, state: Any, before: Any = None, part: float = 1.0) -> np.ndarray:
    """One picture, (H, W, 3) uint8. With `before`, positions are those a `part` of the way from there to `state`."""
    r, w = env.roster, state.world
    x0, y0, x1, y1 = _window(r)
    size = (int((x1 - x0) * CELL), int((y1 - y0) * CELL))
    image = _ground(r).copy()
    pen = ImageDraw.Draw(image, "RGBA")
    x, y = np.asarray(w.x, float), np.asarray(w.y, float)
    life, shield = np.asarray(w.life, float), np.asarray(w.shield, float)
    shown = life > 0
    if before is not None:
        b = before.world
        x = np.asarray(b.x) * (1 - part) + x * part
        y = np.asarray(b.y) * (1 - part) + y * part
        shown = (np.asarray(b.life) > 0) if part < 1 else shown
    place = [((px - x0) * CELL, (y1 - py) * CELL) for px, py in zip(x, y, strict=True)]
    for i in np.flatnonzero(shown).tolist():
        _action(pen, r, w, i, place)
    layers = {"ground": 0, "tall": 1, "air": 2}
    for i in sorted(np.flatnonzero(shown).tolist(), key=lambda i: layers[r.units[i].layer]):
        _unit(pen, r, i, place[i], life[i] / r.life[i, 0], shield[i] / max(r.shield[i, 0], 1.0))
    _caption(pen, r, state, shown, size)
    return np.asarray(image.resize((size[0] // SCALE, size[1] // SCALE), Image.Resampling.LANCZOS))


def frames(env: Any, states: Iterable[Any], between: int = 2) -> Iterator[np.ndarray]:
    """Pictures of a recorded episode, `between` of them a step."""
    before = None
    for state in states:
        for k in range(between if before is not None else 1):
            yield draw(env, state, before, (k + 1) / between if before is not None else 1.0)
        before = state
    for _ in range(4 * between):  # let the end stand for a moment
        yield draw(env, before)


def _window(r: Roster) -> tuple[float, float, float, float]:
    """The part of the map worth showing, with whole cells around the reachable ground."""
    rows, columns = np.nonzero(terrain.walkable_cells(r.terrain))
    x0, x1 = max(columns.min() - 1, 0), min(columns.max() + 2, 32)
    y0, y1 = max(rows.min() - 1, 0), min(rows.max() + 2, 32)
    return float(x0), float(y0), float(x1), float(y1)


@functools.lru_cache(maxsize=32)
def _ground(r: Roster) -> Image.Image:
    x0, y0, x1, y1 = _window(r)
    image = Image.new("RGB", (int((x1 - x0) * CELL), int((y1 - y0) * CELL)), BACKGROUND)
    pen = ImageDraw.Draw(image)
    outlines = [_outline(planes) for planes in r.terrain.pieces]
    pixels = [[((px - x0) * CELL, (y1 - py) * CELL) for px, py in outline] for outline in outlines]
    for polygon in pixels:  # first all edges, then all insides, so that pieces join without seams
        pen.line([*polygon, polygon[0]], fill=EDGE, width=8, joint="curve")
    for polygon in pixels:
        pen.polygon(polygon, fill=GROUND)
    if r.terrain.plateau:
        px0, py0, px1, py1 = r.terrain.plateau
        inside = Image.new("L", image.size, 0)
        for polygon in pixels:
            ImageDraw.Draw(inside).polygon(polygon, fill=255)
        high = Image.new("L", image.size, 0)
        corners = ((px0 - x0) * CELL, (y1 - py1) * CELL, (px1 - x0) * CELL, (y1 - py0) * CELL)
        ImageDraw.Draw(high).rectangle(corners, fill=255)
        mask = Image.fromarray(np.minimum(np.asarray(inside), np.asarray(high)))
        image.paste(HIGH_GROUND, (0, 0), mask)
    return image


def _outline(planes: Any) -> list[tuple[float, float]]:
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


def _action(pen: ImageDraw.ImageDraw, r: Roster, w: Any, i: int, place: list[tuple[float, float]]) -> None:
    """The shot, blow or beam of a unit, while it is fresh; and a faint ring for its range."""
    team, target = int(i >= r.n_allies), int(w.target[i])
    if r.units[i].heal:
        if bool(w.healing[i]) and target >= 0:
            pen.line([place[i], place[target]], fill=(*BEAM, 170), width=5)
        return
    weapon = r.units[i].weapon
    if weapon is None or target < 0:
        return
    since = r.period[i, 0] - float(w.cooldown[i])
    fresh = float(w.cooldown[i]) > 0 and since < 10
    if weapon.range > 1 and (fresh or float(w.windup[i]) > 0):
        reach = (weapon.range + r.radius[i, 0]) * CELL
        x, y = place[i]
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=(*TEAMS[team], 26), width=2)
    if not fresh:
        return
    strength = int(40 + 215 * max(0.0, 1 - since / 10))
    pen.line([place[i], place[target]], fill=(*SHOT[team], strength), width=4 if weapon.range > 1 else 7)
    if weapon.bar[0]:
        _bar(pen, place[i], place[target], weapon.bar, strength, team)


def _bar(pen: ImageDraw.ImageDraw, start, end, bar: tuple[float, float], strength: int, team: int) -> None:
    dx, dy = end[0] - start[0], end[1] - start[1]
    norm = math.hypot(dx, dy) or 1.0
    ox, oy = -dy / norm * bar[0] * CELL, dx / norm * bar[0] * CELL
    line = [(end[0] - ox, end[1] - oy), (end[0] + ox, end[1] + oy)]
    pen.line(line, fill=(*SHOT[team], strength), width=int(2 * bar[1] * CELL) + 4)


def _unit(pen: ImageDraw.ImageDraw, r: Roster, i: int, at: tuple[float, float], life: float, shield: float) -> None:
    """Body in its team's colour and its type's shape, a letter, and arcs of life (inner) and shield (outer)."""
    unit, team = r.units[i], int(i >= r.n_allies)
    x, y, size = *at, max(unit.radius, 0.42) * CELL
    body = _shape(unit.name, x, y, size)
    if unit.layer == "air":
        pen.ellipse(
            (x - size * 0.9 + 8, y - size * 0.7 + 14, x + size * 0.9 + 8, y + size * 0.7 + 14), fill=(0, 0, 0, 70)
        )
    pen.polygon(body, fill=DARK_TEAMS[team])
    pen.line([*body, body[0]], fill=TEAMS[team], width=3, joint="curve")
    font = _font(int(size * 1.15))
    pen.text((x, y), unit.letter, fill=(240, 244, 250), font=font, anchor="mm")
    ring = size + 5
    colour = LIFE if life > 0.6 else HURT if life > 0.3 else DYING
    pen.arc((x - ring, y - ring, x + ring, y + ring), -90, -90 + 360 * max(life, 0.02), fill=colour, width=4)
    if shield > 0:
        ring += 5
        pen.arc((x - ring, y - ring, x + ring, y + ring), -90, -90 + 360 * shield, fill=SHIELD, width=3)


_CORNERS = {"marine": 4, "marauder": 6, "stalker": 3, "colossus": 8, "hydralisk": 5, "spine_crawler": 8, "medivac": 4}


def _shape(name: str, x: float, y: float, size: float) -> list[tuple[float, float]]:
    corners = _CORNERS.get(name, 20)
    turn = math.pi / 4 if name == "marine" else math.pi / 2
    return [
        (x + size * math.cos(turn + 2 * math.pi * k / corners), y - size * math.sin(turn + 2 * math.pi * k / corners))
        for k in range(corners)
    ]


@functools.lru_cache(maxsize=64)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _caption(pen: ImageDraw.ImageDraw, r: Roster, state: Any, shown: np.ndarray, size: tuple[int, int]) -> None:
    allies, enemies = int(shown[r.ally].sum()), int(shown[r.enemy].sum())
    font = _font(26)
    pen.text((14, 10), f"{r.spec.name}   step {int(state.step)}", fill=(200, 208, 220), font=font)
    pen.text((size[0] - 110, 10), f"{allies}", fill=TEAMS[0], font=font, anchor="ra")
    pen.text((size[0] - 84, 10), "vs", fill=(150, 160, 172), font=font, anchor="ma")
    pen.text((size[0] - 58, 10), f"{enemies}", fill=TEAMS[1], font=font, anchor="la")


# For a browser


def sketch(env: Any, states: np.ndarray) -> Sketch:
    """Units read back from (n, S) state vectors, in the window's coordinates; the fallen have life 0."""
    r, shape = env.roster, env.layout
    x0, _, _, y1 = _window(r)
    states = np.asarray(states, np.float32)
    split = shape.n_allies * shape.unit_dim
    width = 3 + shape.enemy_shields + shape.type_bits
    allies = states[:, :split].reshape(len(states), shape.n_allies, shape.unit_dim)
    enemies = states[:, split : split + shape.n_enemies * width].reshape(len(states), shape.n_enemies, width)
    sides = [(allies, 2, shape.ally_shields), (enemies, 1, shape.enemy_shields)]
    parts = [_figures(side, place, shields) for side, place, shields in sides]
    figures = np.concatenate(parts, axis=1)
    figures[..., 0] -= x0
    figures[..., 1] = y1 - figures[..., 1]
    return Sketch(_scene(r), figures)


def _figures(side: np.ndarray, place: int, shields: bool) -> np.ndarray:
    """(n, units, F) features, of which number `place` is x -> (n, units, 4): map position, life, shield."""
    position = side[..., place : place + 2] * terrain.SIZE + terrain.SIZE / 2
    shield = side[..., place + 2] if shields else np.zeros(side.shape[:2], np.float32)
    return np.concatenate([position, side[..., :1], shield[..., None]], axis=-1).clip(0, [32, 32, 1, 1])


def _scene(r: Roster) -> dict[str, Any]:
    x0, y0, x1, y1 = _window(r)
    outlines = [[[round(x - x0, 3), round(y1 - y, 3)] for x, y in _outline(planes)] for planes in r.terrain.pieces]
    edges = [{"polygon": outline, "stroke": _hex(EDGE), "thickness": 0.2} for outline in outlines]
    grounds = [{"polygon": outline, "fill": _hex(GROUND)} for outline in outlines]
    return {
        "width": x1 - x0,
        "height": y1 - y0,
        "background": _hex(BACKGROUND),
        "closest": 14,
        "shapes": edges + grounds,
        "figures": [_figure(r, i) for i in range(r.n)],
    }


def _figure(r: Roster, i: int) -> dict[str, Any]:
    unit, team = r.units[i], int(i >= r.n_allies)
    return {
        "corners": _CORNERS.get(unit.name, 0),
        "turn": math.pi / 4 if unit.name == "marine" else math.pi / 2,
        "size": max(unit.radius, 0.42),
        "fill": _hex(DARK_TEAMS[team]),
        "stroke": _hex(TEAMS[team]),
        "letter": unit.letter,
        "name": unit.name.replace("_", " "),
        "rings": True,
    }


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
