"""The file of one snapshot of the memory: a sample of its entries and one greedy episode, small enough to keep.

    run/snapshots/000000100000.npz      (n, D) keys, (n, S) states as float16, returns, visits, ... and a path

Reading one needs no JAX; `emu.training.snapshots` takes them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.files import replace_arrays
from emu.run.folder import RunFolder, step_name

FORMAT = 1


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
            f"are intact. Make room, then go on with `emu resume {run}`."
        ) from error
    return path


def snapshot_paths(run: Path) -> list[Path]:
    """A run's snapshots, oldest first."""
    return sorted(path for path in RunFolder(run).snapshots.glob("*.npz") if path.stem.isdigit())


def read_snapshot(path: Path) -> Snapshot:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if int(stored["format"]) != FORMAT:
                raise EmuError(f"{path} has format {int(stored['format'])}, expected {FORMAT}: remove it.")
            memories = Memories(*(stored[f"memory_{name}"] for name in Memories._fields))
            episode = Trail(*(stored[f"episode_{name}"] for name in Trail._fields))
            step, size, radius, won = (stored[name].item() for name in ("step", "size", "radius", "won"))
            return Snapshot(step, size, radius, won, memories, episode)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise EmuError(f"{path} is damaged ({error}): remove it.") from error
