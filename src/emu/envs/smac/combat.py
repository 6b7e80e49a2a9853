"""Attacks from wind-up to hit, and what hits do: shields, armour, splash, healing, regeneration.

All hits of a loop land together; deaths come afterwards. A hit is absorbed by the shield first; what is left is
lowered by the armour and costs life, at least half a point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from emu.envs.smac.behaviour import Quarry
from emu.envs.smac.roster import Roster
from emu.envs.smac.units import LOOPS_PER_SECOND, SHIELD_DELAY, SHIELD_RATE
from emu.envs.smac.world import World, at, column, each, fold, put_row
from emu.types import Array

JITTER = (-1.0, 2.0)  # loops added to every weapon period, drawn anew for each attack
LEAST_DAMAGE = 0.5


class Strike(NamedTuple):
    """What leaves the weapons in one loop, (N, E)."""

    hits: Array  # how many hits of this unit land now
    at: Array  # on whom
    launched: Array  # bool: an attack reached its damage point
    engaged: Array  # bool: stands to attack, does not walk


def strike(r: Roster, w: World, alive: Array, quarry: Quarry, jitter: Array) -> tuple[World, Strike]:
    """Advance all weapons by one loop."""
    d2 = (quarry.x - w.x) ** 2 + (quarry.y - w.y) ** 2
    armed = quarry.valid & ~r.healer
    in_range = armed & (d2 <= quarry.reach**2) & (quarry.reach > 0)
    in_slop = armed & (d2 <= (quarry.reach + r.slop) ** 2) & (quarry.reach > 0)
    cooldown = jnp.where(w.cooldown > 0, w.cooldown - 1.0, 0.0)  # the fraction left over shortens the next period
    winding = w.windup > 0
    start = in_range & ~winding & (cooldown <= 0)
    left = jnp.where(start, r.windup, w.windup - 1.0)
    under_way = (winding | start) & in_slop
    launched = under_way & (left <= 0)
    broken_off = winding & ~in_slop
    in_flight = (w.flight > 0) & (alive | ~r.channeled)
    flight = jnp.where(in_flight, jnp.maximum(w.flight - 1.0, 0.0), 0.0)
    landed = in_flight & (flight <= 0)
    on_its_way = launched & (r.hits_delayed > 0)
    trip = jnp.where(r.missile_speed > 0, jnp.sqrt(d2) / jnp.maximum(r.missile_speed, 1e-6), r.delay)
    backswing = jnp.where(launched, r.backswing, jnp.maximum(w.backswing - 1.0, 0.0))
    struck = Strike(
        hits=jnp.where(launched, r.hits_at_once, 0.0) + jnp.where(landed, r.hits_delayed, 0.0),
        at=jnp.where(landed, w.aim, quarry.number),
        launched=launched,
        engaged=(in_range | under_way | (w.backswing > 0)) & ~r.healer,
    )
    return w._replace(
        cooldown=jnp.where(start, cooldown + r.period + jitter, jnp.where(broken_off, 0.0, cooldown)),
        windup=jnp.where(under_way & ~launched, left, 0.0),
        backswing=backswing,
        target=quarry.number,
        flight=jnp.where(on_its_way, trip, flight),
        aim=jnp.where(on_its_way, quarry.number, w.aim),
    ), struck


class Harm(NamedTuple):
    """Hits summed over attackers, (rows, E): raw damage, number of hits, and the last attacker or -1."""

    raw: Array
    hits: Array
    by: Array


def harm(r: Roster, w: World, alive: Array, struck: Strike, rows: slice, attackers: slice) -> Harm:
    """What the units of one side suffer in this loop from the other."""
    own = np.arange(rows.start, rows.stop, dtype=np.int32)[:, None]
    everyone = range(attackers.start, attackers.stop)
    plain = jnp.where(jnp.logical_or(r.hits_bar, r.explodes), 0.0, struck.hits)

    def visit(carry: Harm, j: Any) -> Harm:
        count = jnp.where(struck.at[j] == own, plain[j], 0.0)
        return _add(carry, column(r.damage_taken, rows, j), count, j)

    zero = jnp.zeros_like(w.x[rows])
    total = fold(everyone, visit, Harm(zero, zero, jnp.full(zero.shape, -1, jnp.int32)))

    def sweep(carry: Harm, j: Any) -> Harm:
        count = jnp.where(_in_bar(r, w, struck, rows, own, j) & at(r.hits_bar, j), struck.hits[j], 0.0)
        return _add(carry, column(r.damage_taken, rows, j), count, j)

    total = each([j for j in r.bars if j in everyone], sweep, total)
    if not any(j in everyone for j in r.blasts):
        return total
    explodes = (struck.launched | w.bursting) & r.explodes
    return fold(everyone, lambda carry, j: _blast(r, w, explodes, rows, carry, j), total)


def _add(total: Harm, damage: Array, count: Array, j: Any) -> Harm:
    by = jnp.where(count > 0, jnp.asarray(j, jnp.int32), total.by)
    return Harm(total.raw + damage * count, total.hits + count, by)


def _in_bar(r: Roster, w: World, struck: Strike, rows: slice, own: np.ndarray, j: Any) -> Array:
    """Who is touched by the bar that lies across the shot of unit `j`, centred on its target."""
    x, y, aimed = w.x[rows], w.y[rows], struck.at[j] == own
    tx, ty = (jnp.sum(jnp.where(aimed, p, 0.0), axis=0) for p in (x, y))
    ux, uy = tx - w.x[j], ty - w.y[j]
    norm = 1.0 / jnp.sqrt(ux * ux + uy * uy + 1e-6)
    along = ((x - tx) * ux + (y - ty) * uy) * norm
    across = ((y - ty) * ux - (x - tx) * uy) * norm
    beyond = jnp.maximum(jnp.abs(across) - r.bar[0], 0.0)
    touched = along**2 + beyond**2 <= (r.bar[1] + r.radius[rows]) ** 2
    return aimed | (touched & ~r.flying[rows])


def _blast(r: Roster, w: World, explodes: Array, rows: slice, total: Harm, j: Any) -> Harm:
    """Explosion of unit `j`, by its own attack or because it was killed."""
    d2 = (w.x[rows] - w.x[j]) ** 2 + (w.y[rows] - w.y[j]) ** 2
    inside = (d2 <= (r.blast + r.radius[rows]) ** 2) & ~r.flying[rows]
    return _add(total, column(r.damage_taken, rows, j), jnp.where(explodes[j] & inside, 1.0, 0.0), j)


def suffer(r: Roster, w: World, alive: Array, total: Harm, launched: Array) -> World:
    """Take the damage, regenerate, and clear the dead."""
    through = jnp.maximum(total.raw - w.shield, 0.0)
    average = total.raw / jnp.maximum(total.hits, 1.0)
    reaching = jnp.ceil(through / jnp.maximum(average, 1e-6) - 1e-4)
    loss = jnp.maximum(through - r.armor * reaching, LEAST_DAMAGE * reaching)
    life = w.life - jnp.where(through > 0, loss, 0.0)
    hurt = total.hits > 0
    calm = jnp.where(hurt, 0.0, w.calm + 1.0)
    regained = jnp.where(calm >= SHIELD_DELAY * LOOPS_PER_SECOND, SHIELD_RATE / LOOPS_PER_SECOND, 0.0)
    shield = jnp.minimum(jnp.maximum(w.shield - total.raw, 0.0) + regained, r.shield)
    killed = alive & (life <= 0)
    exploded = r.explodes & launched
    lives = alive & ~killed & ~exploded
    life = jnp.minimum(life + r.regeneration, r.life)
    return w._replace(
        life=jnp.where(lives, life, 0.0),
        shield=jnp.where(lives, shield, 0.0),
        calm=calm,
        foe=jnp.where(hurt, total.by, w.foe),
        bursting=killed & ~exploded & r.explodes if r.blasts else w.bursting,
    )


def mend(r: Roster, w: World, alive: Array, quarry: Quarry) -> World:
    """Healers in reach of their target give life and spend energy."""
    for side in (r.ally, r.enemy):
        healers = [i for i in r.healers if side.start <= i < side.stop]
        w = each(healers, lambda carry, i, side=side: _mend(r, carry, alive, quarry, i, side), w)
    return w


def _mend(r: Roster, w: World, alive: Array, quarry: Quarry, i: Any, friends: slice) -> World:
    heal = r.heal
    this = np.arange(friends.start, friends.stop, dtype=np.int32)[:, None] == quarry.number[i]
    d2 = (quarry.x[i] - w.x[i]) ** 2 + (quarry.y[i] - w.y[i]) ** 2
    missing = jnp.sum(jnp.where(this, r.life[friends] - w.life[friends], 0.0), axis=0)
    begin = w.healing[i] | (w.energy[i] >= heal.energy_to_begin)
    heals = alive[i] & at(r.healer, i)
    works = quarry.valid[i] & (d2 <= quarry.reach[i] ** 2) & begin & (missing > 0)
    rate = heal.rate / LOOPS_PER_SECOND
    given = jnp.minimum(jnp.minimum(rate, missing), w.energy[i] / heal.energy_per_life)
    given = jnp.where(works & heals, given, 0.0)
    charged = w.energy[i] - given * heal.energy_per_life + heal.energy_rate / LOOPS_PER_SECOND
    gain = jnp.where(this & alive[friends], given, 0.0)
    life = w.life.at[friends].add(gain)
    energy = put_row(w.energy, i, jnp.where(heals, jnp.minimum(charged, heal.energy_max), 0.0))
    return w._replace(life=life, energy=energy, healing=put_row(w.healing, i, given > 0))
