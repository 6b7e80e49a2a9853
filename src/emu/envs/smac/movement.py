"""Walking: towards the target or the goal, round whoever stands in the way, never into cliffs or each other.

A blocked unit follows the outline of the blockers on one side, chosen outwards from the middle of its own group, so
that melee units flow round and surround instead of queueing. Overlaps are then pushed apart: units that stand to
attack give way hardly at all, friends that do nothing yield, opponents do not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac import terrain
from emu.envs.smac.behaviour import LOOKOUT_PERIOD, Quarry
from emu.envs.smac.roster import Roster, collide, pairs, possible
from emu.envs.smac.world import Orders, World, column, fold
from emu.types import Array

CONTACT = 0.06  # gap below which another unit is in the way
FURTHEST_BEARING = 1.99  # of blockers followed round: 1 is abreast; at 2, straight behind, the side is mere rounding
PUSHES = 3
PUSH_LIMIT = 0.3
STIFFNESS = 0.25  # share of an overlap that a standing unit leaves to a moving one, above one half
ARRIVED = 0.5


def move(r: Roster, w: World, alive: Array, quarry: Quarry, engaged: Array, orders: Orders) -> World:
    """Move everybody by one loop."""
    dx, dy, step = _wish(r, w, alive, quarry, engaged, orders)
    walking = step > 0
    standing = alive & (engaged | r.building)
    side = jnp.where(w.side == 0, _outwards(r, w, alive, dx, dy), w.side)
    impatient = quarry.valid & (w.side != 0)
    held_up, sx, sy = _steer(r, w, side, dx, dy, walking, standing, impatient)
    vx, vy = sx * step, sy * step
    if possible(r.flying):
        vx, vy = _inertia(r, w, vx, vy)
    start = (w.x + vx, w.y + vy)
    x, y = jax.lax.fori_loop(0, PUSHES, lambda _, at: _apart(r, at, alive, walking, standing), start)
    side = jnp.where(walking, jnp.where(held_up, side, w.side), 0.0)
    return w._replace(x=x, y=y, vx=x - w.x, vy=y - w.y, side=side)


def _wish(r: Roster, w: World, alive: Array, quarry: Quarry, engaged: Array, orders: Orders):
    """Where each unit wants to go: unit direction and length of the step."""
    hunting = quarry.valid
    gx, gy = _order_goal(r, w, orders)
    gx, gy = jnp.where(hunting, quarry.x, gx), jnp.where(hunting, quarry.y, gy)
    if r.terrain.waypoints:
        fx, fy = terrain.confine(r.terrain, gx, gy, 0.0)  # a target on a cliff is hunted from the ground beside it
        fx, fy = jnp.where(hunting, fx, gx), jnp.where(hunting, fy, gy)
        wx, wy = terrain.next_point(r.terrain, w.x, w.y, fx, fy, r.separation)
        gx, gy = jnp.where(r.cliff_bound, wx, gx), jnp.where(r.cliff_bound, wy, gy)
    dx, dy = gx - w.x, gy - w.y
    d2 = dx * dx + dy * dy
    inverse = jax.lax.rsqrt(jnp.maximum(d2, 1e-8))
    distance = d2 * inverse
    near = jnp.where(hunting, jnp.where(r.healer, 0.9 * quarry.reach, 0.05), jnp.where(_is_enemy(r), ARRIVED, 0.0))
    waits = ~hunting & (w.lookout >= LOOKOUT_PERIOD)  # for the moment at which it takes up its order
    goes = alive & ~engaged & ~waits & (distance > near)
    step = jnp.where(goes, jnp.minimum(r.speed, distance), 0.0)
    return dx * inverse, dy * inverse, step


def _is_enemy(r: Roster) -> np.ndarray:
    return np.arange(r.n)[:, None] >= r.n_allies


def _order_goal(r: Roster, w: World, orders: Orders) -> tuple[Array, Array]:
    """Allies: two cells in the ordered direction. Enemies: the point of their attack order, or where they stand."""
    ax, ay = w.x[r.ally] + 2 * orders.dx, w.y[r.ally] + 2 * orders.dy
    attack = r.spec.attack
    if r.spec.attack_to is not None:
        ex, ey = (jnp.broadcast_to(w.goal[axis], w.x[r.enemy].shape) for axis in (0, 1))
    elif isinstance(attack, tuple):
        ex, ey = jnp.full_like(w.x[r.enemy], attack[0]), jnp.full_like(w.y[r.enemy], attack[1])
    else:
        ex, ey = w.x[r.enemy], w.y[r.enemy]
    return jnp.concatenate([ax, ex]), jnp.concatenate([ay, ey])


def _steer(
    r: Roster, w: World, side: Array, dx: Array, dy: Array, walking: Array, standing: Array, impatient: Array
) -> tuple[Array, Array, Array]:
    """Turn blocked units along the outline of those that stand in front: friends, for impatient hunters also opponents.

    Who walks is not gone round: it will be elsewhere in a moment. Returns whether somebody is in the way, and where
    the unit walks.
    """
    all_units = slice(0, r.n)
    touching = pairs(r, lambda a, b: (a.separation + b.separation + CONTACT) ** 2 * collide(a, b))
    width2 = pairs(r, lambda a, b: (a.separation + b.separation) ** 2)
    friends = r.friends[..., None]

    def visit(carry: Any, j: Any) -> Any:
        held_up, blocked, furthest = carry
        ox, oy = w.x[j] - w.x, w.y[j] - w.y
        d2 = ox * ox + oy * oy
        contact = standing[j] & (d2 < column(touching, all_units, j))
        avoided = contact & (column(friends, all_units, j) | impatient)
        inverse = jax.lax.rsqrt(jnp.maximum(d2, 1e-8))
        along, across = dx * ox + dy * oy, dx * oy - dy * ox
        cosine, sine = along * inverse, side * across * inverse
        bearing = jnp.where(cosine >= 0, sine, jnp.where(sine > 0, 2.0 - sine, -2.0))
        followed = jnp.where(avoided & (bearing < FURTHEST_BEARING), jnp.maximum(furthest, bearing), furthest)
        ahead = (along > 0) & (across * across < column(width2, all_units, j))  # straight on would run into it
        return held_up | (contact & ahead), blocked | (avoided & ahead), followed

    no = jnp.zeros(dx.shape, bool)
    held_up, blocked, bearing = fold(range(r.n), visit, (no, no, jnp.full_like(dx, -2.0)))
    blocked = blocked & walking
    sine = jnp.where(bearing > 1, 2.0 - bearing, bearing)
    cosine = jnp.sqrt(jnp.maximum(1.0 - sine * sine, 0.0)) * jnp.where(bearing > 1, -1.0, 1.0)
    tx, ty = -sine * dx - cosine * side * dy, -sine * dy + cosine * side * dx
    return held_up, jnp.where(blocked, tx, dx), jnp.where(blocked, ty, dy)


def _outwards(r: Roster, w: World, alive: Array, dx: Array, dy: Array) -> Array:
    """+1 to pass blockers on the left, -1 on the right: away from the middle of the unit's own group."""

    def middle(p: Array) -> Array:
        sides = []
        for rows in (r.ally, r.enemy):
            here = alive[rows]
            mean = jnp.sum(jnp.where(here, p[rows], 0.0), axis=0) / jnp.maximum(jnp.sum(here, axis=0), 1)
            sides.append(jnp.broadcast_to(mean, here.shape))
        return jnp.concatenate(sides)

    cx, cy = middle(w.x), middle(w.y)
    return jnp.where(dx * (w.y - cy) - dy * (w.x - cx) >= 0, 1.0, -1.0)


