"""One environment step: eight game loops of decide, strike, walk, take hits.

`advance` takes and returns single-environment arrays, but its body works on (units, E) arrays: a batching rule hands
it a whole `jax.vmap` batch at once with the environments as the last axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac import combat
from emu.envs.smac.behaviour import LOOKOUT_PERIOD, call_for_help, choose_targets
from emu.envs.smac.maps import MapSpec
from emu.envs.smac.movement import move
from emu.envs.smac.roster import Roster, roster
from emu.envs.smac.units import LOOPS_PER_STEP
from emu.envs.smac.world import Orders, World, stack
from emu.types import Array, PyTree

MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))  # actions 2 to 5: north, south, east, west
FIRST_TARGET = 6
SCRIPT_PERIOD = 8  # loops


def fresh_world(r: Roster) -> World:
    """The battle as the map declares it; `chance.py` draws what differs from battle to battle."""
    zero = np.zeros(r.n, np.float32)
    nobody = np.full(r.n, -1, np.int32)
    energy = np.array([u.heal.energy_start if u.heal else 0.0 for u in r.units], np.float32)
    attack = r.spec.attack
    goal = np.array(attack if isinstance(attack, tuple) else (0.0, 0.0), np.float32)
    world = World(
        x=r.spawn[:, 0], y=r.spawn[:, 1], life=r.life[:, 0], shield=r.shield[:, 0], cooldown=zero, windup=zero,
        backswing=zero, target=nobody, flight=zero, aim=nobody, unhurt=zero, attacker=nobody, energy=energy,
        healing=zero.astype(bool), bursting=zero.astype(bool), vx=zero, vy=zero, lookout=zero, side=zero, goal=goal,
        script=np.zeros(1, np.float32),
    )  # fmt: skip
    return jax.tree.map(jnp.asarray, world)


def tick(r: Roster, w: World, orders: Orders, jitter: Array) -> World:
    """One game loop on (N, E) arrays."""
    alive = w.life > 0
    quarry = choose_targets(r, w, alive, orders)
    w = w._replace(lookout=jnp.where(w.lookout <= 0, LOOKOUT_PERIOD - 1.0, w.lookout - 1.0))
    if r.spec.attack == "nearest":
        w = w._replace(script=jnp.where(w.script <= 0, SCRIPT_PERIOD - 1.0, w.script - 1.0))
    w, struck = combat.strike(r, w, alive, quarry, jitter)
    damage = stack(combat.take_hits(r, w, struck, r.ally, r.enemy), combat.take_hits(r, w, struck, r.enemy, r.ally))
    w = combat.spare_late_shots(r, w, struck, damage)
    w = move(r, w, alive, quarry, struck.engaged, orders)
    healed = combat.heal(r, w, alive, quarry)
    damage = damage._replace(life=damage.life + healed.life - w.life)
    return combat.recover(r, healed, alive, damage, struck.launched)


def read_orders(r: Roster, w: World, action: Array) -> tuple[World, Orders]:
    """Turn the joint action, (n_allies, E), into orders; a new order cancels backswing and another target's wind-up."""
    is_move = [action == 2 + k for k in range(len(MOVES))]
    dx, dy = (jnp.select(is_move, [float(move[axis]) for move in MOVES], 0.0) for axis in (0, 1))
    first = jnp.where(r.healer[r.ally], 0, r.n_allies)
    target = jnp.where(action >= FIRST_TARGET, action - FIRST_TARGET + first, -1).astype(jnp.int32)
    changed = (target != w.target[r.ally]) & (w.windup[r.ally] > 0)
    new = {
        "windup": jnp.where(changed, 0.0, w.windup[r.ally]),
        "cooldown": jnp.where(changed, 0.0, w.cooldown[r.ally]),
        "backswing": jnp.zeros_like(w.backswing[r.ally]),
        "side": jnp.where(target == w.target[r.ally], w.side[r.ally], 0.0),
    }
    told = {name: jnp.concatenate([array, getattr(w, name)[r.enemy]]) for name, array in new.items()}
    return w._replace(**told), Orders(dx, dy, target)


def advance_many(r: Roster, w: World, action: Array, jitter: Array) -> World:
    """One step on (N, E) arrays."""
    w, orders = read_orders(r, w, action)
    if r.spec.attack != "nearest":  # SMACv2's enemies are sent by a script
        w = call_for_help(r, w)
    return jax.lax.fori_loop(0, LOOPS_PER_STEP, lambda _, carry: tick(r, carry, orders, jitter), w)


@functools.cache
def advance(spec: MapSpec):
    """The function (world, action, jitter) -> world for one environment, with its batching rule."""
    return environments_last(lambda *args: advance_many(roster(spec), *args))


def environments_last(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function on arrays whose last axis is the environments, as one on those of a single environment.

    Under `jax.vmap` it is handed the whole batch at once.
    """

    @jax.custom_batching.custom_vmap
    def run(*args: PyTree) -> PyTree:
        many = jax.tree.map(lambda a: a[..., None], args)
        return jax.tree.map(lambda a: a[..., 0], function(*many))

    @run.def_vmap
    def run_batch(axis_size: int, batched: PyTree, *args: PyTree):
        def move(array: Array, is_batched: bool) -> Array:
            return (
                jnp.moveaxis(array, 0, -1)
                if is_batched
                else jnp.broadcast_to(array[..., None], (*array.shape, axis_size))
            )

        result = function(*jax.tree.map(move, args, tuple(batched)))
        return jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), result), jax.tree.map(lambda _: True, result)

    return run
