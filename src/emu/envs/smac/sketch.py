"""Battles for a browser: units read back from state vectors, on a scene of simple shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from emu.envs.smac import terrain
from emu.envs.smac.draw import BACKGROUND, CORNERS, DARK_TEAMS, EDGE, GROUND, TEAMS, outline, window
from emu.envs.smac.terrain import Terrain
from emu.envs.smac.units import UnitType
from emu.envs.spec import Sketch


def sketch(env: Any, states: np.ndarray) -> Sketch:
    """Units read back from (n, S) state vectors, in the window's coordinates; the fallen have life 0."""
    r, shape = env.roster, env.layout
    states = np.asarray(states, np.float32)
    split = shape.n_allies * shape.unit_dim
    width = 3 + shape.enemy_shields + shape.type_bits
    allies = states[:, :split].reshape(len(states), shape.n_allies, shape.unit_dim)
    enemies = states[:, split : split + shape.n_enemies * width].reshape(len(states), shape.n_enemies, width)
    sides = [(allies, 2, shape.ally_shields), (enemies, 1, shape.enemy_shields)]
    figures = np.concatenate([read_units(side, place, shields) for side, place, shields in sides], axis=1)
    types = [(unit, int(i >= r.n_allies)) for i, unit in enumerate(r.units)]
    return on_scene(r.terrain, types, figures)


def on_scene(ground: Terrain, types: list[tuple[UnitType, int]], figures: np.ndarray) -> Sketch:
    """Figures (n, F, 4) in map coordinates, with the type and team of each, in the window's coordinates."""
    x0, _, _, y1 = window(ground)
    figures[..., 0] -= x0
    figures[..., 1] = y1 - figures[..., 1]
    return Sketch(_scene(ground, types), figures)


def read_units(side: np.ndarray, place: int, shields: bool) -> np.ndarray:
    """(n, units, F) features, of which number `place` is x -> (n, units, 4): map position, life, shield."""
    position = side[..., place : place + 2] * terrain.SIZE + terrain.SIZE / 2
    shield = side[..., place + 2] if shields else np.zeros(side.shape[:2], np.float32)
    return np.concatenate([position, side[..., :1], shield[..., None]], axis=-1).clip(0, [32, 32, 1, 1])


def _scene(ground: Terrain, types: list[tuple[UnitType, int]]) -> dict[str, Any]:
    x0, y0, x1, y1 = window(ground)
    outlines = [[[round(x - x0, 3), round(y1 - y, 3)] for x, y in outline(planes)] for planes in ground.pieces]
    edges = [{"polygon": outline, "stroke": _hex(EDGE), "thickness": 0.2} for outline in outlines]
    grounds = [{"polygon": outline, "fill": _hex(GROUND)} for outline in outlines]
    return {
        "width": x1 - x0,
        "height": y1 - y0,
        "background": _hex(BACKGROUND),
        "closest": 14,
        "shapes": edges + grounds,
        "figures": [_figure(unit, team) for unit, team in types],
    }


def _figure(unit: UnitType, team: int) -> dict[str, Any]:
    return {
        "corners": CORNERS.get(unit.name, 0),
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
