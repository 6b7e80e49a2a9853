"""SMAC's vectors: availability of actions, observations, global state. Quirks included, on purpose.

Single environment: world fields are (N,). Type bits and cooldown divisors follow SMAC's Python code, not the game's
data, the enemies' order EMU's copy of it. For a healer the "attackable" flag of enemy i says whether ally i can be
healed.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from emu.envs.smac import terrain
from emu.envs.smac.roster import Roster
from emu.envs.smac.simulate import FIRST_TARGET, MOVES
from emu.envs.smac.world import World
from emu.types import Array

SIGHT = 9.0
SHOOT = 6.0


@dataclasses.dataclass(frozen=True)
class Options:
    """SMAC's switches that change the vectors."""

    state_last_action: bool = True
    state_timestep_number: bool = False
    obs_all_health: bool = True
    obs_own_health: bool = True
    obs_last_action: bool = False
    obs_timestep_number: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Widths of the vectors and the static type bits of both sides."""

    n_allies: int
    n_enemies: int
    n_actions: int
    type_bits: int
    ally_shields: bool
    enemy_shields: bool
    options: Options

    @property
    def unit_dim(self) -> int:
        return 4 + self.ally_shields + self.type_bits

    @property
    def state_dim(self) -> int:
        n = self.n_allies * self.unit_dim + self.n_enemies * (3 + self.enemy_shields + self.type_bits)
        n += self.n_allies * self.n_actions * self.options.state_last_action
        return n + self.options.state_timestep_number

    @property
    def obs_dim(self) -> int:
        o = self.options
        enemy = 4 + self.type_bits + (1 + self.enemy_shields) * o.obs_all_health
        ally = 4 + self.type_bits + (1 + self.ally_shields) * o.obs_all_health + self.n_actions * o.obs_last_action
        own = self.type_bits + (1 + self.ally_shields) * o.obs_own_health
        return 4 + self.n_enemies * enemy + (self.n_allies - 1) * ally + own + o.obs_timestep_number


def layout(r: Roster, options: Options) -> Layout:
    allies, enemies = r.units[r.ally], r.units[r.enemy]
    kinds = {unit.name for unit in r.units}
    bits = len({unit.name for unit in allies} | {unit.name for unit in enemies})
    mixed = len({u.name for u in allies}) > 1 or len({u.name for u in enemies}) > 1
    return Layout(
        n_allies=r.n_allies,
        n_enemies=r.n_enemies,
        n_actions=FIRST_TARGET + r.n_enemies,
        type_bits=bits if mixed and kinds else 0,
        ally_shields=any(u.shield for u in allies),
        enemy_shields=any(u.shield for u in enemies),
        options=options,
    )


@functools.cache
def type_bits(r: Roster, count: int) -> tuple[np.ndarray, np.ndarray]:
    """One-hot types of both sides. On stalker-zealot maps SMAC numbers the enemies' types the other way round."""

    def one_hot(units, kinds: list[str]) -> np.ndarray:
        return np.array([[float(u.name == k) for k in kinds] for u in units], np.float32)

    if count == 0:
        return np.zeros((r.n_allies, 0), np.float32), np.zeros((r.n_enemies, 0), np.float32)
    kinds = [u.name for u in sorted({u for u in r.units}, key=lambda u: u.order)]
    enemy_kinds = ["zealot", "stalker"] if kinds == ["stalker", "zealot"] else kinds
    return one_hot(r.units[r.ally], kinds), one_hot(r.units[r.enemy], enemy_kinds)


def available(r: Roster, w: World) -> Array:
    """(n_allies, A) bool."""
    alive = w.life > 0
    ours, x, y = alive[r.ally], w.x[r.ally], w.y[r.ally]
    moves = [ours & _open(r, x + mx, y + my) for mx, my in MOVES]
    distance2 = _distance2(w, r.ally, r.enemy)
    targets = ours[:, None] & alive[r.enemy][None] & (distance2 <= SHOOT**2)
    for i in (i for i in r.healers if i < r.n_allies):
        targets = targets.at[i].set(_healable(r, w, alive, i))
    return jnp.concatenate([~ours[:, None], ours[:, None], jnp.stack(moves, axis=1), targets], axis=1)


def _open(r: Roster, x: Array, y: Array) -> Array:
    """Whether the cells are inside the map and pathable (the centre of the cell decides)."""
    cx, cy = jnp.trunc(x) + 0.5, jnp.trunc(y) + 0.5  # SMAC's int(): cells -1 to 0 count as 0
    inside = (cx > 0) & (cx < terrain.SIZE) & (cy > 0) & (cy < terrain.SIZE)
    return inside & terrain.walkable(r.terrain, cx, cy)


def _healable(r: Roster, w: World, alive: Array, i: int) -> Array:
    """Allies in reach of healer `i`, in the slots of the enemies' numbers; healers are not healed."""
    slots = min(r.n_allies, r.n_enemies)
    near = (w.x[:slots] - w.x[i]) ** 2 + (w.y[:slots] - w.y[i]) ** 2 <= SHOOT**2
    mendable = np.array([not u.heal for u in r.units[:slots]])
    found = alive[i] & alive[:slots] & near & mendable
    return jnp.pad(found, (0, r.n_enemies - slots))


