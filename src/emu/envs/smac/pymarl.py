"""The simulator as a PyMARL `MultiAgentEnv`: one battle, NumPy in and out, for use in other trainers.

    env = StarCraft2Env(map_name="3s5z", seed=1)

It takes SMAC's arguments. What only concerns the real game has no effect; what the simulator does in one way only is
accepted with that value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from emu.envs.smac.env import SmacEnv, make
from emu.envs.smac.features import FIRST_TARGET
from emu.errors import EnvError

WITHOUT_EFFECT = (
    "difficulty", "game_version", "replay_dir", "replay_prefix", "window_size_x", "window_size_y", "debug",
)  # fmt: skip
FIXED = {
    "step_mul": 8, "move_amount": 2, "obs_pathing_grid": False, "obs_terrain_height": False,
    "obs_instead_of_state": False, "heuristic_ai": False, "heuristic_rest": False,
}  # fmt: skip


def of_the_simulator(given: Mapping[str, Any], fixed: Mapping[str, Any] = FIXED) -> dict[str, Any]:
    """The arguments of a `StarCraft2Env` but for those that can have no effect here."""
    for name in fixed.keys() & given.keys():
        if given[name] != fixed[name]:
            raise EnvError(f"{name} is always {fixed[name]!r} in this simulator, not {given[name]!r}.")
    return {name: value for name, value in given.items() if name not in fixed and name not in WITHOUT_EFFECT}


class StarCraft2Env:
    """Methods, arguments, shapes and meaning of SMAC's class of this name, for a trainer such as PyMARL.

    `battle_won` is in the info of every step. What looks into the game's units (`get_unit_by_id`,
    `get_visibility_matrix`) is not there.
    """

    def __init__(
        self,
        map_name: str = "8m",
        seed: int | None = None,
        continuing_episode: bool = False,
        reward_scale: bool = True,
        reward_scale_rate: float = 20.0,
        **options: Any,
    ) -> None:
        known = {"timeout_truncates": continuing_episode, **of_the_simulator(options)}
        self.env: SmacEnv = make(map_name, reward_scale=reward_scale_rate if reward_scale else 0.0, **known)
        self.n_agents, self.n_actions = self.env.spec.n_agents, self.env.spec.n_actions
        self.episode_limit = self.env.spec.episode_limit
        self.battles_game = self.battles_won = self.timeouts = self.force_restarts = 0
        self._seed = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed)
        self._key = jax.random.key(self._seed)
        self._state: Any = None

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Start a battle; observations and global state."""
        self._state, self._view = _begin(self.env, self._next_key())
        return self.get_obs(), self.get_state()

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        """Play one joint action; (reward, terminated, info). An unavailable action is refused, as in SMAC."""
        action = np.asarray(actions, np.int32).reshape(self.n_agents)
        allowed = self._view["avail"][np.arange(self.n_agents), action]
        if not allowed.all():
            agent = int(np.flatnonzero(~allowed)[0])
            raise ValueError(f"Agent {agent} cannot perform action {int(action[agent])} now; see get_avail_actions().")
        self._state, outcome, self._view = _step(self.env, self._state, action, self._next_key())
        outcome = jax.device_get(outcome)
        terminated = bool(outcome.terminated | outcome.truncated)
        won = bool(outcome.won)
        info: dict[str, Any] = {"battle_won": won, **self._losses()}
        if bool(outcome.truncated):
            info["episode_limit"] = True
        if terminated:
            self.battles_game += 1
            self.battles_won += won
            self.timeouts += bool(self._view["late"]) and not self._view["over"]
        return float(outcome.reward), terminated, info

    def _losses(self) -> dict[str, int]:
        alive, r = self._view["alive"], self.env.roster
        return {
            "dead_allies": int(r.n_allies - alive[r.ally].sum()),
            "dead_enemies": int(r.n_enemies - alive[r.enemy].sum()),
        }

    def _next_key(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key

    def get_obs(self) -> list[np.ndarray]:
        return list(self._view["obs"])

    def get_obs_agent(self, agent_id: int) -> np.ndarray:
        return self._view["obs"][agent_id]

    def get_obs_size(self) -> int:
        return self.env.spec.obs_dim

    def get_state(self) -> np.ndarray:
        return self._view["state"]

    def get_state_size(self) -> int:
        return self.env.spec.state_dim

    def get_avail_actions(self) -> list[list[int]]:
        return self._view["avail"].astype(int).tolist()

    def get_avail_agent_actions(self, agent_id: int) -> list[int]:
        return self._view["avail"][agent_id].astype(int).tolist()

    def get_total_actions(self) -> int:
        return self.n_actions

    def get_stats(self) -> dict[str, float]:
        games = max(self.battles_game, 1)
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / games,
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def get_env_info(self) -> dict[str, Any]:
        shape = self.env.layout
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
            "unit_dim": shape.unit_dim,
            "unit_type_bits": shape.type_bits,
            "shield_bits_ally": int(shape.ally_shields),
            "shield_bits_enemy": int(shape.enemy_shields),
            "n_enemies": shape.n_enemies,
            "n_actions_no_attack": FIRST_TARGET,
        }

    def seed(self) -> int:
        """The seed that was given, or drawn where none was."""
        return self._seed

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        if mode != "rgb_array":
            raise ValueError(f"This environment draws pictures: mode 'rgb_array', not '{mode}'.")
        return self.env.draw(jax.device_get(self._state))

    def full_restart(self) -> None:
        """There is no game to restart."""

    def close(self) -> None:
        """Nothing is running outside this object."""

    def save_replay(self) -> None:
        """There is no game client; record states and use `emu.envs.smac.draw.frames` instead."""


def _look(env: SmacEnv, state: Any) -> dict[str, Any]:
    lost, won, draw = env.result(state)
    return {
        "obs": env.observe(state),
        "state": env.state(state),
        "avail": env.avail(state),
        "alive": state.world.life > 0,
        "late": state.step >= env.spec.episode_limit,
        "over": lost | won | draw,
    }


@functools.partial(jax.jit, static_argnums=0)
def _begin_jit(env: SmacEnv, key: Any) -> Any:
    state = env.reset(key)
    return state, _look(env, state)


@functools.partial(jax.jit, static_argnums=0)
def _step_jit(env: SmacEnv, state: Any, action: Any, key: Any) -> Any:
    state, outcome = env.step(state, action, key)
    return state, outcome, _look(env, state)


def _begin(env: SmacEnv, key: Any) -> Any:
    state, view = _begin_jit(env, key)
    return state, jax.device_get(view)


def _step(env: SmacEnv, state: Any, action: Any, key: Any) -> Any:
    state, outcome, view = _step_jit(env, state, action, key)
    return state, outcome, jax.device_get(view)
