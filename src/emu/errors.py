"""Errors a user can act on. The command line prints them without a traceback and exits with status 2."""

from __future__ import annotations

import difflib
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OURS = str(Path(__file__).parent)
FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
LONGEST = 500  # characters of somebody else's message


class EmuError(Exception):
    """Something the user can fix; the message says what is wrong, where, and what to do."""


class ConfigError(EmuError):
    """An unknown key or an impossible value in a configuration."""


class EnvError(EmuError):
    """An environment that is unknown, not installed, or breaks its contract."""


class CheckpointError(EmuError):
    """A checkpoint that cannot be written or read."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the closest known one, else all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else "Known: " + ", ".join(known) + "."


def described(error: BaseException, lines: int | None = None) -> str:
    """What an exception of somebody else's code says (so many lines), with the line of theirs that it came from."""
    try:
        text = str(error)
    except Exception:  # a message that cannot be made either
        text = "its message cannot be shown"
    text, frames = _unfolded(text.strip())
    text = printable("\n".join(text.splitlines()[:lines]))
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    place = origin_of(frames) or origin(error)
    return type(error).__name__ + (f": {text}" if text else "") + (f" ({place})" if place else "")


def _unfolded(text: str) -> tuple[str, list[tuple[str, int, str]]]:
    """A message that holds a whole traceback, as those from inside compiled code do: what it ends with, its frames."""
    before, found, rest = text.partition("Traceback (most recent call last):")
    if not found:
        return text, []
    last = next((line for line in reversed(rest.splitlines()) if line.strip() and not line.startswith(" ")), "")
    return f"{before.strip()} {last}".strip(), [(file, int(line), where) for file, line, where in FRAME.findall(rest)]


def origin(error: BaseException) -> str:
    """`file:line in function` of the last line outside this package; rather of the user's than of a library's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}"
    frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in _walk(error)]
    return origin_of(frames)


def origin_of(frames: list[tuple[str, int, str]]) -> str:
    """The same of (file, line, function), the innermost last."""
    outside = [frame for frame in frames if not frame[0].startswith((OURS, "<"))]
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    own = [frame for frame in outside if not frame[0].startswith(installed)]
    if not outside:
        return ""
    file, line, function = (own or outside)[-1]
    return f"{_shown(file)}:{line} in {function}"


def printable(text: str) -> str:
    """The same text without what would move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _walk(error: BaseException) -> Iterable[tuple[Any, int]]:
    return traceback.walk_tb(error.__traceback__)


def _shown(file: str) -> str:
    """As the user would name it: from the current folder where it lies there."""
    relative = os.path.relpath(file)
    return printable(file if relative.startswith("..") else relative)
