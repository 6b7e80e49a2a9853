"""Study folders made of invented numbers: what a study leaves behind, without the training.

    folder = make_study(tmp_path, labels={"emu_qplex": ("emu_qplex", {}), "qplex": ("qplex", {})}, seeds=3)

Win rates rise like 1 / (1 + exp(-k (step - middle))), later for later labels and a little later for each seed, so that
the first label is the best. Values depend on nothing but the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.config import to_dict
from emu.config.presets import preset

LABELS: Mapping[str, tuple[str, dict[str, Any]]] = {"emu_qplex": ("emu_qplex", {}), "qplex": ("qplex", {})}
STEPS = 100_000


def write_run(
    folder: Path,
    algo: str = "qmix",
    env: str = "gridworld",
    seed: int = 0,
    version: str = "1",
    points: Sequence[tuple[int, float]] = ((0, 0.0), (100, 0.5), (200, 1.0)),
    memory: bool = False,
    overrides: Mapping[str, Any] | None = None,
    has_goal: bool | None = None,
) -> Path:
    """One run folder with the given (step, win rate) points; returns are ten times the win rate.

    `has_goal` is written into meta.json; with False the win rates are 0 and the points say the returns only.
    """
    folder.mkdir(parents=True)
    config = preset(algo, env, **{"steps": points[-1][0] or 1, **(overrides or {}), "seed": seed})
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    described = {"name": env, "version": version} | ({} if has_goal is None else {"has_goal": has_goal})
    (folder / "meta.json").write_text(json.dumps({"env": described}))
    rows: list[dict[str, float]] = []
    timing: list[dict[str, float]] = []
    for number, (step, value) in enumerate(points):
        length = 30.0 - 10.0 * value
        won = 0.0 if has_goal is False else value
        test = {"test_win_rate": won, "test_return": 10 * value, "test_return_std": 1.0, "test_length": length}
        rows += [{"step": step, **test}]
        if number:
            train = {"episodes": 100 * number, "train_win_rate": 0.8 * won, "train_return": 8 * value}
            rows += [{"step": step, **train, "loss": 1 / number, **(_memory(step, value) if memory else {})}]
        timing += [{"step": step, "wall": 1.0e9 + 60.0 * number}]
    _write_lines(folder / "metrics.jsonl", rows)
    _write_lines(folder / "timing.jsonl", timing)
    return folder


def make_study(
    folder: Path,
    envs: Sequence[str] = ("gridworld",),
    labels: Mapping[str, tuple[str, dict[str, Any]]] = LABELS,
    seeds: int = 3,
    scale: str = "laptop",
    tests: int = 11,
    memory: bool = True,
    has_goal: bool | None = None,
) -> Path:
    """A study folder: labels are {what the curve is called: (algorithm, overrides)}."""
    entries = []
    for env in envs:
        for place, (label, (algo, overrides)) in enumerate(labels.items()):
            for seed in range(seeds):
                name = f"runs/{env.replace('/', '-')}/{label}/seed{seed}"
                points = curve(place, seed, tests)
                write_run(
                    folder / name, algo, env, seed, "1", points, memory=memory, overrides=overrides, has_goal=has_goal
                )
                entries.append(
                    {"folder": name, "env": env, "label": label, "algo": algo, "seed": seed, "overrides": overrides}
                )
    study = {"name": "synthetic", "title": "A synthetic study", "scale": scale, "command": "none", "runs": entries}
    (folder / "study.json").write_text(json.dumps(study, indent=2))
    return folder


def curve(place: int, seed: int, tests: int = 11) -> list[tuple[int, float]]:
    """Win rates in thirty-seconds, as 32 test episodes give them."""
    steps = np.linspace(0, STEPS, tests).astype(int)
    middle = STEPS * (0.3 + 0.15 * place + 0.03 * seed)
    values = np.round(32 / (1 + np.exp(-(steps - middle) / (0.08 * STEPS)))) / 32
    return [(int(step), float(value)) for step, value in zip(steps, values, strict=True)]


def _memory(step: int, value: float) -> dict[str, float]:
    """The values that a run with a memory logs."""
    return {
        "memory_size": float(step // 2),
        "memory_bytes": float(step // 2 * 120),
        "memory_mean_visits": 1 + 4 * value,
        "memory_share_desirable": 0.5 * value,
        "memory_hit_rate": 0.8 * value,
        "memory_recall_rate": 0.9 * value,
        "incentive_hit_rate": 0.85 * value,
        "incentive_bonus": 0.1 * value,
    }


def _write_lines(path: Path, rows: list[dict[str, float]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
