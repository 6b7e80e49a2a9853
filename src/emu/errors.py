"""Errors a user can act on. The command line prints them without a traceback and exits with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
