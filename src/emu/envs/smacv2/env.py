"""The SMACv2-compatible environment: draws, interface, reward and end of the battle, around SMAC's simulator.

Per copy: observation (N, O), state (S,), availability (N, A), action (N,). Actions: 0 no-op (the dead), 1 stop,
2-5 move north, south, east, west, with the cone 6-17 look around, then attack enemy i (medivacs: heal ally i). The
reward is the damage dealt plus 10 a kill plus 200 for winning, scaled so that winning against an average team returns
about 20.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.scripted import Player
from emu.envs.smac.behaviour import LOOKOUT_PERIOD
from emu.envs.smac.chance import Chance
from emu.envs.smac.roster import LAYERS, Roster, known_roster
from emu.envs.smac.simulate import FIRST_TARGET, SCRIPT_PERIOD
from emu.envs.smac.world import World
from emu.envs.smacv2 import SCENARIO_NAMES, battle, draws, features, sight, spawn
from emu.envs.smacv2.battle import Step
from emu.envs.smacv2.capabilities import Capabilities, expected_health, read, scenario
from emu.envs.smacv2.draws import Setup
from emu.envs.smacv2.features import LIMIT, Layout
from emu.envs.smacv2.options import Options
from emu.envs.smacv2.sight import by_kind
from emu.envs.smacv2.state import State
from emu.envs.spec import EnvSpec, Sketch
from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome

VERSION = "smacv2-sim-3"
PUBLISHED = Options()


@dataclasses.dataclass(frozen=True)
class Smacv2Env:
    """A scenario of SMACv2. Hashable and without mutable state; see `emu.envs.Env` for the methods' contract."""

    capabilities: Capabilities
    options: Options = PUBLISHED
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.capabilities.health is not None and not self.options.reward_only_positive:
            raise EnvError("Health levels need reward_only_positive=True, as in SMACv2.")

    @functools.cached_property
    def layout(self) -> Layout:
        return Layout(self.capabilities, self.options)

    @functools.cached_property
    def spec(self) -> EnvSpec:
        shape = self.layout
        return EnvSpec(
            name=f"smacv2/{self.name}",
            version=VERSION,
            n_agents=shape.n_allies,
            n_actions=shape.n_actions,
            obs_dim=shape.obs_dim,
            state_dim=shape.state_dim,
            episode_limit=LIMIT,
            unit_dim=shape.unit_dim,
            has_goal=True,
            return_range=self._return_range(),
        )

    def _return_range(self) -> tuple[float, float]:
        """Nominal: what regenerates can be shot away again, and a strong team of enemies is worth more."""
        o = self.options
        scale = o.reward_scale_rate / self.max_reward if o.reward_scale else 1.0
        if o.reward_sparse:
            return (-scale, scale)
        worst = float(self.capabilities.race.health.max() + o.reward_death_value) * self.layout.n_allies
        lowest = 0.0 if o.reward_only_positive else -o.reward_negative_scale * worst * scale
        return (lowest, self.max_reward * scale)

    @functools.cached_property
    def max_reward(self) -> float:
        """What killing an average team of enemies and winning is worth, before scaling."""
        o = self.options
        return expected_health(self.capabilities) + o.reward_death_value * self.layout.n_enemies + o.reward_win

    # Beginning

    def reset(self, key: Array) -> State:
        draw_key, begin_key = jax.random.split(key)
        return self.begin(draws.draw(self.capabilities, draw_key), begin_key)

    def begin(self, setup: Setup, key: Array) -> State:
        """The battle of a given draw: units are put on the ground, and the agents numbered."""
        shape, race = self.layout, self.capabilities.race
        shift_key, script_key, lookout_key, look_key = jax.random.split(key, 4)
        kinds = jnp.concatenate([setup.allies, setup.enemies])
        separation = np.array([unit.separation for unit in race.units], np.float32)
        layers = np.array([LAYERS.index(unit.layer) for unit in race.units])
        points = jnp.concatenate([setup.ally_places, setup.enemy_places]).astype(jnp.float32)
        shift = jax.random.uniform(shift_key, points.shape, minval=-1.0) * self.options.random_spawn
        places = spawn.pack(points, by_kind(separation, kinds), by_kind(layers, kinds), shift)
        allies, ally_places = spawn.number(setup.allies, places[shape.ally], race.rank)
        kinds = jnp.concatenate([allies, setup.enemies])
        places = jnp.concatenate([ally_places, places[shape.enemy]])
        script = jax.random.randint(script_key, (1,), 0, SCRIPT_PERIOD).astype(jnp.float32)
        lookout = jax.random.randint(lookout_key, kinds.shape, 0, LOOKOUT_PERIOD) * self.options.random_lookout
        n = shape.n_allies
        state = State(
            world=self._fresh_world(kinds, places, script, lookout.astype(jnp.float32)),
            kinds=kinds,
            last_action=jnp.full(n, -1, jnp.int32),
            step=jnp.int32(0),
            direction=jnp.zeros(n, jnp.int32) if self.options.conic_fov else None,
            attack=setup.attack,
            health=setup.health,
            mask=setup.mask,
            standing=battle.at_rest(n) if self._orders_stand else None,
            tags=sight.no_tags(n, shape.n_enemies) if self.options.tags else None,
        )
        return self._look(state, look_key)

    def _fresh_world(self, kinds: Array, places: Array, script: Array, lookout: Array) -> World:
        units = self.capabilities.race.units
        zero, nobody = jnp.zeros(kinds.shape), jnp.full(kinds.shape, -1, jnp.int32)
        life, shield = (
            by_kind(np.array([getattr(u, name) for u in units], np.float32), kinds) for name in ("life", "shield")
        )
        energy = by_kind(np.array([u.heal.energy_start if u.heal else 0.0 for u in units], np.float32), kinds)
        return World(
            x=places[:, 0], y=places[:, 1], life=life, shield=shield, cooldown=zero, windup=zero, backswing=zero,
            target=nobody, flight=zero, aim=nobody, unhurt=zero, attacker=nobody, energy=energy,
            healing=zero.astype(bool), bursting=zero.astype(bool), vx=zero, vy=zero, lookout=lookout, side=zero,
            goal=jnp.zeros(2), script=script,
        )  # fmt: skip

    def _look(self, state: State, key: Array) -> State:
        """Note who sees which enemy now, where that matters."""
        o, shape = self.options, self.layout
        if state.tags is None:
            return state
        alive = state.world.life > 0
        tags = sight.forget(state.tags, alive[shape.ally], alive[shape.enemy])
        near = features.near_enemies(shape, state)
        return state._replace(tags=sight.tag(tags, near, alive[shape.ally], o.prob_obs_enemy, o.enemy_row_bug, key))

    # Steps

    @property
    def _orders_stand(self) -> bool:
        """Whether a step may send no order to an agent, which then goes on with the last one."""
        o = self.options
        return not o.action_mask or o.conic_fov or self.capabilities.attack is not None

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Outcome]:
        shape, c = self.layout, self.capabilities
        jitter_key, attack_key, look_key = jax.random.split(key, 3)
        jitter = Chance(weapons=self.options.random_weapons).jitter(len(state.kinds), jitter_key)
        action = action.astype(jnp.int32)
        turns = (action >= FIRST_TARGET) & (action < shape.first_target)
        step = Step(
            kinds=state.kinds,
            action=jnp.where(turns, 1, jnp.where(action < FIRST_TARGET, action, action - shape.options.directions)),
            jitter=jitter,
            sent=self._sent(state, action, attack_key) if self._orders_stand else None,
            standing=state.standing,
            doomed=self._doomed(state) if c.health is not None else None,
        )
        world, standing = battle.advance(c, self._orders_stand)(state.world, step)
        direction = state.direction
        if shape.options.conic_fov:
            direction = jnp.where(turns, action - FIRST_TARGET, direction)
        after = state._replace(
            world=world, last_action=action, step=state.step + 1, direction=direction, standing=standing
        )
        return self._look(after, look_key), self._judge(state, after)

    def _sent(self, state: State, action: Array, key: Array) -> Array:
        """Whether an order goes out for each agent: not for turns, targets out of reach, or unlucky attacks."""
        shape = self.layout
        target = action - shape.first_target
        chosen = target[:, None] == np.arange(shape.n_targets)
        attacks = target >= 0
        reached = jnp.any(chosen & features.in_reach(shape, state), axis=1)
        if self.capabilities.attack is not None:
            reached = reached & (jax.random.uniform(key, target.shape) <= state.attack)
        return (action > 0) & jnp.where(attacks, reached, action < FIRST_TARGET)

    def _doomed(self, state: State) -> Array:
        """Who is below its health level, as last observed."""
        rows = self.layout.ally
        life = by_kind(self.layout.table["life"], state.kinds[rows])
        return state.world.life[rows] / life < state.health

    # Reward and end

    def _judge(self, before: State, after: State) -> Outcome:
        lost, won, draw = self.result(after)
        late = after.step >= LIMIT
        over: Array = lost | won | draw
        timeout = late & ~over
        truncates = self.options.timeout_truncates
        reward = self._reward(before, after, lost, won)
        return Outcome(
            reward.astype(jnp.float32),
            over if truncates else over | late,
            timeout if truncates else jnp.zeros_like(timeout),
            won,
        )

    def result(self, state: State) -> tuple[Array, Array, Array]:
        """(lost, won, draw), in SMACv2's order: a terran side of medivacs only has lost."""
        shape = self.layout
        alive = state.world.life > 0
        allies, enemies = jnp.any(alive[shape.ally]), jnp.any(alive[shape.enemy])
        lost, won = ~allies & enemies, allies & ~enemies
        if self.capabilities.race.heals:
            fights = alive & ~features.healers(shape, state)
            lost = lost | ~jnp.any(fights[shape.ally])
            won = won | ~jnp.any(fights[shape.enemy])
        won = won & ~lost
        return lost, won, ~allies & ~enemies & ~lost

    def _reward(self, before: State, after: State, lost: Array, won: Array) -> Array:
        o, shape = self.options, self.layout
        if o.reward_sparse:
            reward = jnp.where(won, 1.0, jnp.where(lost, -1.0, 0.0))
        else:
            reward = self._losses(before.world, after.world, shape.enemy)
            if o.reward_only_positive:
                reward = jnp.maximum(reward, 0.0)
            else:
                reward = reward - o.reward_negative_scale * self._losses(before.world, after.world, shape.ally)
            reward = reward + jnp.where(won, o.reward_win, jnp.where(lost, o.reward_defeat, 0.0))
        return reward * (o.reward_scale_rate / self._full_reward(after)) if o.reward_scale else reward

    def _full_reward(self, state: State) -> Array | float:
        o, shape = self.options, self.layout
        if not o.scale_by_own_team:
            return self.max_reward
        health = jnp.sum(by_kind(self.capabilities.race.health, state.kinds[shape.enemy]))
        return health + o.reward_death_value * shape.n_enemies + o.reward_win

    def _losses(self, before: World, after: World, rows: slice) -> Array:
        """Health and shield a side lost between two observations, plus the value of its deaths."""
        lost = before.life[rows] + before.shield[rows] - after.life[rows] - after.shield[rows]
        died = (before.life[rows] > 0) & (after.life[rows] <= 0)
        return jnp.sum(lost) + self.options.reward_death_value * jnp.sum(died)

    # What is seen

    def observe(self, state: State) -> Array:
        return features.observe(self.layout, state, self.avail(state))

    def avail(self, state: State) -> Array:
        return features.available(self.layout, state)

    def state(self, state: State) -> Array:
        return features.global_state(self.layout, state)

    # Scripted players and pictures

    @property
    def first_target(self) -> int:
        return self.layout.first_target

    def roster_in(self, state: State) -> Roster:
        """Who fights in a battle, inside a compiled program."""
        return battle.roster_in(self.capabilities, state.kinds[:, None])

    @property
    def scripted(self) -> dict[str, Player]:
        """Players that need no training, beside `random`."""
        from emu.envs.smac.scripted import PLAYERS

        return PLAYERS

    def final_counts(self, state: State) -> dict[str, Array]:
        """What a summary tells of the end of a battle."""
        alive = state.world.life > 0
        return {"allies_left": alive[: self.spec.n_agents].sum(), "enemies_left": alive[self.spec.n_agents :].sum()}

    def roster_of(self, state: State) -> Roster:
        """Who fights in a battle, as figures that do not change any more; for a state on the host."""
        units = tuple(self.capabilities.race.units[k] for k in np.asarray(state.kinds).tolist())
        spec = dataclasses.replace(battle.field(self.layout.n_allies, self.layout.n_enemies), name=self.name)
        return known_roster(spec, units, self.layout.n_allies)

    def draw(self, state: State) -> Any:
        from emu.envs.smac.draw import draw  # Pillow is needed only here

        return draw(self, state)

    def frames(self, states: Iterable[State]) -> Any:
        """Pictures of a recorded battle, several a step."""
        from emu.envs.smac.draw import frames

        return frames(self, states)

    def sketch(self, states: np.ndarray) -> Sketch:
        """Battles for a browser, from state vectors alone."""
        from emu.envs.smacv2.sketch import sketch

        return sketch(self.layout, states)


def make(
    scenario: str, capability_config: Mapping[str, Any] | None = None, map_name: str | None = None, **options: Any
) -> Smacv2Env:
    """Build `smacv2/<scenario>`; `custom` takes a capability_config in SMACv2's words. Unknown options are refused."""
    known = {field.name for field in dataclasses.fields(Options)}
    for name in options:
        if name not in known:
            raise EnvError(f"smacv2/{scenario} has no option '{name}'. {did_you_mean(name, known)}")
    if scenario == "custom":
        if capability_config is None:
            raise EnvError("smacv2/custom needs a capability_config; docs/envs/smacv2.md shows one.")
        return Smacv2Env(read(capability_config, map_name), Options(**options))
    if capability_config is not None:
        raise EnvError(f"smacv2/{scenario} has its own capability_config. Use smacv2/custom for another one.")
    return Smacv2Env(find(scenario), Options(**options), scenario)


def find(name: str) -> Capabilities:
    """A published scenario by name."""
    if name not in SCENARIO_NAMES:
        raise EnvError(f"No SMACv2 scenario is called '{name}'. {did_you_mean(name, SCENARIO_NAMES)}")
    return scenario(name)
