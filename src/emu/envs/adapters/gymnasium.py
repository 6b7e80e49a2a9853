"""A Gymnasium environment: a team of one. With discrete actions, use it with a mixer that mixes nothing.

    emu train --algo vdn --mixer.kind none --env gymnasium:CartPole-v1
    emu train --algo td3 --env gymnasium:Hopper-v4

The state is the observation. Continuous actions, each number in [-1, 1], are stretched to the bounds of the
environment's action space. Gymnasium's own time limit is a truncation; an environment without one needs
`episode_limit`. An episode counts as won where its return reaches the `reward_threshold` of the registration, but that
is a mark on the return, not a goal of the task: teams are compared by their return, and a memory needs
`memory.return_threshold` or one of its siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emu.envs.adapters.reading import names_of, number_of, numbers_of, parts_of
from emu.envs.pictures import RendersItself
from emu.envs.protocols import PythonEnv
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError
from emu.types import Outcome


class GymnasiumEnv(RendersItself, PythonEnv):
    def __init__(
        self,
        target: str,
        /,
        *,
        episode_limit: int | None = None,
        return_range: tuple[float, float] = (-np.inf, np.inf),
        **args: Any,
    ) -> None:
        self.env = _make(target, episode_limit, args)
        registered = self.env.spec
        limit = episode_limit or (registered.max_episode_steps if registered else None)
        if not limit:
            raise EnvError(f"{target} has no time limit: give it one as --env-args '{{\"episode_limit\": 1000}}'.")
        self.goal: float | None = registered.reward_threshold if registered else None
        actions, size = _require_spaces(self.env, target)
        self.act = _discrete(self.env.action_space) if actions else _continuous(self.env.action_space)
        self.spec = EnvSpec(
            name=f"gymnasium:{target}",
            version=_version(self.env),
            n_agents=1,
            n_actions=actions or 1,
            obs_dim=size,
            state_dim=size,
            episode_limit=limit,
            unit_dim=size,
            has_goal=False,  # the threshold is a mark on the return: teams are compared by the return itself
            return_range=(float(return_range[0]), float(return_range[1])),
            action_dim=0 if actions else int(np.prod(self.env.action_space.shape)),
            state_is_obs=True,
        )

    def reset(self, seed: int) -> View:
        obs, info = parts_of(self.env.reset(seed=seed), "`reset`", 2)
        self.total = 0.0
        return self._view(obs, info)

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        answer = parts_of(self.env.step(self.act(action[0])), "`step`", 5)
        obs, reward, terminated, truncated, info = answer
        reward = number_of(reward, "`step`, as reward,")
        self.total += reward
        over = bool(terminated or truncated)
        won = over and self.goal is not None and self.total >= self.goal
        outcome = Outcome(np.float32(reward), bool(terminated), bool(truncated and not terminated), won)
        return self._view(obs, info), outcome

    def _view(self, obs: Any, info: dict[str, Any]) -> View:
        obs = numbers_of(obs, "`reset` or `step`, as observation,").reshape(-1)
        mask = names_of(info, "The info of `reset` or `step`").get("action_mask")
        avail = np.ones(self.spec.n_actions, bool) if mask is None else np.asarray(mask).astype(bool)
        return View(obs[None], obs, avail[None])

    def close(self) -> None:
        self.env.close()


def _make(target: str, episode_limit: int | None, args: dict[str, Any]) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise EnvError("Gymnasium is not installed: pip install 'emu-marl[gymnasium]'.") from error
    limit = {"max_episode_steps": episode_limit} if episode_limit else {}
    try:
        return gymnasium.make(target, **limit, **args)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise EnvError(f"'gymnasium:{target}' cannot be made: {error}") from error


def _require_spaces(env: Any, target: str) -> tuple[int, int]:
    """Number of discrete actions (0: continuous ones) and size of an observation."""
    from gymnasium.spaces import Box, Discrete

    actions, shown = env.action_space, env.observation_space
    bounded = isinstance(actions, Box) and np.isfinite([actions.low, actions.high]).all()
    if not isinstance(actions, Discrete) and not bounded:
        raise EnvError(f"{target} acts in {actions}; EMU needs discrete actions or a bounded Box. Wrap it.")
    if not isinstance(shown, Box):
        raise EnvError(f"{target} shows {shown}; EMU needs an array (Box). Flatten it with a wrapper.")
    return int(actions.n) if isinstance(actions, Discrete) else 0, int(np.prod(shown.shape, dtype=int))


def _discrete(space: Any) -> Callable[[Any], Any]:
    return lambda action: int(space.start) + int(action)


def _continuous(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """From [-1, 1] to the space's bounds, in its own shape and type."""
    middle, reach = (space.high + space.low) / 2, (space.high - space.low) / 2
    return lambda action: (middle + reach * np.clip(action, -1, 1).reshape(space.shape)).astype(space.dtype)


def _version(env: Any) -> str:
    """With MuJoCo's version where it does the physics: results are not comparable across."""
    from importlib.metadata import version

    engines = ["mujoco"] if ".mujoco." in type(env.unwrapped).__module__ else []
    return ", ".join(f"{name} {version(name)}" for name in ("gymnasium", *engines))
