"""SMACv2's Python classes around the simulator, for other people's trainers: same names, arguments and methods.

    env = StarCraftCapabilityEnvWrapper(map_name="10gen_terran", capability_config={...}, use_unit_ranges=True)

What only concerns the real game (difficulty, replays, windows) is accepted and has no effect.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac import pymarl as smac
from emu.envs.smacv2 import features, names
from emu.envs.smacv2.capabilities import read
from emu.envs.smacv2.draws import Setup, draw
from emu.envs.smacv2.env import Smacv2Env
from emu.envs.smacv2.options import Options
from emu.errors import EnvError, did_you_mean

CLASS_DEFAULTS = {"use_unit_ranges": False, "obs_own_pos": False}
FIXED = {**smac.FIXED, "kill_unit_step_mul": 2}


class StarCraft2Env:
    """SMACv2's `StarCraft2Env` on its generated maps, `10gen_terran` and so on.

    `reset` takes what the wrapper draws, `{"team_gen": {"ally_team": [...], "enemy_team": [...]}, ...}`; what is
    missing there is drawn. Unlike SMACv2's, `seed` decides the draws too.
    """

    def __init__(
        self,
        map_name: str = "10gen_terran",
        seed: int | None = None,
        capability_config: Mapping[str, Any] | None = None,
        continuing_episode: bool = False,
        **options: Any,
    ) -> None:
        self.map_name, self.continuing_episode = map_name, continuing_episode
        self.capability_config = dict(capability_config or {})
        plain = {key: _without_sizes(part) for key, part in self.capability_config.items()}
        self.env = Smacv2Env(read(plain, map_name), _options(options), map_name)
        self.n_agents, self.n_enemies = self.env.layout.n_allies, self.env.layout.n_enemies
        self.n_actions, self.episode_limit = self.env.spec.n_actions, self.env.spec.episode_limit
        self.n_actions_no_attack = self.env.layout.first_target
        self.max_reward = self.env.max_reward
        self.battles_game = self.battles_won = self.timeouts = self.force_restarts = 0
        self._seed = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed)
        self._key = jax.random.key(self._seed)
        self._state: Any = None
        self._view: dict[str, Any] = {}

    def reset(self, episode_config: Mapping[str, Any] | None = None) -> tuple[list[np.ndarray], np.ndarray]:
        """Start a battle; observations and global state."""
        key = self._next_key()
        if episode_config:
            setup = self._setup(episode_config, key)
            self._state, self._view = jax.device_get(_begin(self.env, setup, self._next_key()))
        else:
            self._state, self._view = jax.device_get(_reset(self.env, key))
        return self.get_obs(), self.get_state()

    def _setup(self, given: Mapping[str, Any], key: Any) -> Setup:
        """A draw with the given parts in place of the drawn ones."""
        setup, types = draw(self.env.capabilities, key), list(self.env.capabilities.race.types)
        teams = given.get("team_gen", {})
        parts: dict[str, Any] = {}
        for name, ours in (("ally_team", "allies"), ("enemy_team", "enemies")):
            if name in teams:
                parts[ours] = jnp.asarray([types.index(unit) for unit in teams[name]], jnp.int32)
        places = {"ally_start_positions": "ally_places", "enemy_start_positions": "enemy_places"}
        for name, ours in {**places, "attack": "attack", "health": "health", "enemy_mask": "mask"}.items():
            old = getattr(setup, ours)
            if name in given and old is not None:
                parts[ours] = jnp.asarray(given[name]["item"]).astype(old.dtype).reshape(old.shape)
        return setup._replace(**parts)

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        """Play one joint action; (reward, terminated, info). An unavailable action is refused, as in SMACv2."""
        action = np.asarray(actions, np.int32).reshape(self.n_agents)
        allowed = self._view["avail"][np.arange(self.n_agents), action]
        if not allowed.all():
            agent = int(np.flatnonzero(~allowed)[0])
            raise ValueError(f"Agent {agent} cannot perform action {int(action[agent])} now; see get_avail_actions().")
        self._state, outcome, self._view = jax.device_get(_step(self.env, self._state, action, self._next_key()))
        won, terminated = bool(outcome.won), bool(outcome.terminated | outcome.truncated)
        alive, shape = self._view["alive"], self.env.layout
        dead = {"dead_allies": int((~alive[shape.ally]).sum()), "dead_enemies": int((~alive[shape.enemy]).sum())}
        info: dict[str, Any] = {"battle_won": won, **dead}
        if terminated:
            late = bool(self._view["late"]) and not self._view["over"]
            self.battles_game += 1
            self.battles_won += won
            self.timeouts += late
            if late and self.continuing_episode:
                info["episode_limit"] = True
        return float(outcome.reward), terminated, info

    def _next_key(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key

    def get_obs(self) -> list[np.ndarray]:
        return list(self._view["obs"])

    def get_obs_agent(self, agent_id: int, fully_observable: bool = False) -> np.ndarray:
        if fully_observable:
            raise EnvError("Ask for fully_observable=True when the environment is made.")
        return self._view["obs"][agent_id]

    def get_obs_size(self) -> int:
        return self.env.spec.obs_dim

    def get_state(self) -> np.ndarray:
        return self._view["state"]

    def get_state_size(self) -> int:
        return self.env.spec.state_dim

    def get_capabilities(self) -> np.ndarray:
        return self._view["capabilities"].ravel()

    def get_capabilities_agent(self, agent_id: int) -> np.ndarray:
        return self._view["capabilities"][agent_id]

    def get_cap_size(self) -> int:
        return self.env.layout.capability_dim

    def get_avail_actions(self) -> list[list[int]]:
        return self._view["avail"].astype(int).tolist()

    def get_avail_agent_actions(self, agent_id: int) -> list[int]:
        return self._view["avail"][agent_id].astype(int).tolist()

    def get_total_actions(self) -> int:
        return self.n_actions

    def get_obs_feature_names(self) -> list[str]:
        return names.observation(self.env.layout)

    def get_state_feature_names(self) -> list[str]:
        return names.state(self.env.layout)

    def get_visibility_matrix(self) -> np.ndarray:
        """(n_agents, n_agents + n_enemies) bool, by sight alone; pairs of agents by that of the lower number."""
        return names.visibility(self.env.layout, self._state)

    def get_stats(self) -> dict[str, float]:
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / max(self.battles_game, 1),
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def get_env_info(self) -> dict[str, Any]:
        shape = self.env.layout
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "cap_shape": self.get_cap_size(),
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
            "agent_features": names.ally_features(shape),
            "enemy_features": names.enemy_features(shape),
            "unit_dim": shape.unit_dim,
            "n_enemies": shape.n_enemies,
            "n_actions_no_attack": shape.first_target,
        }

    def seed(self) -> int:
        """The seed that was given, or drawn where none was."""
        return self._seed

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        if mode != "rgb_array":
            raise ValueError(f"This environment draws pictures: mode 'rgb_array', not '{mode}'.")
        return self.env.draw(self._state)

    def full_restart(self) -> None:
        """There is no game to restart."""

    def close(self) -> None:
        """Nothing is running outside this object."""

    def save_replay(self) -> None:
        """There is no game client; record states and use `frames` of the environment instead."""


class StarCraftCapabilityEnvWrapper:
    """SMACv2's wrapper: every `reset` draws teams, places and the rest of `capability_config` anew."""

    def __init__(self, **kwargs: Any) -> None:
        if "capability_config" not in kwargs:
            raise EnvError("StarCraftCapabilityEnvWrapper needs a capability_config; docs/envs/smacv2.md shows one.")
        self.env = StarCraft2Env(**kwargs)
        self.distribution_config = self.env.capability_config

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        return self.env.reset()

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not there yet, e.g. while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)


