"""The JSON files of a run, read strictly: every field has the type it must have, or the file is refused by name.

    record = Record.read(folder / "absolute.json")
    episodes = record.whole("episodes", least=1)
    wins = record.numbers("win_rate", count=episodes)

Whoever reads a run that somebody else made relies on nothing but this: a file may hold any JSON at all. Fields that
nobody asks for are ignored, so that later versions may add some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emu.errors import EmuError
from emu.files import read_object


def is_number(value: Any) -> bool:
    """A finite number; JSON as Python reads it also knows NaN, infinity, and whole numbers beyond any float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


class Record:
    """One JSON object. `where` names it in messages: a file, or a place within one."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise EmuError(f"{where} must hold one JSON object, not {_shown(content)}.")
        self.content, self.where = content, where

    @classmethod
    def read(cls, path: Path) -> Record:
        return cls(read_object(path), str(path))

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def number(self, name: str) -> float:
        value = self._get(name)
        return value if is_number(value) else self._refuse(name, "a finite number")

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number that counts something; 2**63 and more counts nothing."""
        value = self._get(name)
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63
        return value if fits else self._refuse(name, f"a whole number, {least} or more")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name) if default is None else self.content.get(name, default)
        return value if isinstance(value, str) else self._refuse(name, "text")

    def numbers(self, name: str, count: int) -> list[float]:
        """A list of so many finite numbers."""
        value = self._get(name)
        fits = isinstance(value, list) and len(value) == count and all(map(is_number, value))
        return value if fits else self._refuse(name, f"a list of {count} numbers")

    def record(self, name: str) -> Record:
        return Record(self._get(name), f"'{name}' in {self.where}")

    def records(self, name: str) -> list[Record]:
        """A list of objects; none where the field is missing."""
        value = self.content.get(name, [])
        if not isinstance(value, list):
            self._refuse(name, "a list")
        return [Record(entry, f"entry {number} of '{name}' in {self.where}") for number, entry in enumerate(value, 1)]

    def values(self, *leaving_out: str) -> dict[str, float]:
        """All other fields, which must be numbers."""
        return {name: self.number(name) for name in self if name not in leaving_out}

    def _get(self, name: str) -> Any:
        if name not in self.content:
            raise EmuError(f"{self.where} has no '{name}'.")
        return self.content[name]

    def _refuse(self, name: str, wanted: str) -> Any:
        raise EmuError(f"'{name}' in {self.where} must be {wanted}, not {_shown(self.content.get(name))}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
