"""PettingZoo's parallel API, for teams: the agents' rewards are added up (or averaged, or kept) into the team's.

    emu train --algo qmix --env pettingzoo:mpe2.simple_spread_v3 --env-args '{"max_cycles": 25}'

The target is a module with a `parallel_env` function, or a function itself, "module:function". An agent that has left
sees zeros and can do only action 0, which is not passed on. Agents with smaller spaces are padded.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from emu.envs.adapters.gymnasium_team import TeamReward, combined, require_team_reward
from emu.envs.adapters.pymarl import package_version
from emu.envs.adapters.reading import names_of, number_of, numbers_of, parts_of
from emu.envs.pictures import RendersItself
from emu.envs.protocols import PythonEnv
from emu.envs.registry import require_foreign_environment
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError
from emu.types import Outcome

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


class PettingZooEnv(RendersItself, PythonEnv):
    """`episode_limit` is needed where the environment has no `max_cycles`; `won_key` names a goal in the infos."""

    def __init__(
        self,
        target: str,
        /,
        *,
        episode_limit: int | None = None,
        team_reward: TeamReward = "sum",
        won_key: str | None = None,
        return_range: tuple[float, float] = (-np.inf, np.inf),
        **args: Any,
    ) -> None:
        self.target, self.team_reward, self.won_key = target, team_reward, won_key
        require_team_reward(team_reward)
        self.env = _make(target, args)
        self.agents: list[Any] = list(self.env.possible_agents)
        self.actions = [self._discrete(agent) for agent in self.agents]
        self.sizes = [_flat_size(_plain(self.env.observation_space(agent)), target) for agent in self.agents]
        self._has_state, state_dim = self._find_state()
        obs_dim = max(self.sizes)
        self.spec = EnvSpec(
            name=f"pettingzoo:{target}",
            version=package_version(target),
            n_agents=len(self.agents),
            n_actions=max(self.actions),
            obs_dim=obs_dim,
            state_dim=state_dim or len(self.agents) * obs_dim,
            episode_limit=episode_limit or self._limit(args),
            unit_dim=(state_dim or len(self.agents) * obs_dim) // len(self.agents),
            has_goal=won_key is not None,
            return_range=(float(return_range[0]), float(return_range[1])),
            own_rewards=team_reward == "individual",
        )

    def _discrete(self, agent: Any) -> int:
        from gymnasium.spaces import Discrete

        space = self.env.action_space(agent)
        if not isinstance(space, Discrete) or space.start != 0:
            raise EnvError(f"Agent '{agent}' of {self.target} acts in {space}; EMU needs discrete actions from 0.")
        return int(space.n)

    def _find_state(self) -> tuple[bool, int]:
        """Whether `state()` works, and its size; not every environment has one."""
        try:
            self.env.reset(seed=0)
            return True, int(np.size(self.env.state()))
        except (NotImplementedError, AttributeError):
            return False, 0

    def _limit(self, args: dict[str, Any]) -> int:
        limit = args.get("max_cycles") or getattr(self.env.unwrapped, "max_cycles", None)
        if not isinstance(limit, int):
            raise EnvError(
                f"{self.target} does not say how long an episode may be: "
                "give it as --env-args '{\"episode_limit\": 100}'."
            )
        return limit

    def reset(self, seed: int) -> View:
        self.time = 0
        return self._view(*parts_of(self.env.reset(seed=seed), "`reset`", 2))

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        wanted = {agent: int(a) for agent, a in zip(self.agents, action, strict=True) if agent in self.env.agents}
        obs, rewards, terminated, _, infos = parts_of(self.env.step(wanted), "`step`", 5)
        rewards = names_of(rewards, "What `step` returns as rewards")
        terminated = names_of(terminated, "What `step` returns as terminations")
        self.time += 1
        over = not self.env.agents
        # The task is over if it is for all agents that were still there; a clock that stops some is a truncation.
        ended = over and all(terminated.get(agent, True) for agent in wanted)
        truncated = not ended and (over or self.time >= self.spec.episode_limit)
        own = [
            number_of(rewards.get(agent, 0.0), f"`step`, as reward of '{agent}',") if agent in wanted else 0.0
            for agent in self.agents
        ]
        reward = combined(own, self.team_reward)
        return self._view(obs, infos), Outcome(reward, ended, truncated, self._won(infos))

    def _won(self, infos: dict[Any, dict[str, Any]]) -> bool:
        return self.won_key is not None and any(info.get(self.won_key, False) for info in infos.values())

    def _view(self, observations: dict[Any, Any], infos: dict[Any, dict[str, Any]]) -> View:
        n, obs_dim, n_actions = self.spec.n_agents, self.spec.obs_dim, self.spec.n_actions
        obs, avail = np.zeros((n, obs_dim), np.float32), np.zeros((n, n_actions), bool)
        observations = names_of(observations, "What `reset` or `step` returns as observations")
        infos = names_of(infos, "What `reset` or `step` returns as infos")
        present = set(self.env.agents or observations)  # when all have left at once, what they last saw still counts
        for i, agent in enumerate(self.agents):
            if agent not in present:
                avail[i, 0] = True
                continue
            if agent not in observations:
                raise EnvError(f"`reset` or `step` gives agent '{agent}' no observation, only {list(observations)}.")
            seen = observations[agent]
            mask = infos.get(agent, {}).get("action_mask")
            if isinstance(seen, dict):
                mask, seen = seen.get("action_mask", mask), seen["observation"]
            seen = numbers_of(seen, f"`reset` or `step`, as observation of '{agent}',").reshape(-1)
            if len(seen) != self.sizes[i]:
                raise EnvError(f"Agent '{agent}' has obs of {len(seen)} numbers; its space says {self.sizes[i]}.")
            obs[i, : self.sizes[i]] = seen
            avail[i, : self.actions[i]] = True if mask is None else np.asarray(mask).astype(bool)
        return View(obs, self._state(obs), avail)

    def _state(self, obs: np.ndarray) -> np.ndarray:
        return np.asarray(self.env.state(), np.float32).reshape(-1) if self._has_state else obs.reshape(-1)

    def close(self) -> None:
        self.env.close()


def _make(target: str, args: dict[str, Any]) -> Any:
    module, _, function = target.partition(":")
    try:
        import pettingzoo  # noqa: F401
    except ImportError as error:
        raise EnvError("PettingZoo is not installed: pip install 'emu-marl[pettingzoo]'.") from error
    try:
        found = getattr(importlib.import_module(module), function or "parallel_env", None)
    except ImportError as error:
        raise EnvError(f"'pettingzoo:{target}' cannot be imported: {error}.") from error
    if not callable(found):
        raise EnvError(f"'{module}' has no function '{function or 'parallel_env'}': it lacks the parallel API.")
    require_foreign_environment(f"pettingzoo:{target}", found, ("reset", "step", "observation_space", "action_space"))
    try:
        env: Any = found(**args)
    except TypeError as error:
        raise EnvError(f"'pettingzoo:{target}' cannot be made from {args}: {error}.") from error
    if not getattr(env, "possible_agents", None):
        raise EnvError(f"'pettingzoo:{target}' has no `possible_agents`: EMU must know all agents beforehand.")
    return env


def _plain(space: Any) -> Any:
    """The space of the observation itself, where it comes with an action mask."""
    inner = getattr(space, "spaces", None)
    return inner["observation"] if isinstance(inner, dict) and "observation" in inner else space


def _flat_size(space: Any, target: str) -> int:
    if getattr(space, "shape", None) is None or not np.issubdtype(space.dtype, np.number):
        raise EnvError(f"{target} shows {space}; EMU needs arrays of numbers. Flatten it with a wrapper.")
    return int(np.prod(space.shape, dtype=int))
