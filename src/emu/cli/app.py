"""The `emu` command: a table of subcommands, each a function in the file of its group; tyro parses their words."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import emu
from emu.cli.analysis import absolute, export, plot, table
from emu.cli.doctor import doctor
from emu.cli.environments import check, play
from emu.cli.lists import list_algos, list_envs
from emu.cli.output import print_error
from emu.cli.report import report
from emu.cli.study import study, sweep
from emu.cli.teams import evaluate, export_team, render
from emu.cli.training import demo, resume, train
from emu.errors import EmuError, did_you_mean

COMMANDS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "render": render,
    "export-team": export_team,
    "plot": plot,
    "table": table,
    "absolute": absolute,
    "export": export,
    "study": study,
    "sweep": sweep,
    "report": report,
    "envs": list_envs,
    "algos": list_algos,
    "play": play,
    "check": check,
    "doctor": doctor,
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _show_warning
    _print_anything()
    try:
        return _call(words)
    except EmuError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:  # before a run began or after it ended; in between, training saves
        Console(stderr=True, emoji=False).print("Interrupted.")
        return 130
    except BrokenPipeError:  # `emu envs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _print_anything() -> None:
    """A terminal or log file that cannot show a character (an ASCII locale, a name that is no text) gets its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _call(words: list[str]) -> int:
    if words[:1] in ([], ["-h"], ["--help"]):
        _print_help()
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name in ("-V", "--version"):
        print(emu.__version__)
        return 0
    if name not in COMMANDS:
        raise EmuError(f"No command is called '{name}'. {did_you_mean(name, COMMANDS)}")
    if name == "train":  # its options depend on the preset that they name
        return train(rest)
    from emu.cli.train_options import our_words

    return tyro.cli(COMMANDS[name], prog=f"emu {name}", args=rest, registry=our_words())


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    """Warnings of the package in its own manner, without the line of code that gave them."""
    Console(stderr=True, emoji=False).print(
        f"[yellow]warning[/] {escape(str(message))}", highlight=False, soft_wrap=True
    )


def _print_help() -> None:
    out = Console(emoji=False)
    rows = Table(box=None, show_header=False)
    for name, command in COMMANDS.items():
        rows.add_row(f"  emu {name}", (command.__doc__ or "").splitlines()[0])
    out.print("[bold]emu[/]: cooperative multi-agent reinforcement learning with episodic memory\n")
    out.print(rows)
    out.print("\nEvery command explains itself: emu train --help", highlight=False)
