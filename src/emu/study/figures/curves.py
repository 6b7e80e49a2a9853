"""Figures over training time: learning curves, ablations, the study of one parameter, what the memory recalled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import EmuError, did_you_mean
from emu.study.analysis import stats
from emu.study.analysis.runs import (
    WIN_RATE,
    Run,
    aligned,
    by_env,
    by_label,
    require_one_version,
    settings,
    short_number,
    varied_settings,
)
from emu.study.figures.style import PANEL, figure, grid_of, hide_rest, legend, looks, over_steps, plain, shades

RECALL = ("memory_mean_visits", "memory_recall_rate", "memory_share_desirable")
SYMBOLS = {"memory.radius": "δ", "memory.embedder.reconstruction_weight": "λ", "memory.control_weight": "λ"}


def draw_band(axes: Any, runs: Sequence[Run], metric: str, band: str, name: str, look: dict[str, Any]) -> None:
    """The mean over seeds as far as all of them got, in a shade or over a thin line for each seed to its own end."""
    steps, values = aligned(runs, metric)
    axes.plot(steps, values.mean(axis=0), label=name, **{"linewidth": 1.8, **look})
    if band == "seeds":
        for run in runs:
            axes.plot(*run.series(metric), **{**look, "linewidth": 0.8, "alpha": 0.45})
        return
    low, high = _shade(values, band)
    if metric == WIN_RATE:
        low, high = low.clip(0, 1), high.clip(0, 1)
    axes.fill_between(steps, low, high, color=look["color"], alpha=0.16, linewidth=0)


def _shade(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    """One standard deviation around the mean of (seeds, P) values, or the mean's interval."""
    mean = values.mean(axis=0)
    if band == "ci":
        resampled = stats.resample([values], np.random.default_rng(0), 1_000)[0]  # (resamples, seeds, P)
        return stats.quantiles(resampled.mean(axis=1))
    if band == "std":
        return mean - stats.spread(values), mean + stats.spread(values)
    raise EmuError(f"No band is called '{band}'. {did_you_mean(band, ['std', 'ci', 'seeds'])}")


def named(label: str, runs: Sequence[Run]) -> str:
    """A label with its number of seeds in each environment."""
    counts = sorted({len(group) for group in by_env(runs).values()})
    count = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{label} ({count} seed{'' if count == '1' else 's'})"


def draw_bands(
    axes: Any,
    group: Sequence[Run],
    labels: dict[str, list[Run]],
    metric: str,
    band: str,
    look: dict[str, dict[str, Any]],
) -> None:
    """A line and its spread for every label among the runs of one panel."""
    for label, members in by_label(group).items():
        draw_band(axes, members, metric, band, named(label, labels[label]), look[label])


def learning_curves(
    runs: Sequence[Run],
    out: Path,
    metric: str = WIN_RATE,
    mix_versions: bool = False,
    title: str = "",
    band: str = "std",
) -> Path:
    """A panel per environment, a line per label."""
    require_one_version(runs, mix_versions)
    envs, labels = by_env(runs), by_label(runs)
    look, rows_columns = looks(labels), grid_of(len(envs))
    with figure(out, runs, *rows_columns) as (made, axes):
        for panel, (env, group) in zip(axes.flat, envs.items(), strict=False):
            draw_bands(panel, group, labels, metric, band, look)
            over_steps(panel, metric, title if title and len(envs) == 1 else env)
        if title and len(envs) > 1:
            made.suptitle(title)
        hide_rest(axes, len(envs))
        legend(made, axes, runs)
    return out


def ablation(
    runs: Sequence[Run],
    out: Path,
    metric: str = WIN_RATE,
    mix_versions: bool = False,
    title: str = "",
    band: str = "std",
) -> Path:
    """Curves per environment, the whole method (the first label) drawn thick; below, each label's overall win-rate."""
    require_one_version(runs, mix_versions)
    envs, labels = by_env(runs), by_label(runs)
    look = looks(labels)
    for label in list(labels)[1:]:
        look[label] |= {"linestyle": "--", "linewidth": 1.4}
    look[next(iter(labels))]["linewidth"] = 2.4
    size = (PANEL[0] * max(len(envs), 1.4), PANEL[1] + 1 + 0.3 * len(labels))
    with figure(out, runs, 2, len(envs), size) as (made, axes):
        for column, (env, group) in enumerate(envs.items()):
            draw_bands(axes[0, column], group, labels, metric, band, look)
            over_steps(axes[0, column], metric, env)
            _bars(axes[1, column], group, list(labels), look)
        made.suptitle(title or None)
        legend(made, axes[:1], runs)
    return out


def _bars(axes: Any, runs: Sequence[Run], labels: list[str], look: dict[str, dict[str, Any]]) -> None:
    """Horizontal bars of the overall win-rate with intervals, the first label on top."""
    until, groups = stats.common_end(runs), by_label(runs)
    for place, label in enumerate(labels):
        if label in groups:
            found = stats.interval([stats.overall_win_rates(groups[label], until)], stats.mean)
            error = [[found.value - found.low], [found.high - found.value]]
            axes.barh(place, found.value, xerr=error, color=look[label]["color"], height=0.65, capsize=3, alpha=0.85)
    axes.set(yticks=range(len(labels)), yticklabels=labels, xlim=(0, 1), xlabel="overall win-rate (95 % CI)")
    axes.invert_yaxis()
    plain(axes)


