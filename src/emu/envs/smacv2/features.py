"""SMACv2's vectors: availability of actions, observations, global state. Quirks included, on purpose.

Single environment: world fields are (N,). For a medivac the "shootable" flag of enemy i says whether ally i can be
healed; own position enters the observation as x / 32 and the state as (x - 16) / 32.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from emu.envs.smac.simulate import FIRST_TARGET as FIRST_TURN
from emu.envs.smac.simulate import MOVES
from emu.envs.smac.terrain import SIZE
from emu.envs.smacv2 import sight
from emu.envs.smacv2.capabilities import Capabilities
from emu.envs.smacv2.options import Options
from emu.envs.smacv2.sight import by_kind
from emu.envs.smacv2.state import State
from emu.types import Array

LIMIT = 200


@dataclasses.dataclass(frozen=True)
class Layout:
    """Widths and static tables of the vectors."""

    capabilities: Capabilities
    options: Options

    @property
    def n_allies(self) -> int:
        return self.capabilities.n_units

    @property
    def n_enemies(self) -> int:
        return self.capabilities.n_enemies

    @property
    def ally(self) -> slice:
        return slice(0, self.n_allies)

    @property
    def enemy(self) -> slice:
        return slice(self.n_allies, self.n_allies + self.n_enemies)

    @property
    def n_targets(self) -> int:
        return max(self.n_allies, self.n_enemies) if self.capabilities.race.heals else self.n_enemies

    @property
    def first_target(self) -> int:
        return FIRST_TURN + self.options.directions

    @property
    def n_actions(self) -> int:
        return self.first_target + self.n_targets

    @property
    def type_bits(self) -> int:
        return len(self.capabilities.race.types)

    @property
    def shields(self) -> int:
        return int(self.capabilities.race.shields)

    @property
    def capability_dim(self) -> int:
        """What is known of an agent's capabilities: attack probability, health level, type."""
        return (self.capabilities.attack is not None) + (self.capabilities.health is not None) + self.type_bits

    @property
    def unit_dim(self) -> int:
        return 4 + self.shields + 2 * self.options.conic_fov + self.capability_dim

    @property
    def enemy_dim(self) -> int:
        """Of an enemy in the state."""
        return 3 + self.shields + self.type_bits

    @property
    def state_dim(self) -> int:
        n = self.n_allies * self.unit_dim + self.n_enemies * self.enemy_dim
        return n + self.n_allies * self.n_actions * self.options.state_last_action + self.options.state_timestep_number

    @property
    def obs_dim(self) -> int:
        o, health = self.options, 1 + self.shields
        if not o.obs_starcraft:
            return 1
        enemy = 4 + self.type_bits + health * o.obs_all_health
        ally = 4 + self.capability_dim + health * o.obs_all_health + self.n_actions * o.obs_last_action
        own = self.capability_dim + health * o.obs_own_health + 2 * o.obs_own_pos + 2 * o.conic_fov
        return 4 + self.n_enemies * enemy + (self.n_allies - 1) * ally + own + o.obs_timestep_number

    @functools.cached_property
    def sight(self) -> np.ndarray:
        return self.capabilities.race.sight(self.options.use_unit_ranges)

    @functools.cached_property
    def reach(self) -> np.ndarray:
        return self.capabilities.race.reach(self.options.use_unit_ranges, self.options.min_attack_range)

    @functools.cached_property
    def table(self) -> dict[str, np.ndarray]:
        """Figures by type."""
        units = self.capabilities.race.units
        return {
            "life": np.array([u.life for u in units], np.float32),
            "shield": np.array([max(u.shield, 1.0) for u in units], np.float32),
            "divisor": np.array([u.cooldown_divisor for u in units], np.float32),
            "healer": np.array([u.heal is not None for u in units]),
        }


def healers(shape: Layout, state: State) -> Array:
    """Which units are medivacs, (N,) bool."""
    return by_kind(shape.table["healer"], state.kinds)


# Actions


def in_reach(shape: Layout, state: State) -> Array:
    """Targets that an order would be sent for, (n_allies, n_targets) bool: alive, near enough and in the cone."""
    return aims(shape, state) & _near(shape, state, shape.reach)


def aims(shape: Layout, state: State) -> Array:
    """Targets by their kind, (n_allies, n_targets): living enemies; for a medivac, living allies but medivacs."""
    alive = state.world.life > 0
    enemies = jnp.broadcast_to(alive[shape.enemy][None], (shape.n_allies, shape.n_enemies))
    if not shape.capabilities.race.heals:
        return alive[shape.ally][:, None] & enemies
    heals = healers(shape, state)[shape.ally]
    patients = jnp.broadcast_to((alive[shape.ally] & ~heals)[None], (shape.n_allies, shape.n_allies))
    return alive[shape.ally][:, None] & jnp.where(heals[:, None], _slots(shape, patients), _slots(shape, enemies))


