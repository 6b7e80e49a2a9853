"""Any object with the methods of PyMARL's `MultiAgentEnv`: SMAC, SMACv2, SMAClite, and the many that copied them.

    emu train --env pymarl:smac.env:StarCraft2Env --env-args '{"map_name": "3s5z"}'

`get_env_info()` gives the sizes. `terminated` with `episode_limit` in the info is a truncation, as in PyMARL's
runners; `battle_won` in the info is the goal, where an environment reports it.

SMAC survives the death of StarCraft by itself: it starts another game, counts `force_restarts`, and calls the broken
episode terminated. Nobody should learn from that: the adapter raises, and the worker with its games is replaced.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from emu.envs.adapters.reading import names_of, number_of, numbers_of, parts_of, rows_of
from emu.envs.protocols import PythonEnv
from emu.envs.registry import require_foreign_environment
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError, did_you_mean
from emu.types import Outcome

METHODS = ("reset", "step", "get_obs", "get_state", "get_avail_actions", "get_env_info")
SIZES = ("n_agents", "n_actions", "obs_shape", "state_shape", "episode_limit")
GOALS = ("battle_won", "won", "win", "solved")  # names under which environments report the goal in their info


class PyMarlEnv(PythonEnv):
    """`won_key` names the goal in the info where it is none of the usual; without a goal, say `"won_key": ""`."""

    def __init__(
        self,
        target: str,
        /,
        *,
        won_key: str | None = None,
        return_range: tuple[float, float] = (-np.inf, np.inf),
        **args: Any,
    ) -> None:
        self.target, self.won_key, self.args = target, won_key, args
        self._build = _import(target)
        self.env = self._make(args)
        self._require_methods()
        self.spec = self._read_spec(return_range)
        self._reset_takes_seed = _takes(self.env.reset, "seed")
        self.seedable = self._reset_takes_seed
        self._begun = False

    def _make(self, args: dict[str, Any]) -> Any:
        try:
            return self._build(**args)
        except TypeError as error:
            raise EnvError(f"{self.target} cannot be made from {args}: {error}.") from error

    def _require_methods(self) -> None:
        missing = [name for name in METHODS if not callable(getattr(self.env, name, None))]
        if missing:
            raise EnvError(
                f"{self.target} is no MultiAgentEnv: it has no {', '.join(f'`{name}`' for name in missing)}. "
                "The prefix 'pymarl' is for environments with PyMARL's methods."
            )

    def _read_spec(self, return_range: tuple[float, float]) -> EnvSpec:
        info = names_of(self.env.get_env_info(), f"What `get_env_info()` of {self.target} returns")
        missing = [name for name in SIZES if not isinstance(info.get(name), int | np.integer)]
        if missing:
            raise EnvError(f"`get_env_info()` of {self.target} gives no whole number as {', '.join(missing)}: {info}.")
        n_agents, n_actions, obs_dim, state_dim, limit = (int(info[name]) for name in SIZES)
        unit_dim = int(info.get("unit_dim") or obs_dim)
        return EnvSpec(
            name=f"pymarl:{self.target}",
            version=package_version(self.target),
            n_agents=n_agents,
            n_actions=n_actions,
            obs_dim=obs_dim,
            state_dim=state_dim,
            episode_limit=limit,
            unit_dim=unit_dim if n_agents * unit_dim <= state_dim else -1,
            has_goal=self.won_key != "",
            return_range=(float(return_range[0]), float(return_range[1])),
        )

    def reset(self, seed: int) -> View:
        """The seed goes to `reset` where it takes one, else to the constructor before the first episode."""
        if not self._reset_takes_seed and not self._begun and "seed" not in self.args and _takes(self._build, "seed"):
            _close(self.env)
            self.env = self._make({**self.args, "seed": seed})
        with self._same_game():
            self.env.reset(**({"seed": seed} if self._reset_takes_seed else {}))
        self._begun = True
        return self._view()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        with self._same_game():
            reward, over, info = self._answer(self.env.step(action.tolist()))
        truncated = bool(over and info.get("episode_limit", False))
        won = bool(info.get(self._goal(info, over), False))
        return self._view(), Outcome(np.float32(reward), bool(over) and not truncated, truncated, won)

    @contextlib.contextmanager
    def _same_game(self) -> Iterator[None]:
        """Raise if the environment had to start its game anew meanwhile."""
        before = getattr(self.env, "force_restarts", 0)
        yield
        if getattr(self.env, "force_restarts", 0) != before:
            raise EnvError(f"The game of {self.target} died and was started again: the episode is lost.")

    def _answer(self, answer: Any) -> tuple[float, bool, dict[str, Any]]:
        """(reward, terminated, info), also from EPyMARL's five: (obs, reward, terminated, truncated, info)."""
        if len(parts_of(answer, "`step`", 3, 5)) == 5:
            _, reward, terminated, truncated, info = answer
            over, limit = bool(terminated or truncated), bool(truncated) and not terminated
            info = {"episode_limit": limit, **names_of(info, "The info of `step`")}
        else:
            reward, over, info = answer
        return number_of(reward, "`step`, as reward,"), bool(over), names_of(info, "The info of `step`")

    def _goal(self, info: dict[str, Any], over: bool) -> str:
        """The goal's name; some environments report it at the end of an episode only."""
        if self.won_key is None:
            known = [name for name in GOALS if name in info]
            return known[0] if known else ""
        if self.won_key and over and self.won_key not in info:
            raise EnvError(
                f"The info of {self.target} has no '{self.won_key}'. {did_you_mean(self.won_key, info)} "
                'Without a goal, say "won_key": "" in --env-args.'
            )
        return self.won_key

    def _view(self) -> View:
        obs = rows_of(self.env.get_obs(), self.spec.n_agents, "`get_obs()`")
        state = numbers_of(self.env.get_state(), "`get_state()`").reshape(-1)
        return View(obs, state, numbers_of(self.env.get_avail_actions(), "`get_avail_actions()`") > 0)

    def close(self) -> None:
        _close(self.env)


def _close(env: Any) -> None:
    if callable(getattr(env, "close", None)):
        env.close()


def _import(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    if not name:
        raise EnvError(f"'pymarl:{target}' names no class: write pymarl:module.path:Class.")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise EnvError(
            f"'pymarl:{target}' cannot be imported: {error}. Install the package that holds '{module}'."
        ) from error
    if not callable(found):
        known = [word for word in vars(importlib.import_module(module)) if not word.startswith("_")]
        raise EnvError(f"Module '{module}' has no '{name}'. {did_you_mean(name, known)}")
    require_foreign_environment(f"pymarl:{target}", found, METHODS)
    return found


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def package_version(target: str) -> str:
    """The installed version of the package that holds "module.path:name"."""
    names = _distributions().get(target.partition(":")[0].partition(".")[0], [])
    return importlib.metadata.version(names[0]) if names else "unknown"


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()  # reads the records of everything installed
