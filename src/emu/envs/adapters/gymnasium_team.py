"""Gymnasium's multi-agent form, one environment for a whole team, as level-based foraging and the warehouse have it.

    emu train --algo qmix --env lbf:Foraging-8x8-2p-3f-v3
    emu train --algo ippo --env rware:rware-tiny-2ag-v2
    emu train --algo vdn --env gymnasium_team:my_package:Arena-v0

Observations and actions are tuples with an entry for each agent, rewards are a list. The rewards are added up into the
team's (`team_reward` "sum"), averaged ("mean"), or kept for agents that learn by themselves, as IQL's and IPPO's do
("individual": the return is still their sum). Agents see what the environment shows; smaller spaces are padded
with zeros, and actions that only other agents have are not available. The state is all observations side by side, with
numbers that the space bounds brought into [0, 1]: a mixer multiplies by what it makes of the state, and with rows and
columns as they are (0 to 7) the first values are tens of times too large.

Such environments fold their time limit into `terminated`. Where the limit is an argument of theirs (`max_episode_steps`
or `max_steps`) they are given a later one, and the clock runs here: it truncates.
"""

from __future__ import annotations

import copy
import importlib
import typing
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from emu.envs.adapters.pymarl import package_version
from emu.envs.adapters.reading import numbers_of, parts_of
from emu.envs.pictures import RendersItself
from emu.envs.protocols import PythonEnv
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError, did_you_mean
from emu.types import Outcome

CLOCKS = ("max_episode_steps", "max_steps")  # names under which environments take their time limit
TeamReward = Literal["sum", "mean", "individual"]
TEAM_REWARDS = typing.get_args(TeamReward)


class GymnasiumTeam(RendersItself, PythonEnv):
    """`episode_limit` is needed where neither the registration nor an argument of the environment names one."""

    prefix = "gymnasium_team"

    def __init__(
        self,
        target: str,
        /,
        *,
        episode_limit: int | None = None,
        team_reward: TeamReward = "sum",
        return_range: tuple[float, float] = (-np.inf, np.inf),
        **args: Any,
    ) -> None:
        require_team_reward(team_reward)
        self.team_reward, self.name = team_reward, f"{self.prefix}:{target}"
        self.env, limit = _make(self.name, target, episode_limit, args)
        self.actions, self.sizes = _require_spaces(self.env, self.name)
        n, obs_dim = len(self.actions), max(self.sizes)
        self.spec = EnvSpec(
            name=self.name,
            version=_version(self.env),
            n_agents=n,
            n_actions=max(self.actions),
            obs_dim=obs_dim,
            state_dim=n * obs_dim,
            episode_limit=limit,
            unit_dim=obs_dim,
            return_range=(float(return_range[0]), float(return_range[1])),
            own_rewards=team_reward == "individual",
        )
        self.avail = np.arange(self.spec.n_actions) < np.array(self.actions)[:, None]
        self.low, self.span = _bounds(self.env.observation_space, self.sizes)

    def reset(self, seed: int) -> View:
        self.time, self.total = 0, 0.0
        return self._view(parts_of(self.env.reset(seed=seed), "`reset`", 2)[0])

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        answer = parts_of(self.env.step(tuple(int(a) for a in action)), "`step`", 5)
        seen, rewards, terminated, truncated, _ = answer
        rewards = numbers_of(rewards, "`step`, as rewards,")
        self.time += 1
        self.total += float(np.sum(rewards))
        over = bool(np.all(terminated))
        late = bool(np.all(truncated)) or self.time >= self.spec.episode_limit
        return self._view(seen), Outcome(combined(rewards, self.team_reward), over, late and not over, False)

    def _view(self, seen: Any) -> View:
        obs = np.zeros((self.spec.n_agents, self.spec.obs_dim), np.float32)
        parts = parts_of(seen, "`reset` or `step`, as observations,", self.spec.n_agents)
        for agent, (row, size, what) in enumerate(zip(obs, self.sizes, parts, strict=True)):
            numbers = numbers_of(what, f"`reset` or `step`, as observation of agent {agent},").reshape(-1)
            if len(numbers) != size:
                raise EnvError(f"Agent {agent} has obs of {len(numbers)} numbers; its space says {size}.")
            row[:size] = numbers
        return View(obs, ((obs - self.low) / self.span).reshape(-1), self.avail)

    def close(self) -> None:
        self.env.close()


def require_team_reward(given: str) -> None:
    if given not in TEAM_REWARDS:
        raise EnvError(
            f"team_reward is {', '.join(map(repr, TEAM_REWARDS[:-1]))} or {TEAM_REWARDS[-1]!r}, not {given!r}."
        )


