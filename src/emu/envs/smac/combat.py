"""Attacks from wind-up to hit, and what hits do: shields, armour, splash, healing, regeneration.

In a loop the hits of a side land one after the other, those of the two sides together; deaths come afterwards. A hit is
absorbed by the shield first; what is left is lowered by the armour and costs life, at least half a point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from emu.envs.smac.behaviour import Quarry
from emu.envs.smac.healing import heal_all
from emu.envs.smac.roster import Roster, possible
from emu.envs.smac.units import LOOPS_PER_SECOND, SHIELD_DELAY, SHIELD_RATE
from emu.envs.smac.world import World, at, column, each, fold, put_row
from emu.types import Array

LEAST_DAMAGE = 0.5
_NOBODY = np.int32(2**31 - 1)


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
        engaged=(in_range | under_way | (in_slop & (w.backswing > 0))) & ~r.healer,
    )
    return w._replace(
        cooldown=jnp.where(start, cooldown + r.period + jitter, jnp.where(broken_off, 0.0, cooldown)),
        windup=jnp.where(under_way & ~launched, left, 0.0),
        backswing=backswing,
        target=quarry.number,
        flight=jnp.where(on_its_way, trip, flight),
        aim=jnp.where(on_its_way, quarry.number, w.aim),
    ), struck


class Damage(NamedTuple):
    """What one side is left with after the hits of a loop, (rows, E): life, shield, and the last attacker or -1."""

    life: Array
    shield: Array
    by: Array


def take_hits(r: Roster, w: World, struck: Strike, rows: slice, attackers: slice) -> Damage:
    """Hits on the units of one side, one attacker after the other: nobody hits a unit that is dead already."""
    own = np.arange(rows.start, rows.stop, dtype=np.int32)[:, None]
    everyone = range(attackers.start, attackers.stop)
    plain = (struck.hits > 0) & ~jnp.logical_or(r.hits_bar, r.explodes)

    def visit(left: Damage, j: Any) -> Damage:
        return _hit(r, left, rows, plain[j] & (struck.at[j] == own), j)

    def sweep(left: Damage, j: Any) -> Damage:
        touched = (struck.hits[j] > 0) & at(r.hits_bar, j) & _in_bar(r, w, struck, rows, own, j)
        return _hit(r, _hit(r, left, rows, touched, j), rows, touched, j)  # there and back

    left = fold(everyone, visit, Damage(w.life[rows], w.shield[rows], jnp.full(w.x[rows].shape, -1, jnp.int32)))
    left = each([j for j in r.bars if j in everyone], sweep, left)
    if not any(j in everyone for j in r.blasts):
        return left
    explodes = (struck.launched | w.bursting) & r.explodes
    return fold(everyone, lambda left, j: _hit(r, left, rows, explodes[j] & _in_blast(r, w, rows, j), j), left)


def _hit(r: Roster, left: Damage, rows: slice, struck: Array, j: Any) -> Damage:
    """One hit of unit `j` on those of the rows that are struck and still alive."""
    struck = struck & (left.life > 0)
    through = column(r.damage_taken, rows, j) - left.shield
    loss = jnp.where(through > 0, jnp.maximum(through - r.armor[rows], LEAST_DAMAGE), 0.0)
    return Damage(
        jnp.where(struck, left.life - loss, left.life),
        jnp.where(struck, jnp.maximum(-through, 0.0), left.shield),
        jnp.where(struck, jnp.asarray(j, jnp.int32), left.by),
    )


def spare_late_shots(r: Roster, w: World, struck: Strike, damage: Damage) -> World:
    """A weapon that hits at once does not fire at a unit that was killed earlier in the loop: it stays ready."""
    if not possible(r.hits_at_once > 0):
        return w
    late = jnp.concatenate([_late(struck, damage, r.ally, r.enemy), _late(struck, damage, r.enemy, r.ally)])
    spared = struck.launched & late & (r.hits_at_once > 0) & ~r.explodes
    return w._replace(
        cooldown=jnp.where(spared, 0.0, w.cooldown),
        backswing=jnp.where(spared, 0.0, w.backswing),
        flight=jnp.where(spared, 0.0, w.flight),
    )


def _late(struck: Strike, damage: Damage, attackers: slice, targets: slice) -> Array:
    """Whose target was killed by another attacker, earlier in the same loop, (attackers, E)."""
    aimed = struck.at[attackers]
    last = jnp.where(damage.life <= 0, damage.by, _NOBODY)  # who struck the killing blow

    def visit(killer: Array, j: Any) -> Array:
        return jnp.where(aimed == j, last[j], killer)

    killer = fold(range(targets.start, targets.stop), visit, jnp.full(aimed.shape, _NOBODY, jnp.int32))
    return np.arange(attackers.start, attackers.stop, dtype=np.int32)[:, None] > killer


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


def _in_blast(r: Roster, w: World, rows: slice, j: Any) -> Array:
    """Who is in the radius of unit `j`'s explosion, by its own attack or because it was killed."""
    d2 = (w.x[rows] - w.x[j]) ** 2 + (w.y[rows] - w.y[j]) ** 2
    return (d2 <= (r.blast + r.radius[rows]) ** 2) & ~r.flying[rows]