def _without_sizes(part: Any) -> Any:
    """SMACv2's wrapper writes the sizes and the key into each part of the configuration it is given."""
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if key not in ("n_units", "n_enemies", "env_key")}


def _options(given: Mapping[str, Any]) -> Options:
    known = set(Options.__dataclass_fields__)
    chosen = {**CLASS_DEFAULTS, **smac.of_the_simulator(given, FIXED)}
    for name in chosen.keys() - known:
        raise EnvError(f"StarCraft2Env has no argument '{name}'. {did_you_mean(name, [*known, *FIXED])}")
    return Options(**chosen)


def _look(env: Smacv2Env, state: Any) -> dict[str, Any]:
    lost, won, draw = env.result(state)
    return {
        "obs": env.observe(state),
        "state": env.state(state),
        "avail": env.avail(state),
        "capabilities": features.capabilities(env.layout, state),
        "alive": state.world.life > 0,
        "late": state.step >= env.spec.episode_limit,
        "over": lost | won | draw,
    }


@functools.partial(jax.jit, static_argnums=0)
def _reset(env: Smacv2Env, key: Any) -> Any:
    state = env.reset(key)
    return state, _look(env, state)


@functools.partial(jax.jit, static_argnums=0)
def _begin(env: Smacv2Env, setup: Setup, key: Any) -> Any:
    state = env.begin(setup, key)
    return state, _look(env, state)


@functools.partial(jax.jit, static_argnums=0)
def _step(env: Smacv2Env, state: Any, action: Any, key: Any) -> Any:
    state, outcome = env.step(state, action, key)
    return state, outcome, _look(env, state)
