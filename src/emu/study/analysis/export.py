"""Runs as the JSON of marl-eval (Gorsane et al., 2022), so that its tools can read them.

    environment -> task -> algorithm -> seed_k -> step_i {step_count, elapsed_time, metrics: [values]}, absolute_metrics

marl-eval takes it that all runs have the same evaluations and that `absolute_metrics` comes last, so runs are cut to
the evaluations that all of one task have, and absolute metrics are exported when every run of the task has them. Names
of environments and tasks are in lower case, as its look-ups expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emu.errors import EmuError
from emu.files import replace_json, writing
from emu.run.metrics import read_timing
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.runs import Run, by_env

METRICS = {"win_rate": "test_win_rate", "return": "test_return", "length": "test_length"}


def marl_eval(runs: Sequence[Run]) -> dict[str, Any]:
    """All runs as one nested dictionary."""
    data: dict[str, Any] = {}
    for env, group in by_env(runs).items():
        environment, _, task = env.lower().partition("/")
        evaluations = min(len(_evaluations(run)) for run in group)
        absolute = all(read_absolute(run.folder, missing_ok=True) for run in group)
        algorithms = data.setdefault(environment, {}).setdefault(task or environment, {})
        for run in group:
            seeds = algorithms.setdefault(run.label, {})
            name = f"seed_{run.seed}"
            if name in seeds:
                raise EmuError(f"Two runs of '{run.label}' on {env} have seed {run.seed}: export them apart.")
            seeds[name] = _steps(run, evaluations) | (_absolute(run) if absolute else {})
    return data


def export(runs: Sequence[Run], out: Path) -> Path:
    if out.suffix != ".json":
        raise EmuError(f"The export is a .json file, not '{out.name}'.")
    content = marl_eval(runs)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_json(out, content, indent=1)
    return out


def _evaluations(run: Run) -> list[dict[str, float]]:
    found = [row for row in run.rows if all(name in row for name in METRICS.values())]
    if not found:
        raise EmuError(f"{run.folder} has no evaluation yet, so there is nothing to export.")
    return found


def _steps(run: Run, evaluations: int) -> dict[str, Any]:
    """The first evaluations of a run; each is logged as its mean, so each list holds one value."""
    walls = _walls(run.folder)
    first = next(iter(walls.values()), 0.0)
    steps = {}
    for number, row in enumerate(_evaluations(run)[:evaluations]):
        counted = {"step_count": int(row["step"]), "elapsed_time": walls.get(int(row["step"]), first) - first}
        steps[f"step_{number}"] = counted | {name: [row[key]] for name, key in METRICS.items()}
    return steps


def _walls(folder: Path) -> dict[int, float]:
    """Wall-clock time of every evaluation; a resumed run counts its pause."""
    return {int(row["step"]): float(row["wall"]) for row in read_timing(folder)}


def _absolute(run: Run) -> dict[str, Any]:
    content = read_absolute(run.folder)
    return {"absolute_metrics": {name: content[name] for name in METRICS}}