def _distance2(w: World, rows: slice, columns: slice) -> Array:
    return (w.x[rows][:, None] - w.x[columns][None]) ** 2 + (w.y[rows][:, None] - w.y[columns][None]) ** 2


def observe(r: Roster, w: World, shape: Layout, avail: Array, last_action: Array, step: Array, limit: int) -> Array:
    """(n_allies, O) float32: moves, enemies, other allies, own."""
    n, o = r.n_allies, shape.options
    alive = w.life > 0
    ours = alive[r.ally]
    ally_types, enemy_types = type_bits(r, shape.type_bits)
    attackable = avail[:, FIRST_TARGET:].astype(jnp.float32)
    enemies = _seen(r, w, alive, r.enemy, attackable, enemy_types, shape.enemy_shields, o.obs_all_health)
    visible = jnp.ones((n, n), jnp.float32)
    allies = _seen(r, w, alive, r.ally, visible, ally_types, shape.ally_shields, o.obs_all_health)
    if o.obs_last_action:
        taken = last_actions(last_action, shape.n_actions)
        known = allies[..., :1] > 0
        allies = jnp.concatenate([allies, jnp.where(known, taken[None], 0.0)], axis=-1)
    parts = [
        avail[:, 2:FIRST_TARGET].astype(jnp.float32),
        enemies.reshape(n, -1),
        _others(allies).reshape(n, -1),
    ]
    if o.obs_own_health:
        parts += [health for health in _health(r, w, r.ally, shape.ally_shields)]
    parts.append(jnp.asarray(ally_types))
    seen = jnp.where(ours[:, None], jnp.concatenate(parts, axis=1), 0.0)
    if not o.obs_timestep_number:
        return seen
    return jnp.concatenate([seen, jnp.full((n, 1), step / limit, jnp.float32)], axis=1)  # the dead see it too


def _others(allies: Array) -> Array:
    """(n, n, F) -> (n, n-1, F): each agent's row without itself, without a gather."""
    n = allies.shape[0]
    before = np.arange(n - 1)[None] < np.arange(n)[:, None]
    return jnp.where(before[..., None], allies[:, : n - 1], allies[:, 1:])


def _health(r: Roster, w: World, rows: slice, shields: bool) -> list[Array]:
    """Columns of relative life and, on maps where the side has any, shield."""
    columns = [(w.life[rows] / r.life[rows, 0])[:, None]]
    if shields:
        columns.append((w.shield[rows] / np.maximum(r.shield[rows, 0], 1.0))[:, None])
    return columns


def _seen(r: Roster, w: World, alive: Array, others: slice, flag: Array, types, shields: bool, health: bool) -> Array:
    """Features of other units for each agent, (n_allies, others, F); zeros beyond sight."""
    dx = w.x[others][None] - w.x[r.ally][:, None]
    dy = w.y[others][None] - w.y[r.ally][:, None]
    d2 = dx * dx + dy * dy
    seen = alive[r.ally][:, None] & alive[others][None] & (d2 < SIGHT**2)
    features = [flag, jnp.sqrt(d2) / SIGHT, dx / SIGHT, dy / SIGHT]
    if health:
        features += [jnp.broadcast_to(h[:, 0], d2.shape) for h in _health(r, w, others, shields)]
    features += [jnp.broadcast_to(bit, d2.shape) for bit in types.T]
    return jnp.stack([jnp.where(seen, f, 0.0) for f in features], axis=-1)


def last_actions(last_action: Array, n_actions: int) -> Array:
    """One-hot, (n_allies, A); all zeros before the first step."""
    return (last_action[:, None] == np.arange(n_actions)).astype(jnp.float32)


def reloading(r: Roster, w: World) -> Array:
    """Loops until the allies' weapons are ready, as the game reports them: from the shot on, not during wind-up."""
    return jnp.where(w.windup[r.ally] > 0, 0.0, jnp.maximum(w.cooldown[r.ally], 0.0))


def global_state(r: Roster, w: World, shape: Layout, last_action: Array, step: Array, limit: int) -> Array:
    """(S,) float32: allies, enemies, last actions."""
    alive = (w.life > 0)[:, None]
    ally_types, enemy_types = type_bits(r, shape.type_bits)
    centre = terrain.SIZE / 2
    x, y = ((p[:, None] - centre) / terrain.SIZE for p in (w.x, w.y))
    divisors = np.array([[u.cooldown_divisor] for u in r.units[r.ally]], np.float32)
    charge = jnp.where(r.healer[r.ally], w.energy[r.ally][:, None], reloading(r, w)[:, None]) / divisors
    life, *shield = _health(r, w, r.ally, shape.ally_shields)
    allies = jnp.concatenate([life, charge, x[r.ally], y[r.ally], *shield, ally_types], axis=1)
    life, *shield = _health(r, w, r.enemy, shape.enemy_shields)
    enemies = jnp.concatenate([life, x[r.enemy], y[r.enemy], *shield, enemy_types], axis=1)
    parts = [jnp.where(alive[r.ally], allies, 0.0).ravel(), jnp.where(alive[r.enemy], enemies, 0.0).ravel()]
    if shape.options.state_last_action:
        parts.append(last_actions(last_action, shape.n_actions).ravel())
    if shape.options.state_timestep_number:
        parts.append(jnp.asarray(step / limit, jnp.float32)[None])
    return jnp.concatenate(parts)
