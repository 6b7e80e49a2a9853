"""Runs for the page: read one at a time, so that a gigabyte of metrics never lies in memory, and thinned to fit.

A thinned curve's points are means of equally many neighbouring points, so nothing is left out, only smoothed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import EmuError
from emu.run.folder import read_meta
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.names import readable
from emu.study.analysis.runs import (
    RETURN,
    WIN_RATE,
    Run,
    Warn,
    find_runs,
    load_run,
    read_study,
    with_common_goal,
)
from emu.study.analysis.scores import score_of
from emu.study.report.packing import TEXT_PER_BYTE, packed

POINTS = (400, 250, 150, 90, 60, 40, 25)  # of one curve at most; the first that fits is taken
BUDGET = 6_000_000  # characters for all curves
# What is kept when even the last does not fit, in the order in which they are offered.
ALWAYS = (WIN_RATE, RETURN, "train_win_rate", "train_return", "test_length")
SUMMARISED = {"step", "episodes", *ALWAYS}  # what the tables need
EITHER = "score"  # offered where tasks with and without a goal are on one page: what decides on each

Series = dict[str, tuple[np.ndarray, np.ndarray]]  # metric -> steps, values


@dataclasses.dataclass(frozen=True)
class ReportRun:
    """What the page shows of one run: the run with the rows that tables need, all its curves, its provenance."""

    run: Run  # its label is a readable name
    panel: str  # which panel it belongs to: its environment, with the version where there are several
    series: Series
    meta: dict[str, Any]


def read_runs(folder: Path, warn: Warn) -> list[ReportRun]:
    """All runs in and below a folder, in the order of its study if it is one; unreadable ones are named, not shown."""
    place = {entry["folder"]: k for k, entry in enumerate(read_study(folder).get("runs", []))}
    folders = find_runs([folder])
    folders.sort(key=lambda run: place.get(run.relative_to(folder).as_posix(), len(place)))
    found = []
    for path in folders:
        try:
            found.append(_read(path))
        except EmuError as error:
            warn(f"Left out: {error}")
    if not found:
        raise EmuError(f"None of the runs in {folder} can be used.")
    versions: dict[str, set[str]] = {}
    for shown in found:
        versions.setdefault(shown.run.env, set()).add(shown.run.version)
    several = {env for env, known in versions.items() if len(known) > 1}
    return [
        dataclasses.replace(shown, run=run, panel=f"{run.env} ({run.version})" if run.env in several else run.env)
        for shown, run in zip(found, with_common_goal([shown.run for shown in found]), strict=True)
    ]


def _read(folder: Path) -> ReportRun:
    run = load_run(folder)
    read_absolute(folder, missing_ok=True)
    metrics = list(dict.fromkeys(name for row in run.rows for name in row if name != "step"))
    series = {metric: run.series(metric) for metric in metrics}
    rows = [{name: value for name, value in row.items() if name in SUMMARISED} for row in run.rows]
    kept = [row for row in rows if row.keys() - {"step", "episodes"}]
    return ReportRun(run._replace(rows=kept, label=readable(run.label)), run.env, series, read_meta(folder))


def score_metrics(runs: Sequence[ReportRun]) -> dict[str, str]:
    """What decides on each panel: the metric of its evaluations."""
    panels = dict.fromkeys(shown.panel for shown in runs)
    return {panel: score_of([shown.run for shown in runs if shown.panel == panel]).metric for panel in panels}


def thinned(steps: np.ndarray, values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points, each the mean of neighbouring ones."""
    if len(steps) <= points:
        return steps, values
    edges = np.linspace(0, len(steps), points + 1).round().astype(int)[:-1]
    counts = np.diff([*edges, len(steps)])
    return np.add.reduceat(steps, edges) / counts, np.add.reduceat(values, edges) / counts


def curves_payload(runs: Sequence[ReportRun], budget: int = BUDGET) -> dict[str, Any]:
    """Every run's curves, with as many points and metrics as the budget allows."""
    points, metrics = _fitting(runs, budget)
    grids: dict[bytes, int] = {}
    packed_grids: list[dict[str, Any]] = []

    def grid(steps: np.ndarray) -> int:
        """Curves of the same steps share them."""
        steps = steps.round().astype(np.uint32)
        if steps.tobytes() not in grids:
            grids[steps.tobytes()] = len(packed_grids)
            packed_grids.append(packed(steps))
        return grids[steps.tobytes()]

    longest = max((len(s) for shown in runs for name, (s, _) in shown.series.items() if name in metrics), default=0)
    every = {metric for shown in runs for metric in shown.series}
    return {
        "runs": [_record(shown, metrics, points, grid) for shown in runs],
        "grids": packed_grids,
        "metrics": _offered(metrics, list(score_metrics(runs).values())),
        "thinned": points if longest > points else 0,
        "left_out": len(every - metrics),
    }


def _record(shown: ReportRun, metrics: set[str], points: int, grid: Callable[[np.ndarray], int]) -> dict[str, Any]:
    series = {}
    for metric, (steps, values) in shown.series.items():
        if metric in metrics:
            x, y = thinned(steps, values, points)
            series[metric] = {"grid": grid(x), **packed(y.astype(np.float32))}
    return {"panel": shown.panel, "label": shown.run.label, "seed": shown.run.seed, "series": series}


def _offered(metrics: set[str], deciding: list[str]) -> list[str]:
    """Metrics in the order of the list on the page; first what decides on the tasks shown."""
    order = [*dict.fromkeys(deciding), *ALWAYS]
    known = sorted(metrics, key=lambda name: (order.index(name) if name in order else len(order), name))
    return [EITHER] * (len(set(deciding)) > 1) + known


def _fitting(runs: Sequence[ReportRun], budget: int) -> tuple[int, set[str]]:
    """Points a curve and metrics: the first choice within the budget, the smallest if none is."""
    every = {metric for shown in runs for metric in shown.series}
    for metrics in (every, every & set(ALWAYS)):
        for points in POINTS:
            if _size(runs, metrics, points) <= budget:
                return points, metrics
    return POINTS[-1], every & {WIN_RATE, RETURN}


def _size(runs: Sequence[ReportRun], metrics: set[str], points: int) -> float:
    """Characters at most: values, as many bytes for steps of which no two curves share any, and some JSON."""
    total = 0.0
    for shown in runs:
        chosen = [steps for metric, (steps, _) in shown.series.items() if metric in metrics]
        lengths = [min(len(steps), points) for steps in chosen]
        grids = {(min(len(steps), points), steps[-1]) for steps in chosen}
        total += 4 * TEXT_PER_BYTE * (sum(lengths) + sum(n for n, _ in grids)) + 70 * len(lengths)
    return total
