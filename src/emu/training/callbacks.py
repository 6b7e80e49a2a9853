"""What a user's own code is told while a run goes on, and how it ends one.

A callback is any object with one or both methods of `Callback`. It is handed copies: nothing that a run computes or
writes depends on it, except where the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emu.errors import ConfigError

METHODS = ("on_chunk", "on_evaluation")


class Callback:
    """Derive from this class, or write a class of your own with one of these methods. True ends the run, saved."""

    def on_chunk(self, step: int, metrics: dict[str, float]) -> bool | None:
        """After every chunk of experience: the newest row of training, with the present counts and exploration."""

    def on_evaluation(self, step: int, metrics: dict[str, float]) -> bool | None:
        """After every evaluation, the one before the first step included: its values by the names of the metrics."""


class Callbacks:
    """The callbacks of a run, asked one after the other; all are asked, also after one has ended the run."""

    def __init__(self, callbacks: Iterable[Any] = ()) -> None:
        self._callbacks = tuple(callbacks)
        for callback in self._callbacks:
            if isinstance(callback, type) or not any(callable(getattr(callback, name, None)) for name in METHODS):
                raise ConfigError(
                    f"{callback!r} is no callback: an object with a method `on_chunk(step, metrics)` or "
                    "`on_evaluation(step, metrics)` is needed."
                )

    def chunk(self, step: int, metrics: Mapping[str, float]) -> bool:
        return self._ask("on_chunk", step, metrics)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> bool:
        return self._ask("on_evaluation", step, metrics)

    def _ask(self, name: str, step: int, metrics: Mapping[str, float]) -> bool:
        methods = [getattr(callback, name, None) for callback in self._callbacks]
        return any([bool(method(step, dict(metrics))) for method in methods if method])  # a list: everybody is asked
