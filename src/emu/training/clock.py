"""Where the time of a run goes: seconds by activity."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

ACTIVITIES = ("rollout", "memory", "sampling", "learner", "evaluation", "checkpoint")


class Watcher(Protocol):
    """Is told what the loop does."""

    def begin(self, activity: str) -> None: ...

    def end(self, activity: str) -> None: ...


class Clock:
    """Adds up what is spent inside `with clock("rollout"):`; minutes since the last checkpoint, too."""

    def __init__(self, watcher: Watcher | None = None) -> None:
        self._watcher = watcher
        self.seconds: dict[str, float] = dict.fromkeys(ACTIVITIES, 0.0)
        self._saved = time.monotonic()

    @contextlib.contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        started = time.perf_counter()
        if self._watcher:
            self._watcher.begin(activity)
        try:
            yield
        finally:
            if self._watcher:
                self._watcher.end(activity)
            self.seconds[activity] += time.perf_counter() - started

    def row(self) -> dict[str, float]:
        """The present time and all seconds so far, as a row of timing."""
        return {"wall": time.time(), **self.seconds}

    def saved(self) -> None:
        self._saved = time.monotonic()

    @property
    def minutes_unsaved(self) -> float:
        return (time.monotonic() - self._saved) / 60
