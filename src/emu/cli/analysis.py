"""The commands that look at finished runs: `emu plot`, `emu table`, `emu absolute`, `emu export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

Folders = Annotated[list[Path], tyro.conf.Positional]
Kind = Literal["curves", "ablation", "parameter", "recall", "profile", "improvement", "iqm", "embedding"]


def plot(
    runs: Folders,
    kind: Kind = "curves",
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    metric: str = "test_win_rate",
    measure: Literal["last", "overall", "best", "absolute"] = "overall",
    parameter: str = "",
    band: Literal["std", "ci", "seeds"] = "std",
    mix_versions: bool = False,
    title: str = "",
) -> int:
    """Draw runs: learning curves, ablations, a parameter, recall, comparisons over tasks, the embedding by t-SNE.

    Args:
        runs: Run folders, or folders that contain some; labels come from a study's study.json.
        kind: Which figure; docs/studies.md explains each.
        out_file: The picture (.png, .pdf or .svg); default: KIND.png.
        metric: Of curves, ablation and parameter: any value of metrics.jsonl.
        measure: Of profile and improvement: the win rate that stands for a run.
        parameter: Of parameter: a setting such as memory.radius; default: the one number the runs differ in.
        band: Around a mean: one standard deviation over seeds, its 95 % interval, or a thin line for every seed.
        mix_versions: Allow runs of different versions of an environment on one panel.
        title: Title of the picture.
    """
    from emu.study.analysis.runs import load_runs
    from emu.study.figures.plot import Options, draw

    loaded = load_runs(runs)
    path = draw(
        kind, loaded, out_file or Path(f"{kind}.png"), Options(metric, measure, parameter, band, mix_versions, title)
    )
    Console().print(f"{path}: {len(loaded)} runs", soft_wrap=True)
    return 0


def table(
    runs: Folders,
    kind: Literal["summary", "radius", "memory", "improvement"] = "summary",
    out_folder: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    mix_versions: bool = False,
) -> int:
    """Print a table of runs as Markdown; --out also writes it as KIND.md and KIND.tex.

    Args:
        runs: Run folders, or folders that contain some; labels come from a study's study.json.
        kind: summary; radius: overall win-rate by radius and embedder; memory: what memories held; improvement.
        out_folder: Where KIND.md and KIND.tex go.
        mix_versions: Allow runs of different versions of an environment in one table.
    """
    from emu.study.analysis.runs import load_runs
    from emu.study.analysis.tables import make_tables, markdown, write_tables

    tables = make_tables(load_runs(runs), kind, mix_versions)
    print("\n".join(markdown(made) for made in tables), end="")
    if out_folder is not None:
        for path in write_tables(tables, kind, out_folder):
            Console(stderr=True).print(str(path), soft_wrap=True, highlight=False)
    return 0


def absolute(runs: Folders, again: bool = False, trust: bool = False) -> int:
    """Test the best team of every run with ten times the episodes; writes absolute.json into the run's folder.

    Args:
        runs: Run folders, or folders that contain some.
        again: Also measure runs that have been measured.
        trust: The settings of these runs may name code from outside this package, which is then run.
    """
    from emu.study.analysis.absolute import measure_absolute, read_absolute
    from emu.study.analysis.runs import find_runs

    for folder in find_runs(runs):
        known = {} if again else read_absolute(folder, missing_ok=True)
        content = known or measure_absolute(folder, trust)
        share = sum(content["win_rate"]) / content["episodes"]
        text = f"{folder}: win rate {share:.3f} in {content['episodes']} episodes"
        Console().print(text + (" (measured before)" if known else ""), soft_wrap=True, highlight=False)
    return 0


def export(folder: Annotated[Path, tyro.conf.Positional], out_file: Annotated[Path, tyro.conf.Positional]) -> int:
    """Write the tests of all runs in a folder as the JSON of marl-eval.

    Args:
        folder: A folder of runs.
        out_file: The .json file.
    """
    from emu.study.analysis.export import export as write
    from emu.study.analysis.runs import load_runs

    loaded = load_runs([folder])
    Console().print(f"{write(loaded, out_file)}: {len(loaded)} runs", soft_wrap=True, highlight=False)
    return 0