def parameter(
    runs: Sequence[Run],
    out: Path,
    metric: str = WIN_RATE,
    mix_versions: bool = False,
    title: str = "",
    band: str = "std",
    name: str = "",
) -> Path:
    """A row per environment: curves by the parameter's value, a panel per variant; then overall win-rates."""
    require_one_version(runs, mix_versions)
    name = name or the_parameter(runs)
    variants = by_variant(runs, name)
    values = sorted({settings(run.config)[name] for run in runs})
    colour = dict(zip(values, shades(len(values)), strict=True))
    envs = list(by_env(runs))
    symbol = SYMBOLS.get(name, name)
    with figure(out, runs, len(envs), len(variants) + 1) as (made, axes):
        for row, env in enumerate(envs):
            here = {variant: [run for run in group if run.env == env] for variant, group in variants.items()}
            for column, (variant, members) in enumerate(here.items()):
                for value, group in by_value(members, name).items():
                    label = f"{symbol} = {short_number(value)}"
                    draw_band(axes[row, column], group, metric, band, label, {"color": colour[value]})
                over_steps(axes[row, column], metric, f"{env}, {variant}")
            _over_values(axes[row, -1], here, values, name)
        made.suptitle(title or None)
        legend(made, axes[:, :-1], runs)
    return out


def the_parameter(runs: Sequence[Run]) -> str:
    """The one number that a study varies."""
    numbers = [n for n in varied_settings(runs) if _is_number(settings(runs[0].config)[n])]
    if len(numbers) == 1:
        return numbers[0]
    if not numbers:
        raise EmuError("These runs differ in no number of their settings, so there is no parameter to study.")
    raise EmuError(f"These runs differ in several numbers: say which with --parameter. Varied: {', '.join(numbers)}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def by_variant(runs: Sequence[Run], name: str) -> dict[str, list[Run]]:
    """Runs by everything that a study varies but the parameter itself: algorithm, embedder, ..."""
    if name not in settings(runs[0].config):
        raise EmuError(f"No setting is called '{name}'. {did_you_mean(name, settings(runs[0].config))}")
    others = [other for other in varied_settings(runs) if other != name]
    several = len({run.algo for run in runs}) > 1
    groups: dict[str, list[Run]] = {}
    for run in runs:
        words = [str(settings(run.config)[other]) for other in others]
        groups.setdefault(" ".join([run.algo] * (several or not words) + words), []).append(run)
    return groups


def by_value(runs: Sequence[Run], name: str) -> dict[float, list[Run]]:
    groups: dict[float, list[Run]] = {}
    for run in sorted(runs, key=lambda run: settings(run.config)[name]):
        groups.setdefault(settings(run.config)[name], []).append(run)
    return groups


def _over_values(axes: Any, variants: dict[str, list[Run]], values: list, name: str) -> None:
    """Bars of the overall win-rate, side by side for the variants of each value."""
    until = stats.common_end([run for members in variants.values() for run in members])
    width = 0.8 / len(variants)
    for number, ((variant, members), look) in enumerate(zip(variants.items(), looks(variants).values(), strict=True)):
        groups = by_value(members, name)
        for value, group in groups.items():
            found = stats.interval([stats.overall_win_rates(group, until)], stats.mean)
            axes.bar(
                values.index(value) + (number + 0.5) * width - 0.4,
                found.value,
                width * 0.92,
                yerr=[[found.value - found.low], [found.high - found.value]],
                color=look["color"],
                capsize=3,
                alpha=0.85,
                label=variant if value == next(iter(groups)) else None,
            )
    plain(axes)
    axes.set(xticks=range(len(values)), xticklabels=[short_number(value) for value in values], ylim=(0, 1.03))
    axes.set(xlabel=SYMBOLS.get(name, name), ylabel="overall win-rate (95 % CI)")
    if len(variants) > 1:
        axes.legend(frameon=False, fontsize=8)


def recall(runs: Sequence[Run], out: Path, mix_versions: bool = False, title: str = "", band: str = "std") -> Path:
    """A row per environment: how often entries were visited, recalls that found one, share of desirable entries."""
    remembering = [run for run in runs if run.has(RECALL[0])]
    if not remembering:
        raise EmuError("None of these runs has logged a memory (memory_mean_visits in metrics.jsonl).")
    require_one_version(remembering, mix_versions)
    envs, labels = by_env(remembering), by_label(remembering)
    look = looks(labels)
    with figure(out, remembering, len(envs), len(RECALL)) as (made, axes):
        for row, (env, group) in enumerate(envs.items()):
            for panel, metric in zip(axes[row], RECALL, strict=True):
                for label, members in by_label(group).items():
                    draw_band(panel, members, metric, band, named(label, labels[label]), look[label])
                over_steps(panel, metric, env)
        made.suptitle(title or None)
        legend(made, axes, runs)
    return out
