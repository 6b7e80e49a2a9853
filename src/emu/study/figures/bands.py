"""A label's curve over its seeds, and its score: what is drawn depends on how many seeds there are.

    1 seed          a thin line
    2 to 4 seeds    a thin line for each, and their mean; no interval, which so few seeds cannot give
    5 and more      the mean in a shade: its 95 % interval, or one standard deviation, or a thin line for each seed

A mean goes as far as all of its seeds go; thin lines go to the end of their run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from emu.errors import EmuError, did_you_mean
from emu.study.analysis import stats
from emu.study.analysis.names import readable, seeds_text
from emu.study.analysis.runs import Run, aligned, by_env, by_label, smoothed
from emu.study.figures.options import Band, Options
from emu.study.figures.style import bounds

MEAN, SEED = 2.0, 0.9  # widths of lines
TRAINING = "dotted: training episodes, exploration included"


def named(label: str, runs: Sequence[Run]) -> str:
    """A label as legends show it, with its number of seeds in each environment."""
    return f"{readable(label)}, {seeds_text(len(group) for group in by_env(runs).values())}"


def band_note(runs: Sequence[Run], band: str) -> str:
    """What lies around the means of a figure, in words."""
    counts = {len(group) for members in by_env(runs).values() for group in by_label(members).values()}
    shaded = band != "seeds" and max(counts) >= stats.ENOUGH_SEEDS
    words = {"std": "shade: one standard deviation over seeds", "seeds": ""}
    notes = [words.get(band, "shade: 95 % interval of the mean") if shaded else ""]
    if any(count > 1 and (count < stats.ENOUGH_SEEDS or not shaded) for count in counts):
        notes.append("thin: seeds, thick: their mean")
    return " · ".join(note for note in notes if note)


def draw_curves(
    axes: Any,
    group: Sequence[Run],
    labels: dict[str, list[Run]],
    metric: str,
    options: Options,
    styles: dict[str, dict[str, Any]],
) -> None:
    """A curve for every label among the runs of one panel; runs without the metric are left out."""
    having = [run for run in group if run.has(metric)]
    for label, members in by_label(having).items():
        draw_curve(axes, members, metric, options, named(label, labels[label]), styles[label])
    if options.training and metric.startswith("test_") and having:
        axes.plot([], [], color="#555555", linestyle=":", linewidth=1.4, label=TRAINING)


def draw_curve(axes: Any, runs: Sequence[Run], metric: str, options: Options, name: str, style: dict[str, Any]) -> None:
    """The runs of one label in one panel."""
    if options.band not in get_args(Band):
        raise EmuError(f"No band is called '{options.band}'. {did_you_mean(options.band, get_args(Band))}")
    training = metric.replace("test_", "train_")
    if options.training and training != metric and all(run.has(training) for run in runs):
        steps, values = aligned(runs, training, options.smooth)
        axes.plot(steps, values.mean(axis=0), **{**style, "linestyle": ":", "linewidth": 1.2})
    if len(runs) == 1:
        steps, values = runs[0].series(metric)
        axes.plot(steps, smoothed(values, options.smooth), label=name, **{**style, "linewidth": SEED})
        return
    steps, values = aligned(runs, metric, options.smooth)
    axes.plot(steps, values.mean(axis=0), label=name, **{"linewidth": MEAN, **style})
    if len(runs) < stats.ENOUGH_SEEDS or options.band == "seeds":
        _draw_seeds(axes, runs, metric, options.smooth, style)
        return
    low, high = _shade(values, options.band)
    axes.fill_between(steps, *np.clip([low, high], *bounds(metric)), color=style["color"], alpha=0.16, linewidth=0)


def _draw_seeds(axes: Any, runs: Sequence[Run], metric: str, smooth: int, style: dict[str, Any]) -> None:
    for run in runs:
        steps, values = run.series(metric)
        axes.plot(steps, smoothed(values, smooth), **{**style, "linewidth": SEED, "alpha": 0.45})


def _shade(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    """One standard deviation around the mean of (seeds, P) values, or the mean's interval."""
    if band == "std":
        mean, deviation = values.mean(axis=0), stats.spread(values)
        return mean - deviation, mean + deviation
    resampled = stats.resample([values], np.random.default_rng(0), 1_000)[0]  # (resamples, seeds, P)
    return stats.quantiles(resampled.mean(axis=1))


def draw_score(axes: Any, place: float, seeds: np.ndarray, colour: Any, width: float, upright: bool = False) -> None:
    """A bar for the mean of some seeds: with its interval where there are enough of them, else with the seeds."""
    found = stats.interval([seeds], stats.mean)
    bar = axes.bar if upright else axes.barh
    bar(place, found.value, width, color=colour, alpha=0.55)
    if found.known:
        error = [[found.value - found.low], [found.high - found.value]]
        dots, key = ([place], [found.value]), "yerr" if upright else "xerr"
        axes.errorbar(*(dots if upright else dots[::-1]), **{key: error}, fmt="none", ecolor="#333333", capsize=3)
    else:
        draw_seeds(axes, place, seeds, colour, upright)


def draw_seeds(axes: Any, place: float, seeds: np.ndarray, colour: Any, upright: bool = False) -> None:
    """A dot for every seed."""
    dots = (np.full(len(seeds), place), seeds)
    axes.scatter(*(dots if upright else dots[::-1]), s=18, color=colour, edgecolor="white", linewidth=0.6, zorder=3)
