"""A trained team, loaded from a run's folder or from an exported one, that acts in anybody's loop.

team = load_team(folder)                       the best team; also the last one, or that of a kept checkpoint
team.reset(); actions = team.act(obs, avail)   NumPy in and out; what the agents remember is kept inside
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from emu import envs
from emu.config import Config
from emu.devices import Devices, configure_cpu_devices
from emu.envs.protocols import Env, PythonEnv
from emu.errors import CheckpointError, EmuError
from emu.learners.base import Learner
from emu.learners.build import build_learner
from emu.play.acting import make_act
from emu.run.best import load_best
from emu.run.checkpoint import load_learner
from emu.run.exported import is_exported, load_exported, read_exported_config
from emu.run.folder import RunFolder, read_config
from emu.run.trust import require_trusted
from emu.types import PyTree

Which = Literal["best", "last"] | int


class Team:
    """Agents that act greedily. One team plays one environment or E of them side by side."""

    def __init__(
        self,
        config: Config,
        env: Env | PythonEnv,
        learner: Learner,
        policy: PyTree,
        step: int,
        evaluation: dict[str, float] | None = None,
    ) -> None:
        self.config, self.env, self.learner, self.policy = config, env, learner, policy
        self.step = step  # environment steps it was trained for
        self.evaluation = evaluation or {}  # the values in which these parameters were the best; empty for others
        self.devices = Devices.of(config.devices)
        self._act = make_act(learner)
        self._key = jax.random.PRNGKey(0)  # greedy actions depend on no random number
        self._carry: PyTree = None
        self._fresh = np.zeros(0, bool)  # (E,) the environments in which the next action is the first of an episode

    def __repr__(self) -> str:
        return f"Team({self.config.algo!r} on {self.config.env!r}, trained for {self.step:,} steps)"

    def reset(self, mask: Any = None) -> None:
        """Begin an episode: in all environments, or in those that an (E,) mask marks.

        After a reset of all, the next `act` says how many environments there are.
        """
        if mask is None:
            self._carry, self._fresh = None, np.zeros(0, bool)
            return
        mask = np.asarray(mask, bool)
        if mask.shape != self._fresh.shape:
            raise EmuError(
                f"reset(mask) takes one value for each environment: the mask has shape {list(mask.shape)}, and the "
                f"team acts in {len(self._fresh)} environments. Without a mask, all begin anew."
            )
        self._fresh = self._fresh | mask

    def act(self, obs: Any, avail: Any = None) -> np.ndarray:
        """Every agent's greedy action.

        Args:
            obs: What the agents see, (N, O) for one environment or (E, N, O) for E of them.
            avail: Which actions they may take, (N, A) or (E, N, A) bool; None: all of them.

        Returns:
            (N,) or (E, N) int32; continuous actions: (N, D) or (E, N, D) float32 in [-1, 1].
        """
        spec = self.env.spec
        obs = np.asarray(obs, spec.obs_type)
        single = obs.ndim == 2
        obs = obs[None] if single else obs
        self._require_shape("obs", obs, (spec.n_agents, spec.obs_dim), single)
        if avail is None:
            avail = np.ones((len(obs), spec.n_agents, spec.n_actions), bool)
        else:
            avail = np.asarray(avail, bool)
            avail = avail[None] if single else avail
            self._require_shape("avail", avail, (spec.n_agents, spec.n_actions), single, len(obs))
        if not avail.any(axis=-1).all():
            copy, agent = np.argwhere(~avail.any(axis=-1))[0].tolist()
            where = "" if single else f" in environment {copy}"
            raise EmuError(f"Agent {agent}{where} has no action to choose from: its row of avail is all false.")
        self._begin(len(obs))
        done, self._carry = self._act(
            self.policy, self._carry, self._fresh, obs, avail, np.float32(0), self._key, np.int32(0)
        )
        self._fresh = np.zeros(len(obs), bool)
        actions = np.asarray(done["action"])
        return actions[0] if single else actions

    def _begin(self, copies: int) -> None:
        """The first action after `reset` says how many environments there are."""
        if self._carry is None:
            self._carry, self._fresh = self.learner.initial_carry(copies), np.ones(copies, bool)
        elif copies != len(self._fresh):
            raise EmuError(
                f"The team acts in {len(self._fresh)} environments, and now there are {copies}. Call reset() first."
            )

    @staticmethod
    def _require_shape(
        name: str, array: np.ndarray, wanted: tuple[int, int], single: bool, copies: int | None = None
    ) -> None:
        if array.ndim == 3 and array.shape[1:] == wanted and copies in (None, len(array)):
            return
        shape = list(array.shape[1:] if single else array.shape)
        many = "E" if copies is None else str(copies)
        raise EmuError(
            f"{name} has shape {shape}; this team takes {list(wanted)} for one environment, or "
            f"[{many}, {wanted[0]}, {wanted[1]}] for several."
        )


def load_team(folder: Path, which: Which = "best", trust: bool = False) -> Team:
    """A team of a run, or the one in a folder that `emu export-team` wrote.

    `which`: "best" (of the best evaluation), "last" (of the newest checkpoint), or the step of a kept checkpoint.
    `trust`: its settings may name code from outside, which is imported and run.
    """
    exported = is_exported(folder)
    config = read_exported_config(folder) if exported else read_config(folder)
    require_trusted(folder, config, trust)
    configure_cpu_devices(config.devices)
    env = envs.make(config.env, **config.env_args)
    learner = build_learner(config, env.spec, Devices.of(config.devices))
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    if exported:
        policy, evaluation = load_exported(folder, learner.policy(state))
    elif which == "best":
        policy, evaluation = load_best(folder, learner.policy(state))
    else:
        step = _checkpoint_step(folder, which)
        policy = learner.policy(load_learner(RunFolder(folder).checkpoint(step), state))
        return Team(config, env, learner, policy, step)
    return Team(config, env, learner, policy, int(evaluation["step"]), evaluation)


def _checkpoint_step(folder: Path, which: Any) -> int:
    """The step of the checkpoint that is asked for, known to exist."""
    steps = RunFolder(folder).checkpoint_steps()
    if not steps:
        raise CheckpointError(f"{folder} has no checkpoint to load a team from.")
    if which == "last":
        return steps[-1]
    if isinstance(which, bool) or not isinstance(which, int | np.integer):
        raise EmuError(f'which must be "best", "last" or a step, not {which!r}.')
    if which not in steps:
        kept = ", ".join(map(str, steps))
        raise CheckpointError(
            f"{folder} has no checkpoint of step {which}; it keeps those of {kept} (`checkpoint.keep` says how many)."
        )
    return int(which)