def _slots(shape: Layout, values: Array) -> Array:
    """Pad the last axis to the number of targets."""
    return jnp.pad(values, ((0, 0), (0, shape.n_targets - values.shape[1])))


def _near(shape: Layout, state: State, reach: np.ndarray) -> Array:
    """Whether targets are within the reach of an agent's type, and in its cone."""

    def within(others: slice) -> Array:
        dx, dy, distance = sight.offsets(state.world, shape.ally, others)
        near = distance <= by_kind(reach, state.kinds[shape.ally])[:, None]
        if shape.options.conic_fov:
            near = near & sight.in_cone(state.direction, shape.options.directions, dx, dy)
        return _slots(shape, near)

    if not shape.capabilities.race.heals:
        return within(shape.enemy)
    heals = healers(shape, state)[shape.ally]
    return jnp.where(heals[:, None], within(shape.ally), within(shape.enemy))


def available(shape: Layout, state: State) -> Array:
    """(n_allies, A) bool."""
    return _join_actions(shape, state, in_reach(shape, state) if shape.options.action_mask else aims(shape, state))


def _join_actions(shape: Layout, state: State, targets: Array) -> Array:
    w, ally = state.world, shape.ally
    alive = (w.life[ally] > 0)[:, None]
    turns = jnp.broadcast_to(alive, (shape.n_allies, shape.options.directions))
    moves = jnp.stack([_open(w.x[ally] + mx, w.y[ally] + my) for mx, my in MOVES], axis=1)
    return jnp.concatenate([~alive, alive, alive & moves, turns, targets], axis=1)


def _open(x: Array, y: Array) -> Array:
    """Whether the cells are on the map. Places are cut towards zero, so the cell of -0.5 is 0, as SMACv2 has it."""
    cx, cy = jnp.trunc(x), jnp.trunc(y)
    return (cx >= 0) & (cx < SIZE) & (cy >= 0) & (cy < SIZE)


# Observations


def near_enemies(shape: Layout, state: State) -> Array:
    """Enemies within the agents' sight, dead or alive, (n_allies, n_enemies)."""
    return _in_sight(shape, state, *sight.offsets(state.world, shape.ally, shape.enemy))


def _in_sight(shape: Layout, state: State, dx: Array, dy: Array, distance: Array) -> Array:
    s = by_kind(shape.sight, state.kinds[shape.ally])[:, None]
    if shape.options.conic_fov:
        return (distance <= s) & sight.in_cone(state.direction, shape.options.directions, dx, dy)
    return distance < s


def observe(shape: Layout, state: State, avail: Array) -> Array:
    """(n_allies, O) float32: moves, enemies, other allies, own."""
    o, n = shape.options, shape.n_allies
    time = jnp.full((n, 1), state.step / LIMIT, jnp.float32)
    if not o.obs_starcraft:
        return time
    alive = (state.world.life[shape.ally] > 0)[:, None]
    moves = avail[:, 2:FIRST_TURN].astype(jnp.float32)
    parts = [moves, _enemies(shape, state, avail).reshape(n, -1), _allies(shape, state).reshape(n, -1)]
    seen = jnp.where(alive, jnp.concatenate([*parts, _own(shape, state)], axis=1), 0.0)
    return jnp.concatenate([seen, time], axis=1) if o.obs_timestep_number else seen


def _enemies(shape: Layout, state: State, avail: Array) -> Array:
    """(n_allies, n_enemies, F)."""
    o = shape.options
    shootable = avail[:, shape.first_target :] if o.action_mask else in_reach(shape, state)
    mask = ~state.mask if shape.capabilities.mask_probability is not None else True
    health = _health(shape, state, shape.enemy) if o.obs_all_health else []
    details = [*health, *_type_bits(shape, state, shape.enemy)]
    columns = [shootable[:, : shape.n_enemies].astype(jnp.float32), *_place(shape, state, shape.enemy)]
    columns += [jnp.where(mask, jnp.broadcast_to(d, columns[0].shape), 0.0) for d in details]
    shown = _visible(shape, state, shape.enemy)
    if o.tags:
        shown = shown & state.tags.shown
    return _where_shown(shown, columns)


def _allies(shape: Layout, state: State) -> Array:
    """(n_allies, n_allies - 1, F)."""
    o, c = shape.options, shape.capabilities
    n, rows = shape.n_allies, shape.ally
    health = _health(shape, state, rows, adjusted=True) if o.obs_all_health else []
    if health and c.health is not None and not c.health.observe:
        health[0] = jnp.zeros_like(health[0])
    details = [*health]
    if c.attack is not None:
        details.append(state.attack * c.attack.observe)
    if c.health is not None:
        details.append(state.health * c.health.observe)
    details += [bit * c.teams.observe for bit in _type_bits(shape, state, rows)]
    columns = [jnp.ones((n, n)), *_place(shape, state, rows), *(jnp.broadcast_to(d, (n, n)) for d in details)]
    if o.obs_last_action:
        columns += list(jnp.broadcast_to(last_actions(shape, state).T[:, None], (shape.n_actions, n, n)))
    return _others(_where_shown(_visible(shape, state, rows), columns))


