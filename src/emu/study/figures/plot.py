"""`emu plot`: the figures of a study by the name of their kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from emu.errors import EmuError, did_you_mean
from emu.study.analysis.runs import Run, load_run
from emu.study.figures import comparison, curves
from emu.study.figures.options import Options
from emu.study.figures.parameter import parameter
from emu.study.figures.style import require_picture


def _embedding(runs: Sequence[Run], out: Path, options: Options) -> Path:
    from emu.study.figures.embedding import embeddings  # the only figure that needs a team, and so JAX

    return embeddings(runs, out, options.title)


KINDS: dict[str, Callable[[Sequence[Run], Path, Options], Path]] = {
    "curves": curves.learning_curves,
    "ablation": curves.ablation,
    "parameter": parameter,
    "recall": curves.recall,
    "profile": comparison.performance_profile,
    "improvement": comparison.improvement,
    "iqm": comparison.interquartile_means,
    "embedding": _embedding,
}


def draw(kind: str, runs: Sequence[Run], out: Path, options: Options = Options()) -> Path:
    """Draw one kind of figure."""
    require_picture(out)
    if options.smooth < 1:
        raise EmuError(f"--smooth is a number of values, 1 or more, not {options.smooth}.")
    if kind not in KINDS:
        raise EmuError(f"No kind of figure is called '{kind}'. {did_you_mean(kind, KINDS)}")
    return KINDS[kind](runs, out, options)


def plot_curves(
    folders: Sequence[Path], out: Path, metric: str = "", mix_versions: bool = False, title: str = ""
) -> Path:
    """Learning curves of the given run folders."""
    options = Options(metric=metric, mix_versions=mix_versions, title=title)
    return draw("curves", [load_run(folder) for folder in folders], out, options)
