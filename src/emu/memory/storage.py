"""The episodic memory on disk: one .npy an array and one JSON file, no pickle. Keys and index are rebuilt on load."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.errors import CheckpointError

if TYPE_CHECKING:
    from emu.memory.episodic import MemoryOptions

FORMAT = 2
ARRAYS = ("states", "times", "embeddings", "best_return", "desirable", "counts")


class Saved(NamedTuple):
    arrays: dict[str, np.ndarray]
    order: np.ndarray  # entries from the least to the most recently used
    mean: np.ndarray
    spread: np.ndarray
    recent_returns: np.ndarray  # what a quantile of returns is taken of; empty unless one is
    counters: dict[str, int]


def save(folder: Path, options: MemoryOptions, saved: Saved) -> None:
    """`saved.arrays` may have room for more entries than there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", saved.arrays[name][: len(saved.order)], allow_pickle=False)
    np.save(folder / "order.npy", saved.order, allow_pickle=False)
    np.save(folder / "normalisation.npy", np.stack([saved.mean, saved.spread]), allow_pickle=False)
    np.save(folder / "recent_returns.npy", saved.recent_returns, allow_pickle=False)
    description = {"format": FORMAT, "options": dataclasses.asdict(options), "counters": saved.counters}
    (folder / "memory.json").write_text(json.dumps(description, indent=2) + "\n")


def _description(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads((folder / "memory.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"no readable memory in {folder}: {error}") from error
    if description.get("format") != FORMAT:
        raise CheckpointError(f"the memory in {folder} has format {description.get('format')}, expected {FORMAT}")
    return description


def read_options(folder: Path) -> dict[str, Any]:
    return _description(folder)["options"]


def read(folder: Path, options: MemoryOptions, capacity: int) -> Saved:
    """Everything of a saved memory, checked against the options of the one that is to take it over."""
    description = _description(folder)
    for name in ("state_dim", "key_dim", "dtype"):
        saved, wanted = description["options"][name], getattr(options, name)
        if saved != wanted:
            raise CheckpointError(f"the memory in {folder} has {name} {saved}, this one has {wanted}")
    try:
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
        order = np.load(folder / "order.npy", allow_pickle=False)
        mean, spread = np.load(folder / "normalisation.npy", allow_pickle=False)
        recent = np.load(folder / "recent_returns.npy", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the memory in {folder} cannot be read: {error}") from error
    if len(order) > capacity:
        raise CheckpointError(f"the memory in {folder} has {len(order):,} entries, more than the capacity {capacity:,}")
    if any(len(array) != len(order) for array in arrays.values()):
        raise CheckpointError(f"the arrays of the memory in {folder} have different lengths: it was not fully written")
    counters = {name: int(value) for name, value in description["counters"].items()}
    return Saved(arrays, order, mean, spread, recent, counters)
