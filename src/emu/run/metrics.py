"""What a run writes down: `metrics.jsonl` (the same for the same seed, value for value), `timing.jsonl` (wall-clock
figures, which are not), and what its loggers do with the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np

from emu.errors import EmuError
from emu.run.loggers import Logger


class Means:
    """Running means of device scalars; the devices are asked only when a mean is needed, so nothing waits for them."""

    def __init__(self) -> None:
        self._pending: list[dict[str, Any]] = []
        self._sums: dict[str, list[float]] = {}  # name -> [sum, count]

    def add(self, metrics: dict[str, Any]) -> None:
        self._pending.append(metrics)

    def _settle(self) -> None:
        for metrics in jax.device_get(self._pending):
            for name, values in metrics.items():
                entry = self._sums.setdefault(name, [0.0, 0])
                for value in np.atleast_1d(values).tolist():
                    entry[0] += value
                    entry[1] += 1
        self._pending = []

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        self._settle()
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def save(self) -> dict[str, list[float]]:
        self._settle()
        return {name: list(entry) for name, entry in self._sums.items()}

    def load(self, sums: dict[str, list[float]]) -> None:
        self._pending, self._sums = [], {name: list(entry) for name, entry in sums.items()}


class MetricsWriter:
    """Appends rows; on resume, cuts `metrics.jsonl` back to what the checkpoint had seen."""

    def __init__(self, folder: Path, loggers: Sequence[Logger] = (), keep_bytes: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self._metrics = _open_at(self.path, keep_bytes)
        self._timing = (folder / "timing.jsonl").open("a")
        self._loggers = tuple(loggers)

    def row(self, step: int, values: dict[str, float]) -> None:
        """One row of deterministic values."""
        with self._writing():
            self._metrics.write(json.dumps({"step": step, **values}) + "\n")
            self._metrics.flush()
            for logger in self._loggers:
                logger.row(step, values)

    def timing(self, step: int, values: dict[str, float]) -> None:
        with self._writing():
            self._timing.write(json.dumps({"step": step, **values}) + "\n")
            self._timing.flush()

    def sync(self) -> int:
        """Make sure that everything written is on disk; the number of bytes that is."""
        with self._writing():
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            return self._metrics.tell()

    def close(self) -> None:
        for file in (self._metrics, self._timing, *self._loggers):
            with contextlib.suppress(OSError):  # what could not be written was complained about when it was written
                file.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EmuError(
                f"Could not write metrics in {self.path.parent}: {error.strerror or error}. The checkpoints are "
                f"intact. Make room, then go on with `emu resume {self.path.parent}`."
            ) from error


def _open_at(path: Path, keep_bytes: int) -> TextIO:
    if keep_bytes:
        if not path.exists() or path.stat().st_size < keep_bytes:
            raise EmuError(f"{path} is shorter than its checkpoint says: it was cut or replaced. Restore it to resume.")
        os.truncate(path, keep_bytes)
        return path.open("a")
    return path.open("w")


def read_rows(folder: Path) -> list[dict[str, float]]:
    """All rows of a run's metrics; a half-written last line (after a crash) is ignored."""
    path = Path(folder) / "metrics.jsonl"
    if not path.exists():
        raise EmuError(f"{folder} is not a run folder: it has no metrics.jsonl.")
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
