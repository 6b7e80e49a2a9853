"""Battles for a browser, from state vectors alone. A unit's type is in its bits, so each slot has a figure per type."""

from __future__ import annotations

import numpy as np

from emu.envs.smac.sketch import on_scene, read_units
from emu.envs.smac.terrain import OPEN
from emu.envs.smacv2.features import Layout
from emu.envs.spec import Sketch


def sketch(shape: Layout, states: np.ndarray) -> Sketch:
    """Units of (n, S) state vectors; the fallen, and the figures of other types, have life 0."""
    states = np.asarray(states, np.float32)
    widths = ((shape.n_allies, shape.unit_dim, 2), (shape.n_enemies, shape.enemy_dim, 1))
    figures, start = [], 0
    for count, width, place in widths:
        side = states[:, start : start + count * width].reshape(len(states), count, width)
        start += count * width
        units = np.repeat(read_units(side, place, bool(shape.shields)), shape.type_bits, axis=1)
        units[..., 2] *= side[..., -shape.type_bits :].reshape(len(states), -1)
        figures.append(units)
    teams = [0] * shape.n_allies + [1] * shape.n_enemies
    types = [(unit, team) for team in teams for unit in shape.capabilities.race.units]
    return on_scene(OPEN, types, np.concatenate(figures, axis=1))
