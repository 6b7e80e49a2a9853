"""The commands that analyse finished runs: `emu plot`, `emu table`, `emu absolute`, `emu export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from emu.cli.output import counted, say, say_aside
from emu.errors import EmuError

Folders = Annotated[list[Path], tyro.conf.Positional]
Kind = Literal["curves", "ablation", "parameter", "recall", "profile", "improvement", "iqm", "embedding"]


def warn(text: str) -> None:
    """A note on the terminal that does not mix with what is printed."""
    Console(stderr=True, emoji=False).print(f"[yellow]note[/] {escape(text)}", highlight=False, soft_wrap=True)


def plot(
    runs: Folders,
    kind: Kind = "curves",
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    metric: str = "",
    measure: Literal["last", "overall", "best", "absolute"] = "overall",
    parameter: str = "",
    band: Literal["auto", "ci", "std", "seeds"] = "auto",
    smooth: int = 1,
    training: bool = False,
    mix_versions: bool = False,
    title: str = "",
) -> int:
    """Draw runs: curves, ablations, a parameter, comparisons, the memory.

    Args:
        runs: Run folders, or folders that contain some; labels come from a study's study.json.
        kind: Which figure; docs/studies.md explains each.
        out_file: The picture (.png, .pdf or .svg); default: KIND.png.
        metric: Of curves, ablation and parameter: any logged value, such as train_win_rate. Default: the win rate
            of greedy evaluations where a task has a goal, else their return.
        measure: Of profile and improvement: the win rate (or return) that stands for a run.
        parameter: Of parameter: a setting such as memory.radius; default: the one number the runs differ in.
        band: Around a mean of five seeds or more: its 95 % interval (auto, ci), one standard deviation, or a thin
            line for every seed. Fewer than five seeds are always drawn as lines.
        smooth: Every value becomes the mean of the last so many.
        training: Also draw the training episodes (exploration included) beside the greedy evaluations, dotted.
        mix_versions: Allow runs of different versions of an environment on one panel.
        title: Title of the picture.
    """
    from emu.study.analysis.runs import load_runs
    from emu.study.figures.options import Options
    from emu.study.figures.plot import draw

    loaded = load_runs(runs, warn)
    options = Options(metric, measure, parameter, band, smooth, training, mix_versions, title)
    path = draw(kind, loaded, out_file or Path(f"{kind}.png"), options)
    say(f"{path}: {counted(len(loaded), 'run')}")
    return 0


def table(
    runs: Folders,
    kind: Literal["summary", "radius", "memory", "improvement"] = "summary",
    out_folder: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    mix_versions: bool = False,
) -> int:
    """Print a table of runs; in a pipe, as Markdown.

    With --out it is also written as KIND.md and KIND.tex.

    Args:
        runs: Run folders, or folders that contain some; labels come from a study's study.json.
        kind: summary; radius: overall score by radius and embedder; memory: what memories held; improvement.
        out_folder: Where KIND.md and KIND.tex go.
        mix_versions: Allow runs of different versions of an environment in one table.
    """
    from emu.cli.tables import print_tables
    from emu.study.analysis.runs import load_runs
    from emu.study.analysis.table_text import write_tables
    from emu.study.analysis.tables import make_tables

    tables = make_tables(load_runs(runs, warn), kind, mix_versions)
    print_tables(tables)
    if out_folder is not None:
        for path in write_tables(tables, kind, out_folder):
            say_aside(str(path))
    return 0


def absolute(runs: Folders, again: bool = False, trust: bool = False) -> int:
    """Evaluate the best team of every run in ten times the episodes.

    Writes absolute.json into the run's folder.

    Args:
        runs: Run folders, or folders that contain some.
        again: Also measure runs that have been measured.
        trust: The settings of these runs may name code from outside this package, which is then run.
    """
    from emu.study.analysis.absolute import measure_absolute, read_absolute
    from emu.study.analysis.runs import find_runs, load_run
    from emu.study.analysis.scores import score_of

    measured = 0
    for folder in find_runs(runs):
        try:
            known = {} if again else read_absolute(folder, missing_ok=True)
            content = known or measure_absolute(folder, trust)
            score = score_of([load_run(folder)])
        except EmuError as error:
            warn(f"Left out: {error}")
            continue
        measured += 1
        value = score.text(sum(content[score.absolute]) / content["episodes"], 3)
        text = f"{folder}: {score.name} {value} in {content['episodes']} episodes"
        say(text + (" (measured before)" if known else ""))
    if not measured:
        raise EmuError("None of these runs could be measured.")
    return 0


def export(folder: Annotated[Path, tyro.conf.Positional], out_file: Annotated[Path, tyro.conf.Positional]) -> int:
    """Write the evaluations of all runs in a folder as the JSON of marl-eval.

    Args:
        folder: A folder of runs.
        out_file: The .json file.
    """
    from emu.study.analysis.export import export as write
    from emu.study.analysis.runs import load_runs

    loaded = load_runs([folder], warn)
    say(f"{write(loaded, out_file)}: {counted(len(loaded), 'run')}")
    return 0
