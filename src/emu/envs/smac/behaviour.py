"""Whom each unit is after: allies as told, enemies by the game's default behaviour (no AI player is running).

An enemy looks out for targets at intervals and takes the nearest one it notices. It stays with that one until it is
dead, unless it cannot hit it and could hit another when it next looks out. One that is held up on its way looks out at
once, and takes whoever is nearest. With no target it turns on whoever hit it last, or a friend who called for help, or
goes on with its order. Healers tend the friend with the smallest fraction of life.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac.healing import tend_all
from emu.envs.smac.roster import Roster
from emu.envs.smac.units import LOOPS_PER_STEP
from emu.envs.smac.world import Orders, World, at, column, each, fold, put_row, stack
from emu.types import Array

_INDEX_BITS = 7  # room for 128 units in the low bits of a packed distance
_NOTHING = np.int32(2**31 - 1)
LOOKOUT_PERIOD = 12  # loops between two looks of an enemy for targets
CALL_RANGE = 4.0  # cells within which a call for help is heard, centre to centre: the game's data


class Quarry(NamedTuple):
    """A unit's target as seen from the unit, (N, E). `reach` is the distance from which it can be hit or healed."""

    number: Array
    valid: Array
    x: Array
    y: Array
    reach: Array


def choose_targets(r: Roster, w: World, alive: Array, orders: Orders) -> Quarry:
    """The target of every unit in this loop."""
    enemies = _hunt_nearest(r, w, alive) if r.spec.attack == "nearest" else _hunt(r, w, alive)
    target = jnp.concatenate([orders.target, enemies], axis=0)
    quarry = stack(_look(r, w, alive, target, r.ally, r.enemy), _look(r, w, alive, target, r.enemy, r.ally))
    for side in (r.ally, r.enemy):
        if not r.units and r.healers:
            quarry = tend_all(r, w, alive, quarry, side)
            continue
        healers = [i for i in r.healers if side.start <= i < side.stop]
        quarry = each(healers, lambda carry, i, side=side: _tend(r, w, alive, carry, i, side), quarry)
    return quarry


def _hunt(r: Roster, w: World, alive: Array) -> Array:
    """Targets of the enemies, (n_enemies, E)."""
    rows, allies = r.enemy, range(r.n_allies)
    x, y, old, foe = w.x[rows], w.y[rows], w.target[rows], w.attacker[rows]
    leeway = jnp.where(w.windup[rows] > 0, r.slop[rows], 0.0)
    ordered_after_one = r.spec.attack == "unit"  # they go for ally 0, and for others they notice on the way

    def visit(carry: Any, j: Any) -> Any:
        nearest, in_reach, can_hit, chase, avenge = carry
        d2 = (x - w.x[j]) ** 2 + (y - w.y[j]) ** 2
        packed = jax.lax.bitcast_convert_type(d2, jnp.int32) & ~(2**_INDEX_BITS - 1) | j
        reach = column(r.reach, rows, j)
        mine = (old == j) & alive[j]
        return (
            jnp.where(alive[j] & (d2 <= column(r.scan, rows, j) ** 2), jnp.minimum(nearest, packed), nearest),
            in_reach | (alive[j] & (d2 <= reach**2)),
            can_hit | (mine & (d2 <= (reach + leeway) ** 2)),
            chase | mine,
            avenge | ((foe == j) & alive[j]),
        )

    no = jnp.zeros(x.shape, bool)
    start = (jnp.full(x.shape, _NOTHING, jnp.int32), no, no, no, no)
    nearest, in_reach, can_hit, chase, avenge = fold(allies, visit, start)
    held_up = w.side[rows] != 0
    looks_out = (w.lookout[rows] <= 0) | held_up
    found = looks_out & (nearest != _NOTHING) & (in_reach | held_up | ~chase)
    otherwise = jnp.where(chase, old, jnp.where(avenge, foe, -1))
    if ordered_after_one:
        ordered = alive[0] & (w.lookout[rows] < LOOKOUT_PERIOD)
        otherwise = jnp.where(chase, old, jnp.where(ordered, 0, otherwise))
    chosen = jnp.where(found, nearest & (2**_INDEX_BITS - 1), otherwise)
    chosen = jnp.where(r.building[rows] & ~found, -1, chosen)
    return jnp.where(can_hit, old, chosen).astype(jnp.int32)


def call_for_help(r: Roster, w: World) -> World:
    """Enemies hit since the last step tell idle friends nearby who did it; those turn on him as on their own attacker.

    The nearest caller is heard. Who hunts somebody, or knows an attacker of its own, does not listen.
    """
    rows, alive = r.enemy, w.life > 0
    x, y, unhurt, attacker = w.x[rows], w.y[rows], w.unhurt[rows], w.attacker[rows]

    def lives(number: Array) -> Array:
        return fold(range(r.n_allies), lambda found, j: found | ((number == j) & alive[j]), jnp.zeros(x.shape, bool))

    attacked = (unhurt < LOOPS_PER_STEP) & lives(attacker)

    def visit(carry: Any, j: Any) -> Any:
        nearest, who = carry
        d2 = (x - x[j]) ** 2 + (y - y[j]) ** 2
        heard = attacked[j] & (d2 < nearest)
        return jnp.where(heard, d2, nearest), jnp.where(heard, attacker[j], who)

    nobody = jnp.full(x.shape, -1, jnp.int32)
    _, who = fold(range(r.n_enemies), visit, (jnp.full(x.shape, CALL_RANGE**2, jnp.float32), nobody))
    listens = alive[rows] & ~r.healer[rows] & ~lives(w.target[rows]) & ~lives(attacker) & (who >= 0)
    return w._replace(attacker=jnp.concatenate([w.attacker[r.ally], jnp.where(listens, who, attacker)]))


