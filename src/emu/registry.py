"""Pieces by name: learners, terms, loggers, embedders and environments, from this package or from outside.

A name is one of a registry's own ("dqn"), or `module:Name` for anything that can be imported, also from the current
folder. What is found must be *of the wanted kind*, and that is asked before anything of it is called: "os:system" is
refused, not run. (Importing a module runs what stands at its top level, as always in Python.)

A piece has a `Settings` dataclass for its own numbers; `emu.config.build.settings_of` fills it from a JSON object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

from emu.errors import ConfigError, EmuError, described, did_you_mean

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The settings of a piece that has none."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where a registered piece lives (text is imported on demand), what it is, and arguments it is made with."""

    target: Any  # "package.module:Name", or the object itself
    summary: str = ""
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Registry(Generic[T]):
    """Classes derived from `kind`, by name."""

    def __init__(self, what: str, base: str, where: str) -> None:
        self.what, self.base, self.where = what, base, where  # "learner", "emu.learners.base:Learner", "learner.kind"
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, target: str | type[T], summary: str = "") -> None:
        """Give a class a name. A name registered again is replaced."""
        self._entries[name] = Entry(target, summary)

    def names(self) -> list[str]:
        """All registered names, in the order of their registration."""
        return list(self._entries)

    def summary(self, name: str) -> str:
        """A line about a registered name."""
        return self._entries[name].summary

    def require(self, name: str) -> None:
        """Refuse what is neither a registered name nor of the form `module:Name`, without importing anything."""
        if name not in self._entries and ":" not in name:
            raise ConfigError(
                f"No {self.what} is called '{name}' ({self.where}). {did_you_mean(name, self._entries)} "
                "One from outside is written `module:Name`."
            )

    def find(self, name: str) -> type[T]:
        """The class of this name; from outside it must derive from the registry's base class."""
        self.require(name)
        target = self._entries[name].target if name in self._entries else name
        found = imported(target, self.what) if isinstance(target, str) else target
        base = imported(self.base, self.what)
        if not (isinstance(found, type) and issubclass(found, base)):
            refuse(name, self.what, f"a class derived from `{self.base.replace(':', '.')}`", found)
        return found


def imported(path: str, what: str, error: type[EmuError] = ConfigError) -> Any:
    """The object that `module:Name` stands for; nothing of it is called. The current folder is looked in last."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise error(f"'{path}' names no {what}: write `module:Name`.")
    with contextlib.suppress(OSError):  # the current folder was removed
        here = os.getcwd()
        if here not in sys.path:
            sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as problem:
        raise error(f"The {what} '{path}' cannot be imported: {problem}.") from problem
    except (Exception, SystemExit) as problem:  # what the module does at its top level, or names such as "." and "..x"
        raise error(f"The {what} '{path}' cannot be imported: {described(problem)}.") from problem
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [word for word in vars(found) if not word.startswith("_")] if hasattr(found, "__dict__") else []
            raise error(f"Module '{module_name}' has no '{attribute}'. {did_you_mean(part, known)}")
        found = getattr(found, part)
    return found


def refuse(name: str, what: str, wanted: str, found: Any, error: type[EmuError] = ConfigError) -> NoReturn:
    """Say that what was found under a name is of another kind; it has not been called."""
    shown = f"the class `{found.__qualname__}`" if isinstance(found, type) else f"a {type(found).__name__}"
    raise error(f"'{name}' is no {what}: {wanted} is needed, but it is {shown}. Nothing of it was called.")
