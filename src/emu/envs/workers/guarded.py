"""Starting a process under a guardian, and ending it with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from emu.envs.workers import guardian

GRACE = 3.0  # seconds that environments get to close themselves, and a guardian to end what it guards


class Guarded:
    """A Python process (`python WORDS...`) and everything that it will start; `process` is its guardian.

    `also` are processes of ours that must not outlive us.
    """

    def __init__(
        self, words: list[str], descriptors: tuple[int, ...], also: Iterable[int] = (), **options: Any
    ) -> None:
        ours, theirs = os.pipe()[::-1]  # we hold the end that is never written to
        others = ",".join(f"{pid}:{begun}" for pid in also if (begun := guardian.begun_at(pid)) is not None)
        command = [sys.executable, "-I", "-S", guardian.__file__, str(theirs), others, sys.executable, *words]
        try:
            self.process = subprocess.Popen(
                command,
                pass_fds=(*descriptors, theirs),
                start_new_session=True,  # Ctrl-C is for us
                **options,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._lifeline: int | None = ours

    def wait(self, seconds: float) -> int | None:
        """Until it has ended, but no longer than this; its status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode

    def descendants(self) -> list[int]:
        """Everything that runs below the guardian, the process itself first."""
        return guardian.descendants(self.process.pid)

    def end(self) -> None:
        """End all of it."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.process.pid, signal.SIGCONT)  # it may have been stopped
            if self.wait(guardian.PATIENCE + GRACE) is None:
                guardian.end_descendants(self.process.pid)
                self.process.kill()
        self.process.wait()


def cause_of(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "it closed its connection"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
