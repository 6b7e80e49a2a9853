"""The command `emu report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from emu.cli.analysis import warn
from emu.cli.output import say


def report(
    folder: Annotated[Path, tyro.conf.Positional],
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    projection: Literal["pca", "tsne"] = "pca",
    take_snapshots: bool = True,
) -> int:
    """Make one HTML page about runs: who wins, curves, the memory, settings.

    Args:
        folder: A run, a study, or any folder of runs.
        out_file: The page (default: report.html in the folder).
        projection: How keys become a map: pca, or tsne beside it (needs openTSNE; minutes instead of seconds).
        take_snapshots: Runs with a memory but without snapshots get one from their checkpoint.
    """
    from emu.study.report.page import write_report

    path = write_report(folder, out_file, projection, take_snapshots, warn)
    say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0
