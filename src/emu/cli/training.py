"""The commands that train: `emu train`, `emu resume`, `emu demo`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from emu.cli.output import print_values


def train(words: list[str]) -> int:
    """Train a team."""
    from emu.cli.train_options import parse_train

    parsed = parse_train(words)
    from emu.run.folder import run_folder
    from emu.training.progress import Progress

    folder, progress = parsed.run_dir or run_folder(parsed.settings), Progress(quiet=parsed.quiet)
    progress.starting(f"{parsed.settings.algo} on {parsed.settings.env}")
    from emu.training.session import train as run

    return _finish(folder, lambda: run(parsed.settings, folder, progress), parsed.quiet)


def resume(
    run: Annotated[Path, tyro.conf.Positional],
    steps: int | None = None,
    quiet: bool = False,
    trust: bool = False,
    restart: bool = False,
) -> int:
    """Go on with a run that was stopped, killed, or is to be made longer.

    Args:
        run: The run's folder.
        steps: Train up to this many environment steps in all.
        quiet: Nothing on the screen but errors.
        trust: The run's settings may name code from outside this package, which is then run.
        restart: Begin anew where no checkpoint is left; what the run wrote is removed.
    """
    from emu.training.progress import Progress

    progress = Progress(quiet=quiet)
    progress.starting(str(run))
    from emu.training.session import resume as go_on

    return _finish(run, lambda: go_on(run, steps, progress, trust, restart), quiet)


def demo(out_folder: Annotated[Path, tyro.conf.arg(name="out")] = Path("demo")) -> int:
    """Train EMU and QPLEX, five seeds each, within minutes; say who won.

    Leaves learning curves and a GIF of the best team.

    Args:
        out_folder: Where the pictures and the runs go.
    """
    from emu.cli.demo import run_demo

    return run_demo(out_folder)


def _finish(folder: Path, go: Callable[[], dict[str, float]], quiet: bool) -> int:
    """Run, then say where it ended; a stopped run says how to go on."""
    from emu.files import quoted
    from emu.run.folder import read_config
    from emu.run.trust import outside
    from emu.training.session import Stopped

    try:
        summary = go()
    except Stopped as stopped:
        if not quiet:
            command = f"emu resume {quoted(folder)}{' --trust' if outside(read_config(folder)) else ''}"
            _say_if_anyone_listens(f"Stopped by {stopped}; everything is saved. Go on with: {command}")
        return _status(stopped)
    if not quiet:
        print_values(summary, False, str(folder))
    return 0


def _status(stopped: Exception) -> int:
    """What a shell reports of a process that a signal ended."""
    return 128 + signal.Signals[str(stopped)].value


def _say_if_anyone_listens(text: str) -> None:
    """The pipe or terminal may be what was closed."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
