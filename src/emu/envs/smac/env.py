"""The SMAC-compatible environment: interface, reward and end of the battle, around the simulator.

Per copy: observation (N, O), state (S,), availability (N, A), action (N,). Actions: 0 no-op (the dead), 1 stop,
2-5 move north, south, east, west, 6+i attack enemy i (healers: heal ally i). The reward is the damage dealt plus 10 a
kill plus 200 for winning, scaled so that the last enemy's death brings the return near 20.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from emu.envs.scripted import Player
from emu.envs.smac import features
from emu.envs.smac.chance import Chance
from emu.envs.smac.features import Layout, Options
from emu.envs.smac.maps import MAPS, MapSpec
from emu.envs.smac.roster import Roster, roster
from emu.envs.smac.simulate import FIRST_TARGET, advance, fresh_world
from emu.envs.smac.world import World
from emu.envs.spec import EnvSpec, Sketch
from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome

VERSION = "smac-sim-6"


class State(NamedTuple):
    """One battle in progress."""

    world: World
    last_action: Array  # (n_allies,) int32, -1 before the first step
    step: Array  # () int32


@dataclasses.dataclass(frozen=True)
class SmacEnv:
    """A battle of SMAC. Hashable and without mutable state; see `emu.envs.Env` for the methods' contract."""

    map: MapSpec | str
    state_last_action: bool = True
    state_timestep_number: bool = False
    obs_all_health: bool = True
    obs_own_health: bool = True
    obs_last_action: bool = False
    obs_timestep_number: bool = False
    reward_sparse: bool = False  # +1 for a win, -1 for a defeat, nothing else; scaled like the rest, as in SMAC
    reward_only_positive: bool = True
    reward_negative_scale: float = 0.5  # of allied losses, where reward_only_positive is off
    reward_death_value: float = 10.0
    reward_win: float = 200.0
    reward_defeat: float = 0.0
    reward_scale: float = 20.0  # 0: unscaled
    timeout_truncates: bool = False  # SMAC ends an episode at its limit as a defeat; True reports it as truncated
    random_spawn: float = Chance.spawn  # sources of chance, each with a switch for study; see `Chance`
    random_start: bool = True
    random_lookout: bool = True
    random_weapons: bool = True

    def __post_init__(self) -> None:
        if self.obs_all_health and not self.obs_own_health:
            object.__setattr__(self, "obs_own_health", True)  # as SMAC does
        if isinstance(self.map, str):
            if self.map not in MAPS:
                raise EnvError(f"No SMAC map is called '{self.map}'. {did_you_mean(self.map, MAPS)}")
            object.__setattr__(self, "map", MAPS[self.map])

    @property
    def battle(self) -> MapSpec:
        assert isinstance(self.map, MapSpec)
        return self.map

    @property
    def chance(self) -> Chance:
        return Chance(self.random_spawn, self.random_start, self.random_lookout, self.random_weapons)

    @property
    def roster(self) -> Roster:
        return roster(self.battle)

    @functools.cached_property
    def layout(self) -> Layout:
        names = [field.name for field in dataclasses.fields(Options)]
        return features.layout(self.roster, Options(**{name: getattr(self, name) for name in names}))

    @functools.cached_property
    def spec(self) -> EnvSpec:
        shape = self.layout
        return EnvSpec(
            name=f"smac/{self.battle.name}",
            version=VERSION,
            n_agents=shape.n_allies,
            n_actions=shape.n_actions,
            obs_dim=shape.obs_dim,
            state_dim=shape.state_dim,
            episode_limit=self.battle.limit,
            unit_dim=shape.unit_dim,
            has_goal=True,
            return_range=self._return_range(),
        )

    def _return_range(self) -> tuple[float, float]:
        scale = self.max_reward / self.reward_scale if self.reward_scale else 1.0
        if self.reward_sparse:
            return (-1.0 / scale, 1.0 / scale)
        r = self.roster
        worst = float(np.sum(r.life[r.ally] + r.shield[r.ally])) + self.reward_death_value * r.n_allies
        lowest = 0.0 if self.reward_only_positive else -self.reward_negative_scale * worst / scale
        return (lowest, self.max_reward / scale)

    @property
    def max_reward(self) -> float:
        """What killing every enemy without regeneration and winning is worth, before scaling."""
        r = self.roster
        health = float(np.sum(r.life[r.enemy] + r.shield[r.enemy]))
        return health + self.reward_death_value * r.n_enemies + self.reward_win

    def reset(self, key: Array) -> State:
        world = self.chance.begin(self.roster, fresh_world(self.roster), key)
        return State(world, jnp.full(self.layout.n_allies, -1, jnp.int32), jnp.int32(0))

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Outcome]:
        action = action.astype(jnp.int32)
        world = advance(self.battle)(state.world, action, self.chance.jitter(self.roster.n, key))
        after = State(world, action, state.step + 1)
        return after, self._judge(state.world, after)

    def _judge(self, before: World, after: State) -> Outcome:
        lost, won, draw = self.result(after)
        late = after.step >= self.battle.limit
        over: Array = lost | won | draw
        timeout = late & ~over
        reward = self._reward(before, after.world, lost, won)
        truncated = timeout if self.timeout_truncates else jnp.zeros_like(timeout)
        terminated = over if self.timeout_truncates else over | late
        return Outcome(reward.astype(jnp.float32), terminated, truncated, won)

    def result(self, state: State) -> tuple[Array, Array, Array]:
        """(lost, won, draw), checked in SMAC's order."""
        r = self.roster
        alive = state.world.life > 0
        allies, enemies = jnp.any(alive[r.ally]), jnp.any(alive[r.enemy])
        if self.battle.healers_do_not_count:
            fights = alive & ~r.healer[:, 0]
            lost, foes = ~jnp.any(fights[r.ally]), jnp.any(fights[r.enemy])
            return lost, ~lost & ~foes, jnp.zeros_like(lost)
        return ~allies & enemies, allies & ~enemies, ~allies & ~enemies

    def _reward(self, before: World, after: World, lost: Array, won: Array) -> Array:
        scale = self.reward_scale / self.max_reward if self.reward_scale else 1.0
        if self.reward_sparse:  # SMAC scales these as well
            return jnp.where(won, scale, jnp.where(lost, -scale, 0.0))
        r = self.roster
        reward = self._losses(before, after, r.enemy)
        if self.reward_only_positive:
            reward = jnp.abs(reward)
        else:
            reward = reward - self.reward_negative_scale * self._losses(before, after, r.ally)
        reward = reward + jnp.where(won, self.reward_win, jnp.where(lost, self.reward_defeat, 0.0))
        return reward * scale

    def _losses(self, before: World, after: World, rows: slice) -> Array:
        """Health and shield a side lost between two observations, plus the value of its deaths."""
        lost = before.life[rows] + before.shield[rows] - after.life[rows] - after.shield[rows]
        died = (before.life[rows] > 0) & (after.life[rows] <= 0)
        return jnp.sum(lost) + self.reward_death_value * jnp.sum(died)

    def observe(self, state: State) -> Array:
        avail = self.avail(state)
        limit = self.battle.limit
        return features.observe(self.roster, state.world, self.layout, avail, state.last_action, state.step, limit)

    def avail(self, state: State) -> Array:
        return features.available(self.roster, state.world)

    def state(self, state: State) -> Array:
        limit = self.battle.limit
        return features.global_state(self.roster, state.world, self.layout, state.last_action, state.step, limit)

    @property
    def first_target(self) -> int:
        return FIRST_TARGET

    def roster_in(self, state: State) -> Roster:
        """Who fights in a battle: the same in all of a map."""
        del state
        return self.roster

    roster_of = roster_in  # for pictures

    def draw(self, state: State) -> Any:
        from emu.envs.smac.draw import draw  # Pillow is needed only here

        return draw(self, state)

    def frames(self, states: Iterable[State]) -> Any:
        """Pictures of a recorded battle, several a step."""
        from emu.envs.smac.draw import frames

        return frames(self, states)

    def sketch(self, states: np.ndarray) -> Sketch:
        """Battles for a browser, from state vectors alone."""
        from emu.envs.smac.sketch import sketch

        return sketch(self, states)

    @property
    def scripted(self) -> dict[str, Player]:
        """Players that need no training, beside `random`."""
        from emu.envs.smac.scripted import PLAYERS  # which needs this module

        return PLAYERS

    def final_counts(self, state: State) -> dict[str, Array]:
        """What a summary tells of the end of a battle."""
        alive = state.world.life > 0
        return {"allies_left": alive[self.roster.ally].sum(), "enemies_left": alive[self.roster.enemy].sum()}


def make(map: str, **options: Any) -> SmacEnv:
    """Build `smac/<map>`; unknown options are refused with a hint."""
    known = {field.name for field in dataclasses.fields(SmacEnv)} - {"map"}
    for name in options:
        if name in ("obs_pathing_grid", "obs_terrain_height", "obs_instead_of_state") and not options[name]:
            continue
        if name not in known:
            raise EnvError(f"smac/{map} has no option '{name}'. {did_you_mean(name, known)}")
    return SmacEnv(map, **{name: value for name, value in options.items() if name in known})
