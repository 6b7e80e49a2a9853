"""Whether a run's settings name code from outside this package.

A `config.json` that came with a folder is data: looking at it must not run code of its choosing. Environments and
other pieces of the registries are safe to build. `module:Name` imports a module; so do adapters whose target is one,
and a Ray cluster runs what it is sent. Commands that build such a thing ask for `--trust` first; commands that only
look (report, plot, table, export) leave it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emu import envs
from emu.config import Config, to_dict
from emu.errors import EmuError

BY_NAME_ONLY = ("gymnasium", "jaxmarl", "lbf", "rware")  # adapters of what installed packages have registered
IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_.][\w.\-/]*")  # module:Name, module:namespace/Name-v0
HERE = ("auto", "local", "")  # clusters that are this user's own


class Untrusted(EmuError):
    """Settings that would run code from outside."""


def outside(config: Config) -> list[str]:
    """What of a configuration comes from outside the registries, as `setting 'value'`."""
    settings = to_dict(config)
    found = [] if _is_registered(config.env) else [f"env {config.env!r}"]
    found += [f"{where} {text!r}" for where, text in _strings(settings) if where != "env" and IMPORTED.fullmatch(text)]
    if config.rollout.where == "ray" and config.rollout.cluster not in HERE:
        found.append(f"rollout.cluster {config.rollout.cluster!r}")
    return found


def require_trusted(folder: Path, config: Config, trust: bool) -> None:
    """Refuse to build what a run's folder names from outside, unless the user said that it may be trusted."""
    if not trust and (names := outside(config)):
        raise Untrusted(
            f"The settings of {folder} name code from outside this package: {', '.join(names)}. It would be imported "
            "and run. If you trust this folder, say --trust (in Python: trust=True)."
        )


def require_registered(folder: Path, config: Config) -> None:
    """The same for commands that only look: they never build what comes from outside."""
    if names := outside(config):
        raise Untrusted(
            f"The settings of {folder} name code from outside this package: {', '.join(names)}. It would have to be "
            "imported and run, which this command never does."
        )


def _is_registered(env: str) -> bool:
    """Whether making an environment of this name imports nothing that the name chooses. Unknown names are refused."""
    prefix, colon, target = env.partition(":")
    return env in envs.registered() or not colon or (prefix in BY_NAME_ONLY and ":" not in target)


def _strings(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a tree of settings, keys included, with the setting it belongs to."""
    if isinstance(node, str):
        yield where, node
    elif isinstance(node, dict):
        for key, value in node.items():
            path = f"{where}.{key}" if where else str(key)
            yield where, str(key)
            yield from _strings(value, path)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _strings(value, where)
