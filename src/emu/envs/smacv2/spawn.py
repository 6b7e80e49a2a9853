"""From drawn teams and points to units on the ground: whoever is created on an occupied point moves aside.

How the game packs units is not known. Here the units of one point stand along a spiral, each as far out as the area of
those before it asks for, and overlaps that are left are pushed apart a little.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac.terrain import SIZE
from emu.envs.smacv2.sight import by_kind
from emu.types import Array

GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))
SPREAD = 1.6  # a unit's distance from the point, relative to the square root of the squared radii before it
PUSHES = 3


def pack(points: Array, separation: Array, layer: Array, shift: Array | float = 0.0) -> Array:
    """Places (N, 2) of units created at points (N, 2), in this order; layers are not in each other's way.

    Each place is then moved by a `shift` of its own.
    """
    n = points.shape[0]
    points = _inside(points, jnp.broadcast_to(jnp.max(separation), (n,)))  # all units of a corner in one point
    same_layer = layer[:, None] == layer[None]
    same_point = jnp.all(points[:, None] == points[None], axis=-1) & same_layer
    before = same_point & (np.arange(n)[None] < np.arange(n)[:, None])
    turn = GOLDEN_ANGLE * jnp.sum(before, axis=1)
    outwards, room = (
        SPREAD * jnp.sqrt(jnp.sum(jnp.where(those, separation**2, 0.0), axis=1)) for those in (before, same_point)
    )
    centre = _inside(points, room)
    places = centre + outwards[:, None] * jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=1)
    others = same_layer & ~np.eye(n, dtype=bool)
    apart = separation[:, None] + separation[None]
    for _ in range(PUSHES):
        places = _push(_inside(places, separation), jnp.where(others, apart, 0.0))
    return _inside(places + shift, separation)


def _push(places: Array, apart: Array) -> Array:
    """Every overlapping pair halves its overlap."""
    away = places[:, None] - places[None]
    distance = jnp.sqrt(jnp.sum(away**2, axis=-1) + 1e-12)
    overlap = jnp.maximum(apart - distance, 0.0)
    return places + 0.5 * jnp.sum(away * (overlap / jnp.maximum(distance, 1e-3))[..., None], axis=1)


def _inside(places: Array, margin: Array) -> Array:
    return jnp.clip(places, margin[:, None], SIZE - margin[:, None])


def number(kinds: Array, places: Array, rank: np.ndarray) -> tuple[Array, Array]:
    """Agents in SMACv2's order: by type, then x, then y."""
    operands = (by_kind(rank, kinds), places[:, 0], places[:, 1], kinds)
    _, x, y, kinds = jax.lax.sort(operands, num_keys=3, is_stable=True)
    return kinds, jnp.stack([x, y], axis=1)
