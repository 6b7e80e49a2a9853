"""Figures that compare labels over all environments at once: performance profile, improvement, interquartile mean."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import EmuError
from emu.study.analysis import scores, stats
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.names import readable, seeds_text
from emu.study.analysis.runs import Run, by_env, by_label, require_one_version
from emu.study.figures.bands import draw_seeds, named
from emu.study.figures.options import Options
from emu.study.figures.style import figure, legend, line_styles, note_of, plain

THRESHOLDS = np.linspace(0, 1, 201)
ALIKE = "; none where all pairs of seeds agree"
SURE, FEW = "shade: 95 % interval", f"fewer than {stats.ENOUGH_SEEDS} seeds: no interval"


def interval_note(found: dict[str, list[np.ndarray]], instead: str = "") -> str:
    """What lies around the values, or what is shown instead where seeds are too few."""
    return SURE if stats.enough(*found.values()) else FEW + instead


def performance_profile(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """Share of runs that score above each threshold, with pointwise intervals."""
    require_one_version(runs, options.mix_versions)
    found, labels = scores.scores_by_label(runs, options.measure), by_label(runs)
    note = note_of(runs, interval_note(found))
    with figure(out, note) as (made, axes):
        panel = axes[0, 0]
        for (label, tasks), style in zip(found.items(), line_styles(found).values(), strict=True):
            share, low, high = stats.profile_interval(tasks, THRESHOLDS)
            panel.plot(THRESHOLDS, share, label=named(label, labels[label]), linewidth=1.8, **style)
            if low is not None and high is not None:
                panel.fill_between(THRESHOLDS, low, high, color=style["color"], alpha=0.16, linewidth=0)
        plain(panel)
        name = scores.measure_name(options.measure, runs)
        panel.set(xlim=(0, 1), ylim=(-0.03, 1.03), xlabel=f"{name} τ", ylabel="share of runs above τ")
        panel.set_title(options.title or over_what(runs))
        legend(made, axes, note)
    return out


def improvement(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """P(X > Y) of every pair of labels, with intervals; one half means that neither is better."""
    require_one_version(runs, options.mix_versions)
    found = scores.scores_by_label(runs, options.measure)
    pairs = list(combinations(found, 2))
    if not pairs:
        raise EmuError("A comparison needs runs of two labels at least.")
    counted = seeds_text(len(task) for tasks in found.values() for task in tasks)
    intervals = [stats.improvement_interval(found[first], found[second]) for first, second in pairs]
    unanimous = stats.enough(*found.values()) and not all(interval.known for interval in intervals)
    note = note_of(runs, interval_note(found) + (ALIKE if unanimous else ""))
    with figure(out, note, size=(7, 1.6 + 0.4 * len(pairs))) as (_, axes):
        panel = axes[0, 0]
        for place, interval in enumerate(intervals):
            _draw_interval(panel, place, interval, "#2f6db5")
        _rows(panel, [f"{readable(first)}  >  {readable(second)}" for first, second in pairs])
        panel.axvline(0.5, color="#555555", linewidth=1, linestyle="--")
        name = scores.measure_name(options.measure, runs)
        panel.set(xlim=(-0.02, 1.02), xlabel=f"probability of improvement, {name}, {counted}")
        panel.set_title(options.title or over_what(runs))
    return out


def interquartile_means(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """Interquartile means over environments and seeds with intervals, a panel per measure."""
    require_one_version(runs, options.mix_versions)
    measures: list[scores.Measure] = ["last", "overall"]
    if all(read_absolute(run.folder, missing_ok=True) for run in runs):
        measures.append("absolute")
    found = {measure: scores.scores_by_label(runs, measure) for measure in measures}
    labels = by_label(runs)
    size = (3.4 * len(measures) + 1.4, 1.6 + 0.4 * len(labels))
    note = note_of(runs, interval_note(found["last"], "; dots: seeds"))
    with figure(out, note, 1, len(measures), size) as (made, axes):
        for panel, measure in zip(axes.flat, measures, strict=True):
            for place, (label, style) in enumerate(line_styles(labels).items()):
                interval = stats.interval(found[measure][label])
                _draw_interval(panel, place, interval, style["color"])
                if not interval.known:
                    draw_seeds(panel, place, np.concatenate(found[measure][label]), style["color"])
            _rows(panel, [named(label, members) for label, members in labels.items()])
            panel.set(xlim=(-0.02, 1.02), xlabel=f"IQM, {scores.measure_name(measure, runs)}")
        for panel in axes.flat[1:]:
            panel.set_yticklabels([])
        made.suptitle(options.title or over_what(runs))
    return out


def _draw_interval(axes: Any, place: int, interval: stats.Interval, colour: str) -> None:
    """A horizontal bar from low to high, where there is one, with a mark at the value."""
    if interval.known:
        axes.barh(place, interval.high - interval.low, left=interval.low, height=0.5, color=colour, alpha=0.35)
    axes.plot([interval.value] * 2, [place - 0.25, place + 0.25], color=colour, linewidth=2.5)


def _rows(axes: Any, names: list[str]) -> None:
    """A row for each name, the first on top."""
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    plain(axes)


def over_what(runs: Sequence[Run]) -> str:
    """What a comparison is made over."""
    envs = list(by_env(runs))
    return envs[0] if len(envs) == 1 else f"{len(envs)} environments"