def _hunt_nearest(r: Roster, w: World, alive: Array) -> Array:
    """Targets of SMACv2's enemies, (n_enemies, E): each hunts one ally until that is dead, whatever else happens.

    With its target's death the order is over, and the enemy is idle. When it next looks out, it takes the nearest ally
    that it notices and can hit. At intervals the map's script sends idle enemies after the nearest ally anywhere; where
    they cannot hit that one, the order fails and they stay idle.
    """
    rows = r.enemy
    x, y, old = w.x[rows], w.y[rows], w.target[rows]

    def visit(carry: Any, j: Any) -> Any:
        noticed, nearest, can_hit, keep = carry
        d2 = (x - w.x[j]) ** 2 + (y - w.y[j]) ** 2
        packed = jax.lax.bitcast_convert_type(d2, jnp.int32) & ~(2**_INDEX_BITS - 1) | j
        scan = column(r.scan, rows, j)
        in_scan = alive[j] & (scan > 0) & (d2 <= scan**2)
        closer = alive[j] & (packed < nearest)
        return (
            jnp.where(in_scan, jnp.minimum(noticed, packed), noticed),
            jnp.where(closer, packed, nearest),
            jnp.where(closer, scan > 0, can_hit),
            keep | ((old == j) & alive[j]),
        )

    no, nobody = jnp.zeros(x.shape, bool), jnp.full(x.shape, _NOTHING, jnp.int32)
    noticed, nearest, can_hit, keep = fold(range(r.n_allies), visit, (nobody, nobody, no, no))
    noticed = jnp.where(w.lookout[rows] <= 0, noticed, _NOTHING)
    sent = jnp.where((w.script <= 0) & can_hit, nearest, _NOTHING)
    found = jnp.where(noticed != _NOTHING, noticed, sent)
    chosen = jnp.where(found != _NOTHING, found & (2**_INDEX_BITS - 1), -1)
    return jnp.where(keep, old, chosen).astype(jnp.int32)


def _look(r: Roster, w: World, alive: Array, target: Array, rows: slice, others: slice) -> Quarry:
    """Find the targets of one side among the units of the other."""
    mine = target[rows]

    def visit(carry: Any, j: Any) -> Any:
        valid, x, y, reach = carry
        this = mine == j
        return (
            valid | (this & alive[j]),
            jnp.where(this, w.x[j], x),
            jnp.where(this, w.y[j], y),
            jnp.where(this, column(r.reach, rows, j), reach),
        )

    zero = jnp.zeros_like(w.x[rows])
    found = fold(range(others.start, others.stop), visit, (jnp.zeros(mine.shape, bool), zero, zero, zero))
    return Quarry(mine, found[0] & alive[rows], *found[1:])


def _tend(r: Roster, w: World, alive: Array, quarry: Quarry, i: Any, friends: slice) -> Quarry:
    """Replace healer `i`'s entry: its target is a friend, chosen by itself if it is an enemy."""
    heal = r.heal
    numbers = np.arange(friends.start, friends.stop, dtype=np.int32)[:, None]
    mendable = r.biological[friends] & (numbers != i)
    edge = r.radius[friends] + at(r.radius, i)
    d2 = (w.x[friends] - w.x[i]) ** 2 + (w.y[friends] - w.y[i]) ** 2
    hurt = mendable & alive[friends] & (w.life[friends] < r.life[friends])
    if friends == r.ally:
        chosen = quarry.number[i]
    else:
        old = w.target[i]
        near = hurt & (d2 <= (heal.search + edge) ** 2)
        worst = jnp.where(near, w.life[friends] / r.life[friends] + 1e-4 * jnp.sqrt(d2), jnp.inf)
        best = jnp.min(worst, axis=0)
        pick = jnp.min(jnp.where(near & (worst <= best), numbers, _NOTHING), axis=0)
        keep = jnp.any(near & (numbers == old), axis=0)
        chosen = jnp.where(keep, old, jnp.where(jnp.isfinite(best), pick, -1)).astype(jnp.int32)
    this = numbers == chosen
    valid = jnp.any(this & alive[friends] & mendable, axis=0) & alive[i]
    patient = Quarry(
        chosen,
        valid,
        jnp.sum(jnp.where(this, w.x[friends], 0.0), axis=0),
        jnp.sum(jnp.where(this, w.y[friends], 0.0), axis=0),
        jnp.sum(jnp.where(this, heal.range + edge, 0.0), axis=0),
    )
    heals = at(r.healer, i)
    return jax.tree.map(lambda old, new: put_row(old, i, jnp.where(heals, new, old[i])), quarry, patient)
