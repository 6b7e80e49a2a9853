"""How much memory a run may come to need, estimated before anything of it is taken.

A run that fills the machine's memory is killed hours after its start, without a word. So the stores count with all that
they may ever hold, and what the machine has not is refused, with the figures and the settings behind them.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from emu.config import Config
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.base import Learner
from emu.training.live import human_bytes

CONTAINERS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # where Linux limits a group
EPISODE = 500  # bytes of an evaluated episode beside its rewards
ACTIVATIONS = 10  # numbers of an agent's hidden size that an update keeps for every step


class Part(NamedTuple):
    """Something that takes memory, and the settings that decide how much."""

    name: str
    bytes: int
    settings: str


def require_memory(config: Config, spec: EnvSpec, learner: Learner, available: int | None = None) -> None:
    """Refuse a run that may need more memory than this machine (or the container it is in) has."""
    available = machine_bytes() if available is None else available
    parts = sorted(estimate(config, spec, learner), key=lambda part: part.bytes, reverse=True)
    total = sum(part.bytes for part in parts)
    if total > available:
        large = [part for part in parts if part.bytes > total // 20]
        named = "; ".join(f"{part.name} {human_bytes(part.bytes)} ({part.settings})" for part in large)
        raise ConfigError(
            f"This run may come to need {human_bytes(total)} of memory, but this machine has "
            f"{human_bytes(available)}: {named}. Lower the settings in brackets."
        )


def estimate(config: Config, spec: EnvSpec, learner: Learner) -> list[Part]:
    """What a run holds when every store is full; the programs themselves and the environments' own memory aside."""
    rollout, learning, episodes = config.rollout, config.learner, config.eval.episodes
    step, limit = spec.step_bytes, spec.episode_limit + 1
    devices = config.devices or jax.device_count()
    weights = devices * tree_bytes(jax.eval_shape(learner.init, jax.random.PRNGKey(0)))
    drawn = learning.batch_size * (1 if config.replay.unit == "steps" else limit)
    kept = ACTIVATIONS * 4 * spec.n_agents * config.agent.hidden
    sizes = "agent.hidden, mixer.embed, mixer.hyper_hidden, dqn.hidden, td3.hidden, devices"
    return [
        Part("the replay", _replay_bytes(config, step, limit), "replay.gigabytes, replay.episodes, replay.steps"),
        Part("the episodic memory", _memory_bytes(config, spec, learner), "memory.gigabytes, memory.capacity"),
        Part("the rollout", rollout.envs * step * (2 * rollout.chunk + limit), "rollout.envs, rollout.chunk"),
        Part("the networks", weights, sizes),
        Part(
            "an update",
            drawn * (2 * step * learning.updates_per_call + kept),
            "learner.batch_size, learner.updates_per_call, agent.hidden",
        ),
        Part("an evaluation", episodes * (4 * limit + EPISODE), "eval.episodes"),
    ]


def _replay_bytes(config: Config, step: int, limit: int) -> int:
    kept = config.replay
    return min(int(kept.gigabytes * 1e9), step * (kept.steps if kept.unit == "steps" else kept.episodes * limit))


def _memory_bytes(config: Config, spec: EnvSpec, learner: Learner) -> int:
    if not learner.needs_memory:
        return 0
    return config.memory.bounded_capacity(spec.state_dim) * config.memory.entry_bytes(spec.state_dim)


def tree_bytes(shapes: Any) -> int:
    """Of all arrays in a tree of shapes."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(shapes))


def machine_bytes() -> int:
    """The memory that this process may use at most: the machine's, its container's, or the shell's limit."""
    found = [1 << 62]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in CONTAINERS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            found.append(int(Path(path).read_text("utf-8")))
    with contextlib.suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        found += [soft] if soft != resource.RLIM_INFINITY else []
    return min(found)
