"""What commands print: values, errors, notes. Numbers for programs come as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emu.errors import EmuError

AsJson = Annotated[bool, tyro.conf.arg(name="json")]


def say(text: str) -> None:
    """A line on standard output, as it is: nothing in it is read as markup, nothing is broken in two."""
    Console(emoji=False).print(escape(text), highlight=False, soft_wrap=True)


def say_aside(text: str) -> None:
    """A line on standard error, for what is not the command's answer."""
    Console(stderr=True, emoji=False).print(escape(text), highlight=False, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_error(error: Exception) -> None:
    Console(stderr=True, emoji=False).print(f"[bold red]error[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def print_values(values: dict[str, Any], as_json: bool, title: str) -> None:
    """Named numbers: a row each, or one JSON object."""
    if as_json:
        print(json.dumps(values))
        return
    out = Console(emoji=False)
    out.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    table = Table(box=None, show_header=False)
    for name, value in values.items():
        table.add_row(name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else f"{value:,}")
    out.print(table)


def require_at_least_one(option: str, value: int) -> None:
    if value < 1:
        raise EmuError(f"{option} must be at least 1, not {value}.")
