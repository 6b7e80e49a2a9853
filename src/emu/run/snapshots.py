"""The file of one snapshot of the memory: a sample of its entries and one greedy episode, small enough to keep.

    run/snapshots/000000100000.npz      (n, D) keys, (n, S) states as float16, returns, visits, ... and a path

Reading one needs no JAX; `emu.training.snapshots` takes them.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.files import quoted, reason, replace_arrays
from emu.run.folder import RunFolder, step_name

FORMAT = 1
# Types and axes of the columns; those that are not named count something.
KINDS: dict[str, tuple[Any, int]] = {
    "key": (np.float32, 2),
    "state": (np.float16, 2),
    "best_return": (np.float32, 1),
    "total": (np.float32, 1),
    "desirable": (np.bool_, 1),
    "found": (np.bool_, 1),
}
SINGLE = {"step": "iu", "size": "iu", "radius": "f", "won": "b"}
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError)


class Memories(NamedTuple):
    """Sampled entries, a row each."""

    key: np.ndarray  # (n, D) float32
    state: np.ndarray  # (n, S) float16
    best_return: np.ndarray
    desirable: np.ndarray
    visits: np.ndarray
    desirable_visits: np.ndarray
    time: np.ndarray  # step of its episode at which the state was seen


class Trail(NamedTuple):
    """A greedy episode, a row a state, and what the memory knows of each."""

    key: np.ndarray  # (T+1, D) float32
    state: np.ndarray  # (T+1, S) float16
    time: np.ndarray
    total: np.ndarray  # reward collected before this state
    found: np.ndarray  # the memory has an entry nearer than its radius
    best_return: np.ndarray  # of that entry, 0 where there is none
    desirable: np.ndarray  # whether that entry is


class Snapshot(NamedTuple):
    step: int
    size: int  # entries of the whole memory
    radius: float
    won: bool  # the episode
    memories: Memories
    episode: Trail


def write_snapshot(run: Path, shot: Snapshot) -> Path:
    """One file, replaced in one step."""
    arrays = {f"memory_{name}": column for name, column in shot.memories._asdict().items()}
    arrays |= {f"episode_{name}": column for name, column in shot.episode._asdict().items()}
    arrays |= {name: np.array(getattr(shot, name)) for name in ("step", "size", "radius", "won")}
    path = RunFolder(run).snapshots / f"{step_name(shot.step)}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
        replace_arrays(path, {**arrays, "format": np.array(FORMAT)})
    except OSError as error:
        raise EmuError(
            f"Could not write a snapshot of the memory in {path.parent}: {error.strerror or error}. The checkpoints "
            f"are intact. Make room, then go on with `emu resume {quoted(run)}`."
        ) from error
    return path


def snapshot_paths(run: Path) -> list[Path]:
    """A run's snapshots, oldest first."""
    return sorted(path for path in RunFolder(run).snapshots.glob("*.npz") if path.stem.isdigit())


def read_snapshot(path: Path) -> Snapshot:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if stored["format"].shape or stored["format"] != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            memories = Memories(*(_column(stored, f"memory_{name}") for name in Memories._fields))
            episode = Trail(*(_column(stored, f"episode_{name}") for name in Trail._fields))
            step, size, radius, won = (_single(stored, name) for name in ("step", "size", "radius", "won"))
    except UNREADABLE as error:
        raise EmuError(f"{path} is damaged ({reason(error)}): remove it.") from error
    for part in (memories, episode):
        if len({len(column) for column in part}) > 1:
            raise EmuError(f"{path} is damaged (columns of different lengths): remove it.")
    if memories.key.shape[1] != episode.key.shape[1] or memories.state.shape[1] != episode.state.shape[1]:
        raise EmuError(f"{path} is damaged (memories and episode do not fit together): remove it.")
    return Snapshot(int(step), int(size), float(radius), bool(won), memories, episode)


def _column(stored: Any, name: str) -> np.ndarray:
    """One array of numbers, known to have the number of axes that it was written with, and finite in its type."""
    kind, axes = KINDS.get(name.partition("_")[2], (np.uint32, 1))
    found = stored[name]
    if found.dtype.kind not in "biuf" or found.ndim != axes:
        raise ValueError(f"'{name}' is {found.dtype}{list(found.shape)}")
    if kind is np.uint32 and found.size and not (found.min() >= 0 and found.max() < 2**32):
        raise ValueError(f"'{name}' does not count")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = found.astype(kind)
    if not np.isfinite(found).all() or not np.isfinite(cast).all():
        raise ValueError(f"'{name}' is not finite")
    return cast


def _single(stored: Any, name: str) -> Any:
    found = stored[name]
    if found.dtype.kind not in SINGLE[name] or found.ndim or not np.isfinite(found):
        raise ValueError(f"'{name}' is {found.dtype}{list(found.shape)}, or not finite")
    return found.item()
