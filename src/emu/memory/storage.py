"""The episodic memory on disk: one .npy an array and one JSON file, no pickle. Keys and index are rebuilt on load."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.errors import CheckpointError
from emu.memory.options import MemoryOptions

FORMAT = 3
OPTIONS = [field.name for field in dataclasses.fields(MemoryOptions)]
ARRAYS = ("states", "times", "embeddings", "best_return", "desirable", "counts")


class Description(NamedTuple):
    """What a memory is, apart from its entries."""

    state_dim: int
    gamma: float
    options: MemoryOptions


class Saved(NamedTuple):
    """The entries, their order of use, their normalisation, and what has been counted."""

    arrays: dict[str, np.ndarray]
    order: np.ndarray  # entries from the least to the most recently used
    mean: np.ndarray
    spread: np.ndarray
    recent_returns: np.ndarray  # what a quantile of returns is taken of; empty unless one is
    counters: dict[str, int]


def save(folder: Path, description: Description, saved: Saved) -> None:
    """`saved.arrays` may have room for more entries than there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", saved.arrays[name][: len(saved.order)], allow_pickle=False)
    np.save(folder / "order.npy", saved.order, allow_pickle=False)
    np.save(folder / "normalisation.npy", np.stack([saved.mean, saved.spread]), allow_pickle=False)
    np.save(folder / "recent_returns.npy", saved.recent_returns, allow_pickle=False)
    options = {name: getattr(description.options, name) for name in OPTIONS}
    content = {"format": FORMAT, **description._asdict(), "options": options, "counters": saved.counters}
    (folder / "memory.json").write_text(json.dumps(content, indent=2) + "\n")


def _content(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads((folder / "memory.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"no readable memory in {folder}: {error}") from error
    if description.get("format") != FORMAT:
        raise CheckpointError(f"the memory in {folder} has format {description.get('format')}, expected {FORMAT}")
    return description


def read_description(folder: Path) -> Description:
    content = _content(folder)
    return Description(content["state_dim"], content["gamma"], MemoryOptions(**content["options"]))


def read(folder: Path, wanted: Description, capacity: int) -> Saved:
    """Everything of a saved memory, checked against what the one that is to take it over is."""
    content, saved = _content(folder), read_description(folder)
    if saved.state_dim != wanted.state_dim:
        raise CheckpointError(
            f"the memory in {folder} has state_dim {saved.state_dim}, this one has {wanted.state_dim}"
        )
    for name in ("key_dim", "half_precision"):
        theirs, ours = getattr(saved.options, name), getattr(wanted.options, name)
        if theirs != ours:
            raise CheckpointError(f"the memory in {folder} has {name} {theirs}, this one has {ours}")
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
    counters = {name: int(value) for name, value in content["counters"].items()}
    return Saved(arrays, order, mean, spread, recent, counters)
