"""Who sees whom: sight by type, the cone with its ghost wedges, and who may see an enemy that another saw first.

Arrays are (observers, others) of one environment.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac.world import World
from emu.envs.smacv2.state import Tags
from emu.types import Array

TINY = 1e-7  # SMACv2's


def by_kind(table: np.ndarray, kinds: Array) -> Array:
    """Entries of a table with a row for each type, by comparing: cheaper than looking them up."""
    picked = jnp.full(kinds.shape, table[0])
    for k in range(1, len(table)):
        picked = jnp.where(kinds == k, table[k], picked)
    return picked


def offsets(w: World, rows: slice, others: slice) -> tuple[Array, Array, Array]:
    """dx, dy and distance from each of `rows` to each of `others`."""
    dx = w.x[others][None] - w.x[rows][:, None]
    dy = w.y[others][None] - w.y[rows][:, None]
    return dx, dy, jnp.sqrt(dx * dx + dy * dy)


def directions(count: int) -> np.ndarray:
    """The directions an agent can look in, (count, 2); the first is east."""
    angle = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def in_cone(direction: Array, count: int, dx: Array, dy: Array) -> Array:
    """Whether places at (dx, dy) are in the cones of agents that look in `direction`, an index.

    As SMACv2 computes it, by comparing slopes: the cone's direction is first turned to the side of the place, so that
    some wedges on the other side count as seen too.
    """
    fx, fy = (by_kind(component, direction)[:, None] for component in directions(count).T)
    right = dx > 0
    fx = jnp.where(right, jnp.maximum(fx, TINY), jnp.minimum(fx, -TINY))
    safe_dx = jnp.where(right, jnp.maximum(dx, TINY), jnp.minimum(dx, -TINY))
    return jnp.abs(jnp.arctan(dy / safe_dx) - jnp.arctan(fy / fx)) < np.pi / count


def no_tags(n_allies: int, n_enemies: int) -> Tags:
    return Tags(
        jnp.full(n_enemies, -1, jnp.int32),
        jnp.zeros((n_enemies, n_allies), bool),
        jnp.zeros((n_allies, n_enemies), bool),
    )


def forget(tags: Tags, allies_alive: Array, enemies_alive: Array) -> Tags:
    """Enemies that are dead, or were first seen by an agent that is, have been seen by nobody."""
    first = jnp.any((tags.first[:, None] == np.arange(len(allies_alive))) & allies_alive, axis=1)
    known = first & enemies_alive
    return tags._replace(first=jnp.where(known, tags.first, -1), seen=tags.seen & known[:, None])


def tag(tags: Tags, near: Array, alive: Array, probability: float, blank_below: bool, key: Any) -> Tags:
    """Let the agents look, in random order, at the enemies that are near, (n_allies, n_enemies), dead ones included.

    The first to look at an enemy that nobody has seen may see it from now on; everybody else may with a probability,
    drawn once. With `blank_below`, a row that an agent may not see hides all rows before it as well.
    """
    n_allies, n_enemies = near.shape
    order_key, admit_key = jax.random.split(key)
    turn = jax.random.uniform(order_key, (n_allies,))
    looks = near & alive[:, None]
    earliest = jnp.min(jnp.where(looks, turn[:, None], jnp.inf), axis=0)
    finder = looks & (turn[:, None] == earliest)  # (n_allies, n_enemies)
    new = (tags.first < 0) & jnp.any(looks, axis=0)
    first = jnp.where(new, jnp.argmax(finder, axis=0).astype(jnp.int32), tags.first)
    admitted = jax.random.uniform(admit_key, (n_enemies, n_allies)) < probability
    seen = jnp.where(new[:, None], admitted | finder.T, tags.seen)
    in_time = jnp.where(new[None], turn[:, None] >= earliest[None], True)  # it was not seen yet when others looked
    allowed = seen.T & in_time
    if blank_below:
        allowed = jax.lax.cummin(allowed.astype(jnp.int32), axis=1, reverse=True) > 0
    return Tags(first, seen, allowed)
