"""What a run writes down: `metrics.jsonl` (the same for the same seed, value for value), `timing.jsonl` (wall-clock
figures, which are not), and what its loggers do with the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from emu.errors import EmuError
from emu.run.folder import EVALUATION, RunFolder
from emu.run.loggers import Logger


class MetricsWriter:
    """Appends rows; on resume, cuts `metrics.jsonl` back to what the checkpoint had seen."""

    def __init__(self, folder: Path, loggers: Sequence[Logger] = (), keep_bytes: int = 0) -> None:
        run = RunFolder(folder)
        self.path = run.metrics
        self._metrics = _open_at(self.path, keep_bytes)
        self._timing = run.timing.open("a")
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
            for logger in self._loggers:
                logger.timing(step, values)

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
    path = RunFolder(folder).metrics
    if not path.exists():
        raise EmuError(f"{folder} is not a run folder: it has no {path.name}.")
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def last_evaluation(folder: Path) -> dict[str, float]:
    """The values of a run's last evaluation; empty if there was none."""
    evaluations = [row for row in read_rows(folder) if EVALUATION in row]
    return {name: value for name, value in evaluations[-1].items() if name != "step"} if evaluations else {}


def read_timing(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's wall-clock times; none where they were not kept. Lines that are no rows are left out."""
    path = RunFolder(folder).timing
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and {"step", "wall"} <= row.keys():
                rows.append(row)
    return rows
