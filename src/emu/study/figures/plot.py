"""`emu plot`: the figures of a study by the name of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from emu.errors import EmuError, did_you_mean
from emu.study.analysis.runs import WIN_RATE, Run, find_runs, load_run
from emu.study.analysis.stats import Measure
from emu.study.figures import comparison, curves
from emu.study.figures.style import require_picture

KINDS = ("curves", "ablation", "parameter", "recall", "profile", "improvement", "iqm", "embedding")

__all__ = ["KINDS", "Options", "draw", "find_runs", "plot_curves"]


class Options(NamedTuple):
    """What a figure may be told; each kind uses what concerns it."""

    metric: str = WIN_RATE  # of curves, ablation, parameter
    measure: Measure = "overall"  # of profile, improvement
    parameter: str = ""  # of parameter; "": the one number that the runs differ in
    band: str = "std"  # of curves: one standard deviation, the mean's interval (ci), or a thin line a seed (seeds)
    mix_versions: bool = False
    title: str = ""


def draw(kind: str, runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """Draw one kind of figure."""
    require_picture(out)
    o = options
    if kind == "curves":
        return curves.learning_curves(runs, out, o.metric, o.mix_versions, o.title, o.band)
    if kind == "ablation":
        return curves.ablation(runs, out, o.metric, o.mix_versions, o.title, o.band)
    if kind == "parameter":
        return curves.parameter(runs, out, o.metric, o.mix_versions, o.title, o.band, o.parameter)
    if kind == "recall":
        return curves.recall(runs, out, o.mix_versions, o.title, o.band)
    if kind == "profile":
        return comparison.performance_profile(runs, out, o.measure, o.mix_versions, o.title)
    if kind == "improvement":
        return comparison.improvement(runs, out, o.measure, o.mix_versions, o.title)
    if kind == "iqm":
        return comparison.interquartile_means(runs, out, o.mix_versions, o.title)
    if kind == "embedding":
        from emu.study.figures.embedding import embeddings  # t-SNE is an extra

        return embeddings(runs, out, o.title)
    raise EmuError(f"No kind of figure is called '{kind}'. {did_you_mean(kind, KINDS)}")


def plot_curves(
    folders: Sequence[Path], out: Path, metric: str = WIN_RATE, mix_versions: bool = False, title: str = ""
) -> Path:
    """Learning curves of the given run folders."""
    return curves.learning_curves([load_run(folder) for folder in folders], out, metric, mix_versions, title)
