"""A trained team, loaded from a run's folder and ready to act."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax

from emu import envs
from emu.config import Config
from emu.devices import Devices, configure_cpu_devices
from emu.envs.protocols import Env
from emu.learners.base import Learner
from emu.learners.build import build_learner
from emu.run.best import load_best
from emu.run.folder import read_config
from emu.run.trust import require_trusted
from emu.types import PyTree


@dataclasses.dataclass(frozen=True)
class Team:
    config: Config
    env: Env
    learner: Learner
    policy: PyTree
    best: dict[str, float]  # the test in which these parameters were the best
    devices: Devices


def load_team(run: Path, trust: bool = False) -> Team:
    """The best team of a run. `trust`: its settings may name code from outside, which is imported and run."""
    config = read_config(run)
    require_trusted(run, config, trust)
    configure_cpu_devices(config.devices)
    env, devices = envs.make(config.env, **config.env_args), Devices.of(config.devices)
    learner = build_learner(config, env.spec, devices)
    like = learner.policy(jax.jit(learner.init)(jax.random.PRNGKey(0)))
    policy, best = load_best(run, like)
    return Team(config, env, learner, policy, best, devices)
