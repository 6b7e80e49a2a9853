"""Healing where any unit may turn out to be a healer: all units of a side at once, visiting their friends one by one.

Where a map names one or two healers, `behaviour.py` and `combat.py` treat each by itself, which is cheaper.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from emu.envs.smac.roster import Roster, pairs
from emu.envs.smac.units import LOOPS_PER_SECOND
from emu.envs.smac.world import World, at, column, fold
from emu.types import Array


def tend_all(r: Roster, w: World, alive: Array, quarry: Any, side: slice) -> Any:
    """The targets of one side, with a friend as the target of those that heal; enemies choose theirs themselves."""
    friends = range(side.start, side.stop)
    reach = pairs(r, lambda a, b: r.heal.range + (a.radius + b.radius))
    chosen = quarry.number[side] if side == r.ally else _choose(r, w, alive, side)

    def visit(carry: Any, j: Any) -> Any:
        valid, x, y, near = carry
        this = chosen == j
        return (
            valid | (this & alive[j] & at(r.biological, j) & (r.number[side] != j)),
            jnp.where(this, w.x[j], x),
            jnp.where(this, w.y[j], y),
            jnp.where(this, column(reach, side, j), near),
        )

    zero = jnp.zeros_like(w.x[side])
    valid, *place = fold(friends, visit, (jnp.zeros(zero.shape, bool), zero, zero, zero))
    heals = r.healer[side]
    new = type(quarry)(chosen, valid & alive[side], *place)
    return jax.tree.map(
        lambda old, patient: jnp.concatenate(
            [old[: side.start], jnp.where(heals, patient, old[side]), old[side.stop :]], axis=0
        ),
        quarry,
        new,
    )


def _choose(r: Roster, w: World, alive: Array, side: slice) -> Array:
    """The hurt friend nearby with the smallest fraction of life; the last one as long as it is hurt and nearby."""
    x, y, old = w.x[side], w.y[side], w.target[side]
    search = pairs(r, lambda a, b: (r.heal.search + (a.radius + b.radius)) ** 2)

    def visit(carry: Any, j: Any) -> Any:
        worst, pick, keep = carry
        d2 = (x - w.x[j]) ** 2 + (y - w.y[j]) ** 2
        hurt = alive[j] & at(r.biological, j) & (w.life[j] < at(r.life, j)) & (r.number[side] != j)
        near = hurt & (d2 <= column(search, side, j))
        fraction = jnp.where(near, w.life[j] / at(r.life, j) + 1e-4 * jnp.sqrt(d2), jnp.inf)
        worse = fraction < worst
        return jnp.where(worse, fraction, worst), jnp.where(worse, j, pick), keep | (near & (old == j))

    start = (jnp.full(x.shape, jnp.inf), jnp.full(x.shape, -1, jnp.int32), jnp.zeros(x.shape, bool))
    _, pick, keep = fold(range(side.start, side.stop), visit, start)
    return jnp.where(keep, old, pick).astype(jnp.int32)


def heal_all(r: Roster, w: World, alive: Array, quarry: Any, side: slice) -> World:
    """Healers of one side in reach of their target give life and spend energy."""
    beam, units = r.heal, range(side.start, side.stop)
    target, energy = quarry.number[side], w.energy[side]
    life, heals = w.life[side], alive[side] & r.healer[side]
    lost = r.life[side] - life

    def wants(missing: Array, j: Any) -> Array:
        return jnp.where(target == j, lost[j - side.start], missing)

    missing = fold(units, wants, jnp.zeros_like(life))
    d2 = (quarry.x[side] - w.x[side]) ** 2 + (quarry.y[side] - w.y[side]) ** 2
    begin = w.healing[side] | (energy >= beam.energy_to_begin)
    works = heals & quarry.valid[side] & (d2 <= quarry.reach[side] ** 2) & begin & (missing > 0)
    most = jnp.minimum(beam.rate / LOOPS_PER_SECOND, energy / beam.energy_per_life)
    given = jnp.where(works, jnp.minimum(most, missing), 0.0)
    charged = energy - given * beam.energy_per_life + beam.energy_rate / LOOPS_PER_SECOND

    def receive(gain: Array, i: Any) -> Array:
        return gain + jnp.where(target[i - side.start] == r.number[side], given[i - side.start], 0.0)

    gain = fold(units, receive, jnp.zeros_like(life))
    healed = jnp.where(alive[side], jnp.minimum(life + gain, r.life[side]), life)
    new = {"life": healed, "energy": jnp.where(heals, jnp.minimum(charged, beam.energy_max), 0.0), "healing": given > 0}

    def join(name: str) -> Array:
        old = getattr(w, name)
        return jnp.concatenate([old[: side.start], new[name], old[side.stop :]], axis=0)

    return w._replace(**{name: join(name) for name in new})
