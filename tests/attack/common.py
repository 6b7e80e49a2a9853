"""Running `emu` inside the test's own process, so that hundreds of bad commands take seconds.

Whatever `main` lets through is a traceback that a user would see: here it fails the test, because nothing catches it.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, NamedTuple

from emu.cli.app import main


class Answer(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All it printed, in one line: terminals break lines anywhere."""
        return " ".join(f"{self.out} {self.err}".replace("│", " ").split())


def command(*words: Any) -> Answer:
    """One command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(word) for word in words])
        except SystemExit as ended:  # tyro, where it does not understand the words
            status = ended.code if isinstance(ended.code, int) else 1
    return Answer(status, out.getvalue(), err.getvalue())


def require_refused(answer: Answer, about: str) -> None:
    """Status 2, a message that names what was wrong, and no sign of an inner failure."""
    assert answer.status == 2, answer
    assert about.lower() in answer.said.lower(), answer.said
    for sign in ("Traceback", "Errno", "Error:", "object at 0x"):
        assert sign not in answer.err, answer.err


def accepting_nothing(monkeypatch: Any) -> None:
    """From here on a command that begins to train fails the test: what is bad must be refused before."""

    def begin(*_: Any) -> None:
        raise AssertionError("it was accepted")

    monkeypatch.setattr("emu.training.loop.training_keys", begin)  # everything but the networks has been built
    monkeypatch.setattr("emu.study.plan.sweep.Processes.start", begin)
