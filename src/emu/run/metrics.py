"""What a run writes down: `metrics.jsonl` (the same for the same seed, value for value) with a checksum for every row
beside it, `timing.jsonl` (wall-clock figures, which are not the same), and what its loggers do
with the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from emu.errors import EmuError
from emu.files import parse_json, quoted, reason
from emu.run.folder import EVALUATION, RunFolder
from emu.run.loggers import Logger
from emu.run.record import is_number


class MetricsWriter:
    """Appends rows; on resume, cuts `metrics.jsonl` back to what the checkpoint had seen."""

    def __init__(self, folder: Path, loggers: Sequence[Logger] = (), keep_bytes: int = 0) -> None:
        run = RunFolder(folder)
        self.path = run.metrics
        self._metrics = _open_at(self.path, keep_bytes)
        self._checksums = Checksums.open_at(run.checksums, keep_bytes)
        self._timing = run.timing.open("a", encoding="utf-8")
        self._loggers = tuple(loggers)

    def row(self, step: int, values: dict[str, float]) -> None:
        """One row of deterministic values."""
        line = (json.dumps({"step": step, **values}) + "\n").encode()
        with self._writing():
            self._metrics.write(line)
            self._metrics.flush()
            self._checksums.add(line)
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
        for file in (self._metrics, self._checksums, self._timing, *self._loggers):
            with contextlib.suppress(OSError):  # what could not be written was complained about when it was written
                file.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EmuError(
                f"Could not write metrics in {self.path.parent}: {error.strerror or error}. The checkpoints are "
                f"intact. Make room, then go on with `emu resume {quoted(self.path.parent)}`."
            ) from error


class Checksums:
    """A line for every row of metrics: where the row ends, and its checksum. The rows themselves stay plain JSON."""

    def __init__(self, path: Path, kept: list[tuple[int, int]]) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._end = 0
        for end, crc in kept:
            self._write(end, crc)
        self._file.flush()

    @classmethod
    def open_at(cls, path: Path, keep_bytes: int) -> Checksums:
        """Go on behind the rows within the first bytes."""
        kept = [(end, crc) for end, crc in read_checksums(path) if end <= keep_bytes]
        made = cls(path, kept)
        made._end = keep_bytes
        return made

    def add(self, line: bytes) -> None:
        self._write(self._end + len(line), zlib.crc32(line))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, end: int, crc: int) -> None:
        self._file.write(f"{end} {crc:08x}\n")
        self._end = end


def read_checksums(path: Path) -> list[tuple[int, int]]:
    """(end, checksum) of every row, as far as the file can be read; none for runs that have no such file."""
    found: list[tuple[int, int]] = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        if not (parts := re.fullmatch(rb"(\d{1,18}) ([0-9a-f]{8})", line)):
            continue
        if (end := int(parts[1])) > (found[-1][0] if found else 0):
            found.append((end, int(parts[2], 16)))
    return found


def _open_at(path: Path, keep_bytes: int) -> BinaryIO:
    if keep_bytes:
        if not path.exists() or path.stat().st_size < keep_bytes:
            raise EmuError(f"{path} is shorter than its checkpoint says: it was cut or replaced. Restore it to resume.")
        os.truncate(path, keep_bytes)
        return path.open("ab")
    return path.open("wb")


def read_rows(folder: Path, warn: Callable[[str], None] | None = None) -> list[dict[str, float]]:
    """All rows of a run's metrics that are as they were written; `warn` is told which lines are not.

    Only a last line without an end is left out in silence: it is what a process killed while writing leaves.
    """
    run = RunFolder(folder)
    if not run.metrics.exists():
        raise EmuError(f"{folder} is not a run folder: it has no {run.metrics.name}.")
    try:
        content = run.metrics.read_bytes()
        sums = read_checksums(run.checksums)
    except OSError as error:
        raise EmuError(f"{run.metrics} cannot be read: {reason(error)}.") from error
    rows, damaged = [], []
    for number, line, crc in _lines(content, sums):
        row = _row(line) if crc is None or zlib.crc32(line) == crc else None
        if row is not None:
            rows.append(row)
        elif crc is not None or line.endswith(b"\n"):
            damaged.append(str(number))
    if damaged:
        named = ", ".join(damaged[:10]) + (f" and {len(damaged) - 10} more" if len(damaged) > 10 else "")
        lines = "line" if len(damaged) == 1 else "lines"
        (warn or _warn)(f"{run.metrics}: {lines} {named} not as written. Left out; the rest is used.")
    return rows


def _lines(content: bytes, sums: list[tuple[int, int]]) -> Iterator[tuple[int, bytes, int | None]]:
    """Rows with the number of their line and their checksum. Where rows end is known from the checksums, as far as they
    go, so that a damaged end of a line does not shift those behind it."""
    begin, number = 0, 1
    for end, crc in sums:
        if end > len(content):
            break
        *unknown, last = content[begin:end].splitlines(keepends=True)
        if not unknown or zlib.crc32(last) != crc:
            unknown, last = [], content[begin:end]
        for line in unknown:  # rows whose own checksums were lost
            yield number, line, None
            number += 1
        yield number, last, crc
        begin, number = end, number + 1
    for number, line in enumerate(content[begin:].splitlines(keepends=True), number):  # noqa: B020
        yield number, line, None


def _row(line: bytes) -> dict[str, float] | None:
    """A row is an object of numbers with a step; anything else is none."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not line.endswith(b"\n") or not isinstance(row, dict) or not all(map(_is_number, row.values())):
        return None
    return row if isinstance(row.get("step"), int) and row["step"] >= 0 else None


def _is_number(value: Any) -> bool:
    """Of any size that a float has; a value that was not finite when it was written is one, too."""
    return is_number(value) or isinstance(value, float)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


def last_evaluation(folder: Path) -> dict[str, float]:
    """The values of a run's last evaluation; empty if there was none."""
    evaluations = [row for row in read_rows(folder) if EVALUATION in row]
    return {name: value for name, value in evaluations[-1].items() if name != "step"} if evaluations else {}


def read_timing(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's wall-clock times; none where they were not kept. Lines that are no rows are left out."""
    path = RunFolder(folder).timing
    rows = []
    for line in path.read_text("utf-8", errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            row = parse_json(line)
            if isinstance(row, dict) and {"step", "wall"} <= row.keys() and all(map(_is_number, row.values())):
                rows.append(row)
    return rows
