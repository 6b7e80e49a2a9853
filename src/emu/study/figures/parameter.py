"""The study of one parameter: curves by its value, and overall scores over its values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emu.errors import EmuError, did_you_mean
from emu.study.analysis import scores
from emu.study.analysis.names import readable, seeds_text, short_number
from emu.study.analysis.runs import Run, by_env, require_one_version, settings, varied_settings
from emu.study.figures.bands import band_note, draw_curve, draw_score
from emu.study.figures.curves import metric_of, overall_name
from emu.study.figures.options import Options
from emu.study.figures.style import figure, legend, line_styles, note_of, over_steps, plain, shades

SYMBOLS = {"memory.radius": "δ", "memory.embedder.reconstruction_weight": "λ", "memory.control_weight": "λ"}


def parameter(runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """A row per environment: curves by the parameter's value, a panel per variant; then overall scores."""
    require_one_version(runs, options.mix_versions)
    name = options.parameter or the_parameter(runs)
    variants = by_variant(runs, name)
    values = sorted({settings(run.config)[name] for run in runs})
    colours = dict(zip(values, shades(len(values)), strict=True))
    envs, note = by_env(runs), note_of(runs, band_note(runs, options.band))
    metrics = {env: metric_of(group, options.metric) for env, group in envs.items()}
    with figure(out, note, len(envs), len(variants) + 1) as (made, axes):
        for row, env in enumerate(envs):
            here = {variant: [run for run in group if run.env == env] for variant, group in variants.items()}
            for panel, (variant, members) in zip(axes[row], here.items(), strict=False):
                _by_value_curves(panel, members, name, metrics[env], options, colours)
                over_steps(panel, metrics[env], f"{env}, {variant}", options.smooth)
            _over_values(axes[row, -1], here, values, name)
        made.suptitle(options.title or None)
        legend(made, axes[:, :-1], note)
    return out


def _by_value_curves(
    axes: Any, runs: list[Run], name: str, metric: str, options: Options, colours: dict[float, Any]
) -> None:
    groups = {value: [run for run in group if run.has(metric)] for value, group in by_value(runs, name).items()}
    counts = seeds_text(len(group) for group in groups.values()) if groups else ""
    for value, group in groups.items():
        if group:
            label = f"{SYMBOLS.get(name, name)} = {short_number(value)}, {counts}"
            draw_curve(axes, group, metric, options, label, {"color": colours[value]})


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
        words = [readable(str(settings(run.config)[other])) for other in others]
        groups.setdefault(" ".join([readable(run.algo)] * (several or not words) + words), []).append(run)
    return groups


def by_value(runs: Sequence[Run], name: str) -> dict[float, list[Run]]:
    groups: dict[float, list[Run]] = {}
    for run in sorted(runs, key=lambda run: settings(run.config)[name]):
        groups.setdefault(settings(run.config)[name], []).append(run)
    return groups


def _over_values(axes: Any, variants: dict[str, list[Run]], values: list[float], name: str) -> None:
    """Bars of the overall score, side by side for the variants of each value."""
    runs = [run for members in variants.values() for run in members]
    until, width = scores.common_end(runs), 0.8 / len(variants)
    for number, ((variant, members), style) in enumerate(
        zip(variants.items(), line_styles(variants).values(), strict=True)
    ):
        for value, group in by_value(members, name).items():
            place = values.index(value) + (number + 0.5) * width - 0.4
            found = scores.run_scores(group, "overall", until)
            draw_score(axes, place, found, style["color"], width * 0.92, upright=True)
        axes.bar([0], [0], color=style["color"], alpha=0.55, label=variant)
    plain(axes)
    axes.set(xticks=range(len(values)), xticklabels=[short_number(value) for value in values])
    axes.set(xlabel=SYMBOLS.get(name, name), ylabel=overall_name(runs))
    if scores.score_of(runs) == scores.WINS:
        axes.set_ylim(0, 1.03)
    if len(variants) > 1:
        axes.legend(frameon=False, fontsize=8)