def recover(r: Roster, w: World, alive: Array, left: Damage, launched: Array) -> World:
    """Apply the damage, regenerate, and clear the dead."""
    hurt = left.by >= 0
    unhurt = jnp.where(hurt, 0.0, w.unhurt + 1.0)
    regained = jnp.where(unhurt >= SHIELD_DELAY * LOOPS_PER_SECOND, SHIELD_RATE / LOOPS_PER_SECOND, 0.0)
    killed = alive & (left.life <= 0)
    exploded = r.explodes & launched
    lives = alive & ~killed & ~exploded
    return w._replace(
        life=jnp.where(lives, jnp.minimum(left.life + r.regeneration, r.life), 0.0),
        shield=jnp.where(lives, jnp.minimum(left.shield + regained, r.shield), 0.0),
        unhurt=unhurt,
        attacker=jnp.where(hurt, left.by, w.attacker),
        bursting=killed & ~exploded & r.explodes if r.blasts else w.bursting,
    )


def heal(r: Roster, w: World, alive: Array, quarry: Quarry) -> World:
    """Healers in reach of their target give life and spend energy."""
    for side in (r.ally, r.enemy):
        if not r.units and r.healers:
            w = heal_all(r, w, alive, quarry, side)
            continue
        healers = [i for i in r.healers if side.start <= i < side.stop]
        w = each(healers, lambda carry, i, side=side: _heal(r, carry, alive, quarry, i, side), w)
    return w


def _heal(r: Roster, w: World, alive: Array, quarry: Quarry, i: Any, friends: slice) -> World:
    beam = r.heal
    this = np.arange(friends.start, friends.stop, dtype=np.int32)[:, None] == quarry.number[i]
    d2 = (quarry.x[i] - w.x[i]) ** 2 + (quarry.y[i] - w.y[i]) ** 2
    missing = jnp.sum(jnp.where(this, r.life[friends] - w.life[friends], 0.0), axis=0)
    begin = w.healing[i] | (w.energy[i] >= beam.energy_to_begin)
    heals = alive[i] & at(r.healer, i)
    works = quarry.valid[i] & (d2 <= quarry.reach[i] ** 2) & begin & (missing > 0)
    rate = beam.rate / LOOPS_PER_SECOND
    given = jnp.minimum(jnp.minimum(rate, missing), w.energy[i] / beam.energy_per_life)
    given = jnp.where(works & heals, given, 0.0)
    charged = w.energy[i] - given * beam.energy_per_life + beam.energy_rate / LOOPS_PER_SECOND
    gain = jnp.where(this & alive[friends], given, 0.0)
    life = w.life.at[friends].add(gain)
    energy = put_row(w.energy, i, jnp.where(heals, jnp.minimum(charged, beam.energy_max), 0.0))
    return w._replace(life=life, energy=energy, healing=put_row(w.healing, i, given > 0))
