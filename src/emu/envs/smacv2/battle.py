"""One step of a SMACv2 battle on the simulator of SMAC: orders in, eight game loops, the world out.

Arrays are (units, E); the figures of the units are gathered from their kinds. Where a step may send no order to an
agent (without action masks, with the cone, with uncertain attacks), its unit goes on with what it was doing.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac import terrain
from emu.envs.smac.maps import MapSpec
from emu.envs.smac.roster import Roster, drawn_roster
from emu.envs.smac.simulate import MOVES, environments_last, read_orders, tick
from emu.envs.smac.units import LOOPS_PER_STEP
from emu.envs.smac.world import Orders, World
from emu.envs.smacv2.capabilities import Capabilities
from emu.envs.smacv2.features import LIMIT
from emu.envs.smacv2.state import Standing
from emu.types import Array

KILL_LOOPS = 2  # before the end of a step, units below their health level are killed
MOVE_AMOUNT = 2.0


class Step(NamedTuple):
    """What happens in a step apart from the world, (units or allies, E)."""

    kinds: Array
    action: Array  # SMAC's numbers: 1 stop, 2-5 moves, 6 + i target i
    jitter: Array
    sent: Array  # bool: an order was sent; only where some may not be
    standing: Any  # Standing
    doomed: Array  # bool: below the health level; only with health levels


@functools.cache
def field(n_units: int, n_enemies: int) -> MapSpec:
    """The open map, as the simulator declares maps; its units are drawn."""
    return MapSpec(f"{n_units}_vs_{n_enemies}", (), (), LIMIT, terrain=terrain.OPEN, attack="nearest")


def roster_in(c: Capabilities, kinds: Array) -> Roster:
    """Figures of the units of these kinds, (N, E)."""
    return drawn_roster(field(c.n_units, c.n_enemies), c.race.units, c.n_units, kinds)


@functools.cache
def advance(c: Capabilities, orders_stand: bool):
    """The function (world, Step) -> (world, Standing) for one environment, with its batching rule."""

    def run(w: World, step: Step) -> tuple[World, Any]:
        r = roster_in(c, step.kinds)
        told, orders = read_orders(r, w, step.action)
        if orders_stand:
            standing = stand(r, w, orders, step)
            w = _undisturbed(r, w, told, step.sent)
        else:
            standing, w = step.standing, told
        kill_at = LOOPS_PER_STEP - KILL_LOOPS if c.health is not None else LOOPS_PER_STEP

        def loop(_: int, w: World) -> World:
            return tick(r, w, _heading(r, w, standing) if orders_stand else orders, step.jitter)

        w = jax.lax.fori_loop(0, kill_at, loop, w)
        if c.health is not None:
            spared = jnp.concatenate([~step.doomed, jnp.ones_like(w.life[r.enemy], bool)])
            w = w._replace(life=jnp.where(spared, w.life, 0.0), shield=jnp.where(spared, w.shield, 0.0))
            w = jax.lax.fori_loop(kill_at, LOOPS_PER_STEP, loop, w)
        return w, standing

    return environments_last(run)


def at_rest(n_allies: int) -> Standing:
    """No orders."""
    zero = jnp.zeros(n_allies)
    return Standing(jnp.full(n_allies, -1, jnp.int32), zero.astype(bool), zero, zero)


def stand(r: Roster, w: World, orders: Orders, step: Step) -> Standing:
    """The orders in force: those sent now, else those of before."""
    walks = (step.action >= 2) & (step.action < 2 + len(MOVES))
    new = Standing(orders.target, walks, w.x[r.ally] + MOVE_AMOUNT * orders.dx, w.y[r.ally] + MOVE_AMOUNT * orders.dy)
    return jax.tree.map(lambda now, before: jnp.where(step.sent, now, before), new, step.standing)


def _heading(r: Roster, w: World, standing: Standing) -> Orders:
    """Orders for one loop: walking units head for their goal, and stop there."""
    dx, dy = (
        jnp.where(standing.walks, (goal - place[r.ally]) / MOVE_AMOUNT, 0.0)
        for goal, place in ((standing.x, w.x), (standing.y, w.y))
    )
    return Orders(dx, dy, standing.target)


def _undisturbed(r: Roster, before: World, told: World, sent: Array) -> World:
    """Only a new order breaks off an attack."""
    sent = jnp.concatenate([sent, np.ones((r.n_enemies, sent.shape[1]), bool)])
    return jax.tree.map(lambda new, old: new if new is old else jnp.where(sent, new, old), told, before)
