"""Figures that compare labels over all environments at once: performance profile, improvement, interquartile mean."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import EmuError
from emu.study.analysis import stats
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.runs import Run, by_env, require_one_version
from emu.study.figures.style import figure, legend, looks, plain

NAMES = {
    "last": "last win rate",
    "overall": "overall win-rate",
    "best": "best win rate",
    "absolute": "absolute win rate",
}
THRESHOLDS = np.linspace(0, 1, 101)


def performance_profile(
    runs: Sequence[Run], out: Path, measure: stats.Measure = "overall", mix_versions: bool = False, title: str = ""
) -> Path:
    """Share of runs that score above each threshold, with pointwise intervals."""
    require_one_version(runs, mix_versions)
    scores = stats.scores_by_label(runs, measure)
    with figure(out, runs) as (made, axes):
        panel = axes[0, 0]
        for (label, tasks), look in zip(scores.items(), looks(scores).values(), strict=True):
            share, low, high = stats.profile_interval(tasks, THRESHOLDS)
            panel.plot(THRESHOLDS, share, label=label, linewidth=1.8, **look)
            panel.fill_between(THRESHOLDS, low, high, color=look["color"], alpha=0.16, linewidth=0)
        plain(panel)
        panel.set(xlim=(0, 1), ylim=(-0.03, 1.03), xlabel=f"{NAMES[measure]} τ", ylabel="share of runs above τ")
        panel.set_title(title or over_what(runs))
        legend(made, axes, runs)
    return out


def improvement(
    runs: Sequence[Run], out: Path, measure: stats.Measure = "overall", mix_versions: bool = False, title: str = ""
) -> Path:
    """P(X > Y) of every pair of labels, with intervals; one half means that neither is better."""
    require_one_version(runs, mix_versions)
    scores = stats.scores_by_label(runs, measure)
    pairs = list(combinations(scores, 2))
    if not pairs:
        raise EmuError("A comparison needs runs of two labels at least.")
    names = [f"{first}  >  {second}" for first, second in pairs]
    found = [stats.improvement_interval(scores[first], scores[second]) for first, second in pairs]
    with figure(out, runs, size=(7, 1.6 + 0.4 * len(pairs))) as (_, axes):
        panel = axes[0, 0]
        _intervals(panel, names, found, ["#2f6db5"] * len(pairs))
        panel.axvline(0.5, color="#555555", linewidth=1, linestyle="--")
        panel.set(xlim=(-0.02, 1.02), xlabel=f"probability of improvement, {NAMES[measure]}")
        panel.set_title(title or over_what(runs))
    return out


def interquartile_means(runs: Sequence[Run], out: Path, mix_versions: bool = False, title: str = "") -> Path:
    """Interquartile means over environments and seeds with intervals, a panel per measure."""
    require_one_version(runs, mix_versions)
    measures: list[stats.Measure] = ["last", "overall"]
    if all(read_absolute(run.folder, missing_ok=True) for run in runs):
        measures.append("absolute")
    names = list(stats.scores_by_label(runs, "last"))
    colours = [look["color"] for look in looks(names).values()]
    size = (3.4 * len(measures) + 1, 1.6 + 0.4 * len(names))
    with figure(out, runs, 1, len(measures), size) as (made, axes):
        for panel, measure in zip(axes.flat, measures, strict=True):
            found = [stats.interval(tasks) for tasks in stats.scores_by_label(runs, measure).values()]
            _intervals(panel, names, found, colours)
            panel.set(xlim=(-0.02, 1.02), xlabel=f"IQM of the {NAMES[measure]}")
        for panel in axes.flat[1:]:
            panel.set_yticklabels([])
        made.suptitle(title or over_what(runs))
    return out


def _intervals(axes: Any, names: list[str], found: list[stats.Interval], colours: list[str]) -> None:
    """A horizontal bar from low to high for each name, with a mark at the value; the first on top."""
    for place, (interval, colour) in enumerate(zip(found, colours, strict=True)):
        axes.barh(place, interval.high - interval.low, left=interval.low, height=0.5, color=colour, alpha=0.35)
        axes.plot([interval.value] * 2, [place - 0.25, place + 0.25], color=colour, linewidth=2.5)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    plain(axes)


def over_what(runs: Sequence[Run]) -> str:
    """What a comparison is made over."""
    envs = list(by_env(runs))
    return envs[0] if len(envs) == 1 else f"{len(envs)} environments"