def _inertia(r: Roster, w: World, vx: Array, vy: Array) -> tuple[Array, Array]:
    """Flying units change their velocity by a limited amount a loop."""
    ax, ay = vx - w.vx, vy - w.vy
    size = jnp.sqrt(ax * ax + ay * ay + 1e-12)
    scale = jnp.where(r.flying, jnp.minimum(1.0, r.acceleration / size), 1.0)
    return w.vx + ax * scale, w.vy + ay * scale


def _apart(r: Roster, at: tuple[Array, Array], alive: Array, walking: Array, standing: Array) -> tuple[Array, Array]:
    """Push overlapping units apart, the standing ones least, and everybody back onto the ground."""
    x, y = at
    everyone = slice(0, r.n)
    least = pairs(r, lambda a, b: (a.separation + b.separation) * collide(a, b))
    friends = r.friends[..., None]
    firm, still = standing.astype(jnp.float32), 1.0 - walking.astype(jnp.float32)

    def visit(carry: Any, j: Any) -> Any:
        px, py = carry
        ox, oy = x - x[j], y - y[j]
        d2 = ox * ox + oy * oy
        inverse = inverse_root(jnp.maximum(d2, 1e-8))
        overlap = column(least, everyone, j) * inverse - 1.0  # relative to the distance
        difference = jnp.where(column(friends, everyone, j), firm[j] - firm, still[j] - still)
        share = 0.5 + STIFFNESS * difference
        amount = jnp.where(alive[j], jnp.maximum(overlap, 0.0) * share, 0.0)
        return px + ox * amount, py + oy * amount

    px, py = fold(range(r.n), visit, (jnp.zeros_like(x), jnp.zeros_like(y)))
    size = jnp.sqrt(px * px + py * py + 1e-12)
    scale = jnp.where(alive & ~r.building, jnp.minimum(1.0, PUSH_LIMIT / size), 0.0)
    return _stay_on_ground(r, x + px * scale, y + py * scale)


def inverse_root(values: Array) -> Array:
    """1 / sqrt of positive float32 numbers: a guess from their bits, then Newton's rule twice, exact to 5e-6.

    XLA never computes a root or a quotient twice, but stores and reloads it; a few products it repeats wherever they
    are used. With few environments, where starting operations is what costs, a step takes a fifth less time.
    """
    half = 0.5 * values
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    guess = jax.lax.bitcast_convert_type(0x5F375A86 - (bits >> 1), jnp.float32)
    for _ in range(2):
        guess = guess * (1.5 - half * guess * guess)
    return guess


def _stay_on_ground(r: Roster, x: Array, y: Array) -> tuple[Array, Array]:
    cx, cy = terrain.confine(r.terrain, x, y, r.separation)
    if not possible(~r.cliff_bound):
        return cx, cy
    free_x, free_y = (jnp.clip(p, r.radius, terrain.SIZE - r.radius) for p in (x, y))
    return jnp.where(r.cliff_bound, cx, free_x), jnp.where(r.cliff_bound, cy, free_y)
