"""Runs for the page: read one at a time, so that a gigabyte of metrics never lies in memory, and thinned to fit.

A thinned curve's points are means of equally many neighbouring points, so nothing is left out, only smoothed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.run.folder import read_meta
from emu.study.analysis.runs import WIN_RATE, Run, find_runs, load_run, read_study
from emu.study.report.packing import TEXT_PER_BYTE, packed

POINTS = (400, 250, 150, 90, 60, 40, 25)  # of one curve at most; the first that fits is taken
BUDGET = 6_000_000  # characters for all curves
ALWAYS = ("test_win_rate", "test_return", "test_length")  # what is kept when even the last does not fit

Series = dict[str, tuple[np.ndarray, np.ndarray]]  # metric -> steps, values


@dataclasses.dataclass(frozen=True)
class Told:
    """What the page tells of one run: the run with its tests only, all its curves, its provenance."""

    run: Run
    panel: str  # which panel it belongs to: its environment, with the version where there are several
    series: Series
    meta: dict[str, Any]


def read_told(folder: Path) -> list[Told]:
    """All runs in and below a folder, in the order of its study if it is one."""
    place = {entry.get("folder"): k for k, entry in enumerate(read_study(folder).get("runs", []))}
    folders = find_runs([folder])
    folders.sort(key=lambda run: place.get(run.relative_to(folder).as_posix(), len(place)))
    told = [_tell(run) for run in folders]
    versions: dict[str, set[str]] = {}
    for t in told:
        versions.setdefault(t.run.env, set()).add(t.run.version)
    return [
        dataclasses.replace(t, panel=f"{t.run.env} ({t.run.version})") if len(versions[t.run.env]) > 1 else t
        for t in told
    ]


def _tell(folder: Path) -> Told:
    run = load_run(folder)
    metrics = list(dict.fromkeys(name for row in run.rows for name in row if name != "step"))
    series = {metric: run.series(metric) for metric in metrics}
    tests = [{k: v for k, v in row.items() if k == "step" or k in ALWAYS} for row in run.rows if WIN_RATE in row]
    return Told(run._replace(rows=tests), run.env, series, read_meta(folder))


def thinned(steps: np.ndarray, values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points, each the mean of neighbouring ones."""
    if len(steps) <= points:
        return steps, values
    edges = np.linspace(0, len(steps), points + 1).round().astype(int)[:-1]
    counts = np.diff([*edges, len(steps)])
    return np.add.reduceat(steps, edges) / counts, np.add.reduceat(values, edges) / counts


def curves_payload(told: Sequence[Told], budget: int = BUDGET) -> dict[str, Any]:
    """Every run's curves, with as many points and metrics as the budget allows."""
    points, metrics = _fitting(told, budget)
    grids: dict[bytes, int] = {}
    packed_grids: list[dict[str, Any]] = []

    def grid(steps: np.ndarray) -> int:
        """Curves of the same steps share them."""
        steps = steps.round().astype(np.uint32)
        if steps.tobytes() not in grids:
            grids[steps.tobytes()] = len(packed_grids)
            packed_grids.append(packed(steps))
        return grids[steps.tobytes()]

    runs = []
    for t in told:
        record: dict[str, Any] = {"panel": t.panel, "label": t.run.label, "seed": t.run.seed, "series": {}}
        for metric, (steps, values) in t.series.items():
            if metric in metrics:
                x, y = thinned(steps, values, points)
                record["series"][metric] = {"grid": grid(x), **packed(y.astype(np.float32))}
        runs.append(record)
    longest = max((len(s) for t in told for name, (s, _) in t.series.items() if name in metrics), default=0)
    every = [metric for t in told for metric in t.series]
    return {
        "runs": runs,
        "grids": packed_grids,
        "metrics": sorted(metrics, key=lambda m: (not m.startswith("test_"), ALWAYS.index(m) if m in ALWAYS else 9, m)),
        "thinned": points if longest > points else 0,
        "left_out": len(set(every) - metrics),
    }


def _fitting(told: Sequence[Told], budget: int) -> tuple[int, set[str]]:
    """Points a curve and metrics: the first choice within the budget, the smallest if none is."""
    every = {metric for t in told for metric in t.series}
    for metrics in (every, every & set(ALWAYS)):
        for points in POINTS:
            if _size(told, metrics, points) <= budget:
                return points, metrics
    return POINTS[-1], every & {WIN_RATE}


def _size(told: Sequence[Told], metrics: set[str], points: int) -> float:
    """Characters at most: values, as many bytes for steps of which no two curves share any, and some JSON."""
    total = 0.0
    for t in told:
        lengths = [min(len(steps), points) for metric, (steps, _) in t.series.items() if metric in metrics]
        grids = {(min(len(steps), points), steps[-1]) for metric, (steps, _) in t.series.items() if metric in metrics}
        total += 4 * TEXT_PER_BYTE * (sum(lengths) + sum(n for n, _ in grids)) + 70 * len(lengths)
    return total
