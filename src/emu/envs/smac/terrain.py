"""Walkable ground as a union of convex pieces, each an intersection of half-planes: no look-ups, a few multiplications.

Cliffs come in 2 x 2 tiles; where a blocked tile touches free ground on two sides it is cut along its diagonal, so
outlines are polygons. Where pieces do not see each other, way points lead from one to the next.
Positions are (units, E) arrays; `margin` keeps a unit's footprint on the ground.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from emu.types import Array

Plane = tuple[float, float, float]  # a, b, c with a² + b² = 1: the walkable side is a·x + b·y <= c
SIZE = 32.0


def box(x0: float, y0: float, x1: float, y1: float) -> tuple[Plane, ...]:
    return ((-1, 0, -x0), (1, 0, x1), (0, -1, -y0), (0, 1, y1))


def diagonal(sx: int, sy: int, c: float) -> Plane:
    """The half-plane sx·x + sy·y <= c, normalised."""
    return (sx / math.sqrt(2), sy / math.sqrt(2), c / math.sqrt(2))


@dataclasses.dataclass(frozen=True)
class Terrain:
    """Convex pieces, and way points each with the pieces from which it is seen."""

    pieces: tuple[tuple[Plane, ...], ...]
    waypoints: tuple[tuple[float, float], ...] = ()
    seen_from: tuple[tuple[int, ...], ...] = ()
    joined: tuple[tuple[int, int], ...] = ()  # pieces so nearly convex together that sliding along the edge leads over
    plateau: tuple[float, float, float, float] | None = None  # high ground, only drawn

    def __hash__(self) -> int:
        return hash((self.pieces, self.waypoints))


STRIP = Terrain((box(0, 8, 32, 24),))
OPEN = Terrain((box(0, 0, 32, 32),))
HYDRA_PIT = Terrain(
    (
        (
            *box(8, 8, 22, 20),
            diagonal(-1, -1, -18),
            diagonal(1, -1, 12),
            diagonal(1, 1, 40),
            diagonal(-1, 1, 10),
        ),
    )
)
BANE_PIT = Terrain(
    (
        (
            *box(6, 6, 26, 26),
            diagonal(-1, -1, -16),
            diagonal(1, -1, 16),
            diagonal(1, 1, 48),
            diagonal(-1, 1, 16),
        ),
    )
)
HOUSE = Terrain(((*box(8, 8, 20, 24), diagonal(-1, 1, 12), diagonal(1, 1, 40)),))
DIAGONAL_BAND = Terrain(((*box(2, 2, 30, 30), diagonal(-1, 1, 7), diagonal(1, -1, 7)),))
CORRIDOR = Terrain(
    (
        (*box(12, 14, 30, 30), diagonal(1, -1, 12), diagonal(-1, 1, 10), diagonal(-1, -1, -30)),
        (diagonal(1, -1, 2), diagonal(-1, 1, 2), diagonal(-1, -1, -19), diagonal(1, 1, 35)),
        box(2, 2, 12, 12),
    ),
    waypoints=((15.5, 15.5), (11.0, 11.0)),
    seen_from=((0, 1), (1, 2)),
)
PLATEAU = Terrain(
    (
        (*box(0, 6, 32, 12), diagonal(-1, -1, -10), diagonal(1, -1, 22)),
        box(0, 9.5, 4, 16),
        box(28, 9.5, 32, 16),
        (*box(0, 14, 32, 18), diagonal(-1, 1, 16), diagonal(1, 1, 48)),
        (*box(6, 14, 26, 20), diagonal(-1, 1, 12), diagonal(1, 1, 44)),
    ),
    waypoints=((3.4, 11.6), (3.4, 14.4), (28.6, 11.6), (28.6, 14.4)),
    seen_from=((0, 1), (1, 3), (0, 2), (2, 3)),
    joined=((3, 4),),
    plateau=(7, 13, 25, 21),
)


def _excess(planes: Sequence[Plane], x: Array, y: Array, margin: Array | float) -> Array:
    """How far a point lies outside the piece: the worst of its half-planes."""
    return functools.reduce(jnp.maximum, [a * x + b * y - c + margin for a, b, c in planes])


def walkable(terrain: Terrain, x: Array, y: Array) -> Array:
    """Whether points are on the ground."""
    return functools.reduce(jnp.logical_or, [_excess(p, x, y, 0.0) <= 0 for p in terrain.pieces])


def walkable_cells(terrain: Terrain) -> np.ndarray:
    """The pathing grid, (32, 32) bool indexed [y, x]: cells whose centre is on the ground."""
    centre = np.arange(int(SIZE)) + 0.5
    x, y = np.meshgrid(centre, centre)
    inside = [np.all([a * x + b * y <= c + 1e-9 for a, b, c in p], axis=0) for p in terrain.pieces]
    return np.any(inside, axis=0)


def confine(terrain: Terrain, x: Array, y: Array, margin: np.ndarray | float) -> tuple[Array, Array]:
    """Move points to the nearest piece, sliding along its edges; points already on the ground stay."""
    best = None
    for planes in terrain.pieces:
        px, py = x, y
        for a, b, c in planes:
            over = jnp.maximum(a * px + b * py - c + margin, 0.0)
            px, py = px - a * over, py - b * over
        moved = (px - x) ** 2 + (py - y) ** 2
        if best is None:
            best = (moved, px, py)
        else:
            closer = moved < best[0]
            new = (moved, px, py)
            best = tuple(jnp.where(closer, n, o) for n, o in zip(new, best, strict=True))
    assert best is not None
    return best[1], best[2]


def next_point(terrain: Terrain, x: Array, y: Array, gx: Array, gy: Array, margin: np.ndarray) -> tuple[Array, Array]:
    """Where to walk now to get to the goal: the goal itself, or a way point where cliffs are in between."""
    if not terrain.waypoints:
        return gx, gy
    here = [_excess(p, x, y, margin) <= 0.05 for p in terrain.pieces]
    there = [_excess(p, gx, gy, 0.0) <= 0.05 for p in terrain.pieces]
    for i, j in terrain.joined:
        here[i] = here[j] = here[i] | here[j]
        there[i] = there[j] = there[i] | there[j]
    straight = functools.reduce(jnp.logical_or, [a & b for a, b in zip(here, there, strict=True)])
    straight = straight | ~functools.reduce(jnp.logical_or, there)
    best, bx, by = None, gx, gy
    for k, (wx, wy) in enumerate(terrain.waypoints):
        rest = functools.reduce(
            jnp.minimum,
            [
                jnp.where(there[p], length + jnp.sqrt((gx - ex) ** 2 + (gy - ey) ** 2), jnp.inf)
                for p, length, (ex, ey) in _ways(terrain, k)
            ],
        )
        visible = functools.reduce(jnp.logical_or, [here[p] for p in terrain.seen_from[k]])
        cost = jnp.where(visible, jnp.sqrt((x - wx) ** 2 + (y - wy) ** 2) + rest, jnp.inf)
        closer = cost < (jnp.inf if best is None else best)
        best = cost if best is None else jnp.minimum(cost, best)
        bx, by = jnp.where(closer, wx, bx), jnp.where(closer, wy, by)
    return jnp.where(straight, gx, bx), jnp.where(straight, gy, by)


@functools.cache
def _ways(terrain: Terrain, start: int) -> tuple[tuple[int, float, tuple[float, float]], ...]:
    """(piece, length from way point `start`, last way point) for every way point that sees the piece."""
    points, n = terrain.waypoints, len(terrain.waypoints)
    length = np.full((n, n), np.inf)
    for i, j in itertools.product(range(n), range(n)):
        if set(terrain.seen_from[i]) & set(terrain.seen_from[j]):
            length[i, j] = math.dist(points[i], points[j])
    for k, i, j in itertools.product(range(n), repeat=3):
        length[i, j] = min(length[i, j], length[i, k] + length[k, j])
    return tuple((p, float(length[start, k]), points[k]) for k in range(n) for p in terrain.seen_from[k])