def _own(shape: Layout, state: State) -> Array:
    o, rows = shape.options, shape.ally
    columns = _health(shape, state, rows, adjusted=True) if o.obs_own_health else []
    columns += _capabilities(shape, state)
    if o.obs_own_pos:
        columns += [state.world.x[rows] / SIZE, state.world.y[rows] / SIZE]
    if o.conic_fov:
        columns += list(looks(shape, state).T)
    return jnp.stack([*columns, *_type_bits(shape, state, rows)], axis=1)


def _capabilities(shape: Layout, state: State) -> list[Array]:
    c = shape.capabilities
    return [values for values, has in ((state.attack, c.attack), (state.health, c.health)) if has is not None]


def capabilities(shape: Layout, state: State) -> Array:
    """(n_allies, C): attack probability, health level, one-hot type."""
    return jnp.stack([*_capabilities(shape, state), *_type_bits(shape, state, shape.ally)], axis=1)


def looks(shape: Layout, state: State) -> Array:
    """Where the agents look, (n_allies, 2)."""
    return jnp.stack([by_kind(part, state.direction) for part in sight.directions(shape.options.directions).T], axis=1)


def _where_shown(shown: Array, columns: list[Array]) -> Array:
    return jnp.stack([jnp.where(shown, column, 0.0) for column in columns], axis=-1)


def _visible(shape: Layout, state: State, others: slice) -> Array:
    alive = state.world.life > 0
    both = alive[shape.ally][:, None] & alive[others][None]
    if shape.options.fully_observable:
        return both
    return both & _in_sight(shape, state, *sight.offsets(state.world, shape.ally, others))


def _place(shape: Layout, state: State, others: slice) -> list[Array]:
    """Distance and direction, relative to the observer's sight."""
    dx, dy, distance = sight.offsets(state.world, shape.ally, others)
    scale = 1 / by_kind(shape.sight, state.kinds[shape.ally])[:, None]
    return [distance * scale, dx * scale, dy * scale]


def _health(shape: Layout, state: State, rows: slice, adjusted: bool = False) -> list[Array]:
    """Relative life and, for protoss, shield; of allies with health levels, what they have above it."""
    kinds, w = state.kinds[rows], state.world
    life = w.life[rows] / by_kind(shape.table["life"], kinds)
    if adjusted and shape.capabilities.health is not None:
        life = (life - state.health) / (1 - state.health)
    return [life, w.shield[rows] / by_kind(shape.table["shield"], kinds)] if shape.shields else [life]


def _type_bits(shape: Layout, state: State, rows: slice) -> list[Array]:
    return [(state.kinds[rows] == k).astype(jnp.float32) for k in range(shape.type_bits)]


def _others(allies: Array) -> Array:
    """(n, n, F) -> (n, n-1, F): each agent's row without itself, without a gather."""
    n = allies.shape[0]
    before = np.arange(n - 1)[None] < np.arange(n)[:, None]
    return jnp.where(before[..., None], allies[:, : n - 1], allies[:, 1:])


# State


def last_actions(shape: Layout, state: State) -> Array:
    """One-hot, (n_allies, A); all zeros before the first step."""
    return (state.last_action[:, None] == np.arange(shape.n_actions)).astype(jnp.float32)


def global_state(shape: Layout, state: State) -> Array:
    """(S,) float32: allies, enemies, last actions."""
    w, ally, enemy = state.world, shape.ally, shape.enemy
    x, y = ((p - SIZE / 2) / SIZE for p in (w.x, w.y))
    reloading = jnp.where(w.windup[ally] > 0, 0.0, jnp.maximum(w.cooldown[ally], 0.0))
    charge = jnp.where(healers(shape, state)[ally], w.energy[ally], reloading)
    charge = charge / by_kind(shape.table["divisor"], state.kinds[ally])
    life, *shield = _health(shape, state, ally, adjusted=True)
    direction = list(looks(shape, state).T) if shape.options.conic_fov else []
    bits = _type_bits(shape, state, ally)
    columns = [life, charge, x[ally], y[ally], *shield, *_capabilities(shape, state), *direction, *bits]
    allies = _alive_rows(w.life[ally], columns)
    life, *shield = _health(shape, state, enemy)
    enemies = _alive_rows(w.life[enemy], [life, x[enemy], y[enemy], *shield, *_type_bits(shape, state, enemy)])
    parts = [allies, enemies]
    if shape.options.state_last_action:
        parts.append(last_actions(shape, state).ravel())
    if shape.options.state_timestep_number:
        parts.append(jnp.asarray(state.step / LIMIT, jnp.float32)[None])
    return jnp.concatenate(parts)


def _alive_rows(life: Array, columns: list[Array]) -> Array:
    return jnp.stack([jnp.where(life > 0, column, 0.0) for column in columns], axis=1).ravel()
