"""A value per row of the paper: what each algorithm is, and what each task changes.

An algorithm is a difference to its neighbour; a task adds its own schedule. Keys are dotted paths into `Config`.
"""

from __future__ import annotations

import fnmatch
from typing import Any, NamedTuple

from emu.config import Config, replace
from emu.errors import ConfigError, did_you_mean


class Algorithm(NamedTuple):
    summary: str
    base: str | None  # the neighbour it builds on
    changes: dict[str, Any]


ALGORITHMS: dict[str, Algorithm] = {
    "vdn": Algorithm("sum of the agents' values (Sunehag et al., 2018)", None, {"mixer.kind": "vdn"}),
    "qmix": Algorithm(
        "monotonic mixing by hypernetworks (Rashid et al., 2018)", None, {"mixer.kind": "qmix"}
    ),
    "qplex": Algorithm("duplex dueling mixing (Wang et al., 2021)", None, {"mixer.kind": "qplex"}),
}

# Settings of a task, whatever the algorithm: (pattern of the environment's name, changes). Later rows win.
TASKS: list[tuple[str, dict[str, Any]]] = [
    (
        "matrix/*",
        {
            "steps": 20_000,
            "rollout.epsilon_end": 1.0,
            "eval.interval": 2_000,
            "log_interval": 2_000,
            "checkpoint.interval": 10_000,
            "replay.episodes": 500,
            "rollout.chunk": 8,
        },
    ),
    (
        "gridworld*",
        {"steps": 500_000, "rollout.epsilon_steps": 200_000, "eval.episodes": 30},
    ),
    ("gridworld/tiny", {"steps": 60_000, "rollout.epsilon_steps": 20_000, "eval.interval": 4_000}),
]

# Settings of one algorithm on one task: (algorithm pattern, environment pattern, changes). Later rows win.
PAIRS: list[tuple[str, str, dict[str, Any]]] = []


def lineage(algo: str) -> list[str]:
    """The algorithm and those it builds on, the most basic first."""
    if algo not in ALGORITHMS:
        raise ConfigError(
            f"No algorithm is called '{algo}'. {did_you_mean(algo, ALGORITHMS)} `emu algos` lists them all."
        )
    base = ALGORITHMS[algo].base
    return [*(lineage(base) if base else []), algo]


def preset(algo: str, env: str, **overrides: Any) -> Config:
    """The configuration of an algorithm on a task; `overrides` are dotted keys, with '__' for '.' as well."""
    changes: dict[str, Any] = {"algo": algo, "env": env}
    for pattern, settings in TASKS:
        if fnmatch.fnmatch(env, pattern):
            changes |= settings
    for name in lineage(algo):
        changes |= ALGORITHMS[name].changes
    for algo_pattern, env_pattern, settings in PAIRS:
        if fnmatch.fnmatch(algo, algo_pattern) and fnmatch.fnmatch(env, env_pattern):
            changes |= settings
    changes |= {key.replace("__", "."): value for key, value in overrides.items()}
    return replace(Config(), changes)