def combined(rewards: Any, team_reward: str) -> Any:
    """The team's reward from its agents', or those themselves."""
    rewards = np.asarray(rewards, np.float64)
    if team_reward == "individual":
        return rewards.astype(np.float32)
    return np.float32(rewards.mean() if team_reward == "mean" else rewards.sum())


def require_package(package: str, prefix: str, target: str) -> None:
    """Import what registers the environments of a prefix; a target that names a module of its own is refused."""
    if ":" in target:
        raise EnvError(f"'{prefix}:{target}' names a module: write {prefix}:NAME, or gymnasium_team:{target}.")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise EnvError(f"{package} cannot be imported ({error}): pip install 'emu-marl[{prefix}]'.") from error


def _make(name: str, target: str, episode_limit: int | None, args: dict[str, Any]) -> tuple[Any, int]:
    """The environment without a clock of its own where possible, and its time limit."""
    try:
        import gymnasium
    except ImportError as error:
        raise EnvError("Gymnasium is not installed: pip install 'emu-marl[gymnasium]'.") from error
    registered = _registered(name, target)
    registered.kwargs.update(args)
    clock = next((word for word in CLOCKS if registered.kwargs.get(word)), None)
    limit = episode_limit or (registered.kwargs[clock] if clock else registered.max_episode_steps)
    if not limit:
        raise EnvError(f"{name} has no time limit: give it one as --env-args '{{\"episode_limit\": 100}}'.")
    if clock:
        registered.kwargs[clock] = limit + 1
    registered.max_episode_steps = None
    try:
        # Gymnasium's own checker expects one agent, and complains of a list of rewards.
        return gymnasium.make(registered, disable_env_checker=True), int(limit)
    except (gymnasium.error.Error, TypeError, ValueError, AssertionError, ImportError) as error:
        raise EnvError(f"'{name}' cannot be made from {args}: {error}") from error


def _registered(name: str, target: str) -> Any:
    """The registration of "NAME", or of "module:NAME" after the module, which registers it, has been imported."""
    import gymnasium

    module, _, known_as = target.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return copy.deepcopy(gymnasium.spec(known_as))
    except ImportError as error:
        raise EnvError(f"'{name}' cannot be imported: {error}.") from error
    except gymnasium.error.Error as error:
        hint = did_you_mean(known_as, [*gymnasium.registry])
        raise EnvError(f"Gymnasium knows no environment '{known_as}'. {hint}") from error


def _require_spaces(env: Any, name: str) -> tuple[list[int], list[int]]:
    """For each agent the number of its actions and the size of what it sees."""
    from gymnasium.spaces import Box, Discrete, Tuple

    actions, shown = env.action_space, env.observation_space
    if not isinstance(actions, Tuple) or not isinstance(shown, Tuple) or len(actions) != len(shown):
        raise EnvError(
            f"{name} acts in {actions} and shows {shown}; a team needs a tuple of spaces for both, with an entry for "
            "each agent. An environment for one agent is made as gymnasium:NAME."
        )
    for agent, (acts, sees) in enumerate(zip(actions, shown, strict=True)):
        if not isinstance(acts, Discrete) or acts.start != 0:
            raise EnvError(f"Agent {agent} of {name} acts in {acts}; EMU needs discrete actions from 0.")
        if not isinstance(sees, Box):
            raise EnvError(f"Agent {agent} of {name} sees {sees}; EMU needs an array (Box). Flatten it with a wrapper.")
    return [int(space.n) for space in actions], [int(np.prod(space.shape, dtype=int)) for space in shown]


def _bounds(spaces: Any, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Smallest value and width of every observed number, (N, O) each; 0 and 1 where it is not bounded."""
    low, span = np.zeros((len(sizes), max(sizes)), np.float32), np.ones((len(sizes), max(sizes)), np.float32)
    for agent, (space, size) in enumerate(zip(spaces, sizes, strict=True)):
        least, most = (np.asarray(bound, np.float32).reshape(-1) for bound in (space.low, space.high))
        bounded = np.isfinite(least) & np.isfinite(most) & (most > least)
        low[agent, :size] = np.where(bounded, least, 0)
        span[agent, :size] = np.where(bounded, most, 1) - np.where(bounded, least, 0)
    return low, span


def _version(env: Any) -> str:
    """Of Gymnasium and of the package that holds the environment."""
    module = type(env.unwrapped).__module__
    return f"gymnasium {version('gymnasium')}, {module.partition('.')[0]} {package_version(module)}"
