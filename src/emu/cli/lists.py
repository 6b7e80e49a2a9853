"""The commands that list what there is: `emu envs`, `emu algos`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emu.cli.output import AsJson, say
from emu.errors import EmuError, EnvError, did_you_mean

COLUMNS = {"n_agents": "agents", "n_actions": "actions", "episode_limit": "limit"}


def list_envs(
    words: Annotated[str, tyro.conf.Positional, tyro.conf.arg(name="filter")] = "", as_json: AsJson = False
) -> int:
    """List the environments, or tell all about one.

    FILTER keeps those whose name contains it.

    Args:
        words: A part of the name, such as smac/ or 3s5z.
        as_json: Print JSON, with every environment's specification.
    """
    from emu import envs

    entries = envs.registered()
    names = [words] if words in entries else [name for name in entries if words in name]
    if not names:
        raise EmuError(f"No environment's name contains '{words}'. {did_you_mean(words, entries)}")
    with Console(stderr=True, emoji=False).status("asking the environments …"):
        specs = {name: _specification(name) for name in names}
    if as_json:
        print(json.dumps({name: {"summary": entries[name].summary, **spec} for name, spec in specs.items()}, indent=2))
        return 0
    if len(names) == 1:
        _tell(names[0], entries[names[0]].summary, specs[names[0]])
        if others := [name for name in entries if words in name and name not in names]:
            say(f"\nAlso: {', '.join(others)}")
        return 0
    out = Console(emoji=False)
    out.print(_table(specs, out.width))
    for text in dict.fromkeys(spec["missing"] for spec in specs.values() if "missing" in spec):
        say(f"\n{text}")
    if not words:
        say("\nOther people's, by a prefix (docs/envs/your_own.md):")
        for prefix, entry in envs.registered_adapters().items():
            out.print(f"  [bold]{prefix}:…[/]  {entry.summary}", highlight=False)
    say(f"\n`emu envs {names[-1]}` tells all about one of them.")
    return 0


def _table(specs: dict[str, dict[str, Any]], width: int) -> Table:
    """An entry for each environment, as wide as the terminal: only what it is may take several lines."""
    from emu import envs

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    taken = max(map(len, specs)) + sum(len(f"  {title}") for title in COLUMNS.values()) + 2
    table.add_column("what it is", max_width=max(10, width - taken))
    for name, spec in specs.items():
        sizes = (str(spec.get(key, "")) for key in COLUMNS)
        table.add_row(f"[bold]{name}[/]", *sizes, escape(envs.registered()[name].summary))
    return table


def _specification(name: str) -> dict[str, Any]:
    from emu import envs

    try:
        return dataclasses.asdict(envs.make(name).spec)
    except EnvError as error:  # a package is missing: listed all the same
        return {"missing": str(error)}


def _tell(name: str, summary: str, spec: dict[str, Any]) -> None:
    """Everything about one environment, a line each."""
    say(f"{name}: {summary}")
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in spec.items():
        table.add_row(key.replace("_", " "), escape(str(value)))
    Console(emoji=False).print(table)


def list_algos(as_json: AsJson = False) -> int:
    """List the algorithms and how each differs from its neighbour.

    Args:
        as_json: Print JSON.
    """
    from emu.config.presets import ALGORITHMS, VARIANTS

    if as_json:
        print(json.dumps({name: algorithm._asdict() for name, algorithm in ALGORITHMS.items()}, indent=2))
        return 0
    out = Console(emoji=False)
    table = Table("name", "builds on", "what it is, and what it changes", box=None)
    for name, algorithm in ALGORITHMS.items():
        changes = "\n".join(f"[dim]{key} = {value}[/]" for key, value in algorithm.changes.items())
        table.add_row(f"[bold]{name}[/]", algorithm.base or "", f"{escape(algorithm.summary)}\n{changes}")
    out.print(table)
    out.print("\nVariants, behind any name (emu_qplex+fast):", highlight=False)
    variants = Table(box=None, show_header=False)
    for name, variant in VARIANTS.items():
        variants.add_row(f"[bold]+{name}[/]", escape(variant.summary))
    out.print(variants)
    return 0
