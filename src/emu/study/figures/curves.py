"""Figures over training time: learning curves, ablations, what the memory recalled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emu.errors import EmuError, did_you_mean
from emu.study.analysis import scores, stats
from emu.study.analysis.names import readable
from emu.study.analysis.runs import Run, by_env, by_label, require_one_version
from emu.study.figures.bands import band_note, draw_curves, draw_score
from emu.study.figures.options import Options
from emu.study.figures.style import PANEL, figure, grid_of, hide_rest, legend, line_styles, note_of, over_steps, plain

RECALL = ("memory_mean_visits", "memory_recall_rate", "memory_share_desirable")


def metric_of(runs: Sequence[Run], metric: str) -> str:
    """What a panel shows: what was asked for, or what decides on its task. Refused where no run has logged it."""
    if not metric:
        return scores.score_of(runs).metric
    if not any(run.has(metric) for run in runs):
        names = {name for run in runs for row in run.rows for name in row}
        raise EmuError(f"None of the runs on {runs[0].env} has values of '{metric}'. {did_you_mean(metric, names)}")
    return metric


def learning_curves(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """A panel per environment, a line per label."""
    require_one_version(runs, options.mix_versions)
    envs, labels = by_env(runs), by_label(runs)
    metrics = {env: metric_of(group, options.metric) for env, group in envs.items()}
    styles, note = line_styles(labels), note_of(runs, band_note(runs, options.band))
    with figure(out, note, *grid_of(len(envs))) as (made, axes):
        for panel, (env, group) in zip(axes.flat, envs.items(), strict=False):
            draw_curves(panel, group, labels, metrics[env], options, styles)
            title = options.title if options.title and len(envs) == 1 else env
            over_steps(panel, metrics[env], title, options.smooth)
        if options.title and len(envs) > 1:
            made.suptitle(options.title)
        hide_rest(axes, len(envs))
        legend(made, axes, note)
    return out


def ablation(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """Curves per environment, the whole method (the first label) solid; below, each label's overall score."""
    require_one_version(runs, options.mix_versions)
    envs, labels = by_env(runs), by_label(runs)
    metrics = {env: metric_of(group, options.metric) for env, group in envs.items()}
    styles, note = line_styles(labels), note_of(runs, band_note(runs, options.band))
    for label in list(labels)[1:]:
        styles[label] |= {"linestyle": "--"}
    heights = (PANEL[1], 0.8 + 0.3 * len(labels))
    size = (PANEL[0] * max(len(envs), 1.4), sum(heights) + 0.6)  # the legend below
    with figure(out, note, 2, len(envs), size, heights) as (made, axes):
        for column, (env, group) in enumerate(envs.items()):
            draw_curves(axes[0, column], group, labels, metrics[env], options, styles)
            over_steps(axes[0, column], metrics[env], env, options.smooth)
            _bars(axes[1, column], group, list(labels), styles)
        made.suptitle(options.title or None)
        legend(made, axes[:1], note)
    return out


def _bars(axes: Any, runs: Sequence[Run], labels: list[str], styles: dict[str, dict[str, Any]]) -> None:
    """Horizontal bars of the overall score, the first label on top."""
    until, groups = scores.common_end(runs), by_label(runs)
    for place, label in enumerate(labels):
        if label in groups:
            draw_score(axes, place, scores.run_scores(groups[label], "overall", until), styles[label]["color"], 0.65)
    axes.set(yticks=range(len(labels)), yticklabels=map(readable, labels), xlabel=overall_name(runs))
    if scores.score_of(runs) == scores.WINS:
        axes.set_xlim(0, 1)
    axes.invert_yaxis()
    plain(axes)


def overall_name(runs: Sequence[Run]) -> str:
    """The axis of bars, with what is drawn on them."""
    counts = [len(group) for group in by_label(runs).values()]
    drawn = ["95 % CI"] * (max(counts) >= stats.ENOUGH_SEEDS) + ["dots: seeds"] * (min(counts) < stats.ENOUGH_SEEDS)
    return f"overall {scores.score_of(runs).name} ({', '.join(drawn)})"


def recall(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """A row per environment: how often entries were visited, recalls that found one, share of desirable entries."""
    remembering = [run for run in runs if run.has(RECALL[0])]
    if not remembering:
        raise EmuError(f"None of these runs has logged a memory ({RECALL[0]} in their metrics).")
    require_one_version(remembering, options.mix_versions)
    envs, labels = by_env(remembering), by_label(remembering)
    styles, note = line_styles(labels), note_of(remembering, band_note(remembering, options.band))
    with figure(out, note, len(envs), len(RECALL)) as (made, axes):
        for row, (env, group) in enumerate(envs.items()):
            for panel, metric in zip(axes[row], RECALL, strict=True):
                draw_curves(panel, group, labels, metric, options, styles)
                over_steps(panel, metric, env, options.smooth)
        made.suptitle(options.title or None)
        legend(made, axes, note)
    return out
