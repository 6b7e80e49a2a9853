"""Scripted players for tests, baselines and films: nearest, weakest, kite, and SMAC's own heuristic.

A player is a pure function (env, state, key) -> actions (N,), or a `Remembering`. All choose available actions only,
but for `heuristic` and `heuristic_rest`: SMAC's heuristic player orders attacks at any distance, and the game's units
walk there. (Without masks, with the cone or with probabilities of attacks SMACv2 does not send orders out of reach.)
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from emu.envs.scripted import Player, Remembering
from emu.envs.smac import features
from emu.envs.smac.simulate import MOVES
from emu.types import Array

Battle = Any  # an environment of SMAC or SMACv2: they have `first_target` and `roster_in(state)` in common
STOP, NORTH, SOUTH, EAST, WEST = 1, 2, 3, 4, 5


def nearest(env: Battle, state: Any, key: Array) -> Array:
    """Attack the nearest enemy until it is dead (as SMAC's own heuristic); walk to it until it can be attacked."""
    del key
    d2, alive = _distances(env, state)
    r = env.roster_in(state)
    kept = np.arange(r.n_allies, r.n) == state.world.target[r.ally][:, None]
    return _attack_or_approach(env, state, jnp.where(alive, jnp.where(kept, -1.0, d2), jnp.inf))


def weakest(env: Battle, state: Any, key: Array) -> Array:
    """Attack the enemy with the least health in shooting distance; if there is none, approach the nearest."""
    del key
    d2, alive = _distances(env, state)
    world, rows = state.world, env.roster_in(state).enemy
    health = (world.life[rows] + world.shield[rows])[None] + 1e-3 * d2
    attackable = _attacks(env, state) & ~_healers(env, state)[:, None]
    return _attack_or_approach(env, state, jnp.where(attackable & alive, health, 1e6 + jnp.where(alive, d2, jnp.inf)))


def kite(env: Battle, state: Any, key: Array) -> Array:
    """Shoot when the weapon is ready, step back from the nearest enemy while it reloads."""
    d2, alive = _distances(env, state)
    fight = nearest(env, state, key)
    r, world = env.roster_in(state), state.world
    close = jnp.argmin(jnp.where(alive, d2, jnp.inf), axis=1)
    dx = world.x[r.ally] - world.x[r.enemy][close]
    dy = world.y[r.ally] - world.y[r.enemy][close]
    reloading = (features.reloading(r, world) > 4) & (jnp.min(jnp.where(alive, d2, jnp.inf), axis=1) < 25.0)
    retreat = _walk(env, state, dx, dy)
    return jnp.where(reloading & (world.life[r.ally] > 0) & ~_healers(env, state), retreat, fight).astype(jnp.int32)


def heuristic(env: Battle, state: Any, key: Array) -> Array:
    """SMAC's `heuristic_ai`: attack the nearest enemy at any distance, and stay with it until it is dead."""
    del key
    return _heuristic_orders(env, state, state.world.target[env.roster_in(state).ally])[0]


def _no_targets(env: Battle) -> Array:
    return jnp.full(env.spec.n_agents, -1, jnp.int32)


def _attack_or_walk(env: Battle, state: Any, key: Array, targets: Array) -> tuple[Array, Array]:
    """SMAC's `heuristic_rest`: the same, but walk along the longer axis while the attack is not available.

    A walking unit has no target in the game: whom it is after is remembered here.
    """
    del key
    order, targets, dx, dy = _heuristic_orders(env, state, targets)
    vertical, horizontal = jnp.where(dy > 0, NORTH, SOUTH), jnp.where(dx > 0, EAST, WEST)
    walk = jnp.where(jnp.abs(dx) > jnp.abs(dy), horizontal, vertical)
    allowed = jnp.take_along_axis(env.avail(state), order[:, None], axis=1)[:, 0]
    return jnp.where((order >= env.first_target) & ~allowed, walk, order), targets


heuristic_rest = Remembering(_no_targets, _attack_or_walk)

PLAYERS: dict[str, Player] = {
    "nearest": nearest,
    "weakest": weakest,
    "kite": kite,
    "heuristic": heuristic,
    "heuristic_rest": heuristic_rest,
}


def _healers(env: Battle, state: Any) -> Array:
    r = env.roster_in(state)
    return r.healer[r.ally, 0]


def _attacks(env: Battle, state: Any) -> Array:
    """Availability of the actions that have a target, (N, targets)."""
    return env.avail(state)[:, env.first_target :]


def _distances(env: Battle, state: Any) -> tuple[Array, Array]:
    """Squared distances to the enemies, (N, enemies), and which of them are alive and can be hit."""
    r, w = env.roster_in(state), state.world
    d2 = (w.x[r.ally][:, None] - w.x[r.enemy]) ** 2 + (w.y[r.ally][:, None] - w.y[r.enemy]) ** 2
    hittable = r.armed[r.ally] & (r.hits_air[r.ally] | ~r.flying[r.enemy, 0])
    return d2, (w.life[r.enemy] > 0)[None] & (hittable | ~hittable.any(axis=1, keepdims=True))


def _heuristic_orders(env: Battle, state: Any, targets: Array) -> tuple[Array, Array, Array, Array]:
    """The heuristic's action for every agent, available or not, its target, and the way there.

    A fighter keeps its target until that is dead; a healer keeps its patient until that is dead or whole. Otherwise the
    nearest is taken, the one with the lowest number if two are equally near. A healer that finds nobody does nothing.
    """
    r, w = env.roster_in(state), state.world
    alive, x, y = w.life > 0, w.x, w.y
    d2 = (x[r.ally][:, None] - x[None]) ** 2 + (y[r.ally][:, None] - y[None]) ** 2
    healers = _healers(env, state)
    foes = np.arange(r.n) >= r.n_allies
    hurt = ~foes & ~r.healer[:, 0] & (w.life < r.life[:, 0])
    wanted = alive & jnp.where(healers[:, None], hurt, foes)
    kept = wanted & (np.arange(r.n) == targets[:, None])
    target = jnp.argmin(jnp.where(wanted, jnp.where(kept, -1.0, d2), jnp.inf), axis=1).astype(jnp.int32)
    order = env.first_target + target - jnp.where(healers, 0, r.n_allies)
    order = jnp.where(jnp.any(wanted, axis=1), order, jnp.where(healers, STOP, 0))
    order = jnp.where(alive[r.ally], order, 0).astype(jnp.int32)
    return order, target, x[target] - x[r.ally], y[target] - y[r.ally]


def _attack_or_approach(env: Battle, state: Any, score: Array) -> Array:
    """Attack the target of smallest score if that is available, else walk to it; healers heal the most hurt friend."""
    r, w, attacks = env.roster_in(state), state.world, _attacks(env, state)
    target = jnp.argmin(score, axis=1)
    mine = np.arange(attacks.shape[1]) == target[:, None]
    attack = jnp.any(mine & attacks, axis=1)
    approach = _walk(env, state, w.x[r.enemy][target] - w.x[r.ally], w.y[r.enemy][target] - w.y[r.ally])
    action = jnp.where(attack, env.first_target + target, approach)
    if r.healers:
        action = jnp.where(_healers(env, state), _heal(env, state, attacks), action)
    return jnp.where(w.life[r.ally] > 0, action, 0).astype(jnp.int32)


def _heal(env: Battle, state: Any, attacks: Array) -> Array:
    """Heal the friend with the smallest fraction of life in reach, or walk with the group."""
    r, w = env.roster_in(state), state.world
    fraction = w.life[r.ally] / r.life[r.ally, 0]
    targets = attacks.shape[1]
    slots = min(r.n_allies, targets)
    hurt = jnp.pad(jnp.where(fraction < 1, fraction, jnp.inf)[:slots], (0, targets - slots), constant_values=jnp.inf)
    score = jnp.where(attacks, hurt[None], jnp.inf)
    fighters = (w.life[r.ally] > 0) & ~_healers(env, state)
    count = jnp.maximum(jnp.sum(fighters), 1)
    mx, my = (jnp.sum(jnp.where(fighters, p[r.ally], 0.0)) / count for p in (w.x, w.y))
    follow = _walk(env, state, mx - w.x[r.ally], my - w.y[r.ally])
    return jnp.where(jnp.isfinite(jnp.min(score, axis=1)), env.first_target + jnp.argmin(score, axis=1), follow)


def _walk(env: Battle, state: Any, dx: Array, dy: Array) -> Array:
    """The available move with the largest component along (dx, dy); stop if none is.

    SMAC also lets units walk at the low borders, where they get no further: such moves are left out.
    """
    r, w = env.roster_in(state), state.world
    x, y = w.x[r.ally], w.y[r.ally]
    inside = jnp.stack([jnp.minimum(x + mx, y + my) >= 0 for mx, my in MOVES], axis=1)
    along = jnp.stack([mx * dx + my * dy for mx, my in MOVES], axis=1)
    along = jnp.where(env.avail(state)[:, 2 : 2 + len(MOVES)] & inside, along, -jnp.inf)
    return jnp.where(jnp.isfinite(jnp.max(along, axis=1)), 2 + jnp.argmax(along, axis=1), STOP)
