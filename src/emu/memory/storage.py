"""The episodic memory on disk: one .npy an array and one JSON file, no pickle. Keys and index are rebuilt on load.

A save writes arrays under new names, then lets memory.json name them: until that one replacement the older save is the
one that is read, from then on the new one is. Whatever is read is checked before any kernel sees it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.errors import CheckpointError, ConfigError
from emu.memory.desirability import WINDOW
from emu.memory.normalisation import Normalisation
from emu.memory.options import MemoryOptions

FORMAT = 3
DESCRIPTION = "memory.json"
OPTIONS = [field.name for field in dataclasses.fields(MemoryOptions)]
ARRAYS = ("states", "times", "embeddings", "best_return", "desirable", "counts")
NAMES = (*ARRAYS, "order", "normalisation", "recent_returns")
CHUNK = 65_536  # rows looked at together
OURS = re.compile(rf"({'|'.join(NAMES)})-(\d+)\.npy")  # the only names that are ever removed


class Description(NamedTuple):
    """What a memory is, apart from its entries."""

    state_dim: int
    gamma: float
    options: MemoryOptions


class Saved(NamedTuple):
    """The entries, their order of use, their normalisation, and what has been counted."""

    arrays: dict[str, np.ndarray]
    order: np.ndarray  # entries from the least to the most recently used
    normalisation: Normalisation
    recent_returns: np.ndarray  # what a quantile of returns is taken of; empty unless one is
    counters: dict[str, int]
    radius: float


def save(folder: Path, description: Description, saved: Saved) -> None:
    """`saved.arrays` may have room for more entries than there are."""
    folder.mkdir(parents=True, exist_ok=True)
    number = max(_files(folder).values(), default=0) + 1
    size = len(saved.order)
    arrays = {name: saved.arrays[name][:size] for name in ARRAYS} | {
        "order": saved.order,
        "normalisation": saved.normalisation.as_array(),
        "recent_returns": saved.recent_returns,
    }
    for name, array in arrays.items():
        np.save(folder / _file(name, number), array, allow_pickle=False)
    content = {
        "format": FORMAT,
        "save": number,
        "state_dim": description.state_dim,
        "gamma": description.gamma,
        "options": {name: getattr(description.options, name) for name in OPTIONS},
        "counters": saved.counters,
        "radius": saved.radius,
    }
    part = folder / f".{DESCRIPTION}.part"
    part.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(part, folder / DESCRIPTION)
    for path, saved_as in _files(folder).items():
        if saved_as != number:
            path.unlink()


def _file(name: str, number: int) -> str:
    return f"{name}-{number}.npy"


def _files(folder: Path) -> dict[Path, int]:
    """The arrays of all saves in this folder, complete or not, with the numbers of their saves."""
    found = ((path, OURS.fullmatch(path.name)) for path in folder.iterdir())
    return {path: int(match[2]) for path, match in found if match and path.is_file()}


def read_description(folder: Path) -> Description:
    content = _content(folder)
    return Description(content["state_dim"], content["gamma"], content["options"])


def _content(folder: Path) -> dict[str, Any]:
    """memory.json, every value checked; the options as `MemoryOptions`."""
    try:
        content = json.loads((folder / DESCRIPTION).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"no readable memory in {folder}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else "none"
        raise CheckpointError(f"the memory in {folder} has format {found}, expected {FORMAT}")
    kinds = {"save": int, "state_dim": int, "gamma": float, "options": dict, "counters": dict, "radius": float}
    for name, kind in kinds.items():
        if type(content.get(name)) is not kind:
            raise _damaged(folder, f"{name} is {content.get(name)!r}")
    if not (content["state_dim"] >= 1 and 0 <= content["gamma"] <= 1 and 0 < content["radius"] < float("inf")):
        raise _damaged(folder, "state_dim, gamma or radius is impossible")
    try:
        return content | {"options": MemoryOptions(**content["options"])}
    except (TypeError, ConfigError) as error:
        raise _damaged(folder, str(error)) from error


def read(folder: Path, wanted: Description, capacity: int, counters: Iterable[str]) -> Saved:
    """Everything of a saved memory, checked against what the one that is to take it over is."""
    content = _content(folder)
    _refuse_others(folder, content, wanted)
    number, key_dim = content["save"], wanted.options.key_dim
    order = _array(folder, "order", number, np.int32, (None,))
    size = len(order)
    if size > capacity:
        raise CheckpointError(f"the memory in {folder} has {size:,} entries, more than the capacity {capacity:,}")
    shapes = {
        "states": (np.dtype(wanted.options.dtype), (size, wanted.state_dim)),
        "times": (np.int32, (size,)),
        "embeddings": (np.float32, (size, key_dim)),
        "best_return": (np.float32, (size,)),
        "desirable": (np.bool_, (size,)),
        "counts": (np.int32, (size, 2)),
    }
    arrays = {name: _array(folder, name, number, *shapes[name]) for name in ARRAYS}
    _check_entries(folder, order, arrays)
    rows = 2 + key_dim if wanted.options.whiten else 2
    normal = _array(folder, "normalisation", number, np.float32, (rows, key_dim))
    if not (_finite(normal) and (normal[1] > 0).all()):
        raise _damaged(folder, "the normalisation is impossible")
    recent = _array(folder, "recent_returns", number, np.float64, (None,))
    if len(recent) > WINDOW or not _finite(recent):
        raise _damaged(folder, "the recent returns are impossible")
    whitening = np.array(normal[2:]) if wanted.options.whiten else None
    normalisation = Normalisation(np.array(normal[0]), np.array(normal[1]), whitening)
    return Saved(
        arrays,
        np.array(order),
        normalisation,
        np.array(recent),
        _counters(folder, content, counters),
        content["radius"],
    )


def _refuse_others(folder: Path, content: dict[str, Any], wanted: Description) -> None:
    theirs, ours = content["options"], wanted.options
    pairs = {name: (getattr(theirs, name), getattr(ours, name)) for name in ("key_dim", "half_precision", "whiten")}
    for name, (saved, own) in {"state_dim": (content["state_dim"], wanted.state_dim), **pairs}.items():
        if saved != own:
            raise CheckpointError(f"the memory in {folder} has {name} {saved}, this one has {own}")


def _array(folder: Path, name: str, number: int, dtype: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """An array of this type and shape (None: any length), left on disk until it is read."""
    path = folder / _file(name, number)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy reads headers with Python's own parser: a damaged one raises anything
        raise CheckpointError(f"the memory in {folder} cannot be read: {path.name}: {error}") from error
    fits = len(array.shape) == len(shape) and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise _damaged(folder, f"{path.name} has type {array.dtype} and shape {array.shape}")
    return array


def _check_entries(folder: Path, order: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
    size = len(order)
    seen = np.zeros(size, np.bool_)
    inside = (order >= 0) & (order < size)
    seen[order[inside]] = True
    if not (inside.all() and seen.all()):
        raise _damaged(folder, "the order of use does not name every entry once")
    if not all(_finite(arrays[name]) for name in ("states", "embeddings", "best_return")):
        raise _damaged(folder, "states, embeddings or returns are not finite")
    visits, desirable_visits = arrays["counts"].T
    if not ((visits >= 1) & (desirable_visits >= 0) & (desirable_visits <= visits)).all():
        raise _damaged(folder, "the visits are impossible")
    if not ((arrays["desirable"].view(np.uint8) <= 1).all() and (arrays["times"] >= 0).all()):
        raise _damaged(folder, "flags or times are impossible")


def _finite(array: np.ndarray) -> bool:
    return all(bool(np.isfinite(array[start : start + CHUNK]).all()) for start in range(0, len(array), CHUNK))


def _counters(folder: Path, content: dict[str, Any], names: Iterable[str]) -> dict[str, int]:
    counters = content["counters"]
    if set(counters) != set(names) or not all(type(count) is int and count >= 0 for count in counters.values()):
        raise _damaged(folder, "the counters are impossible")
    return dict(counters)


def _damaged(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(f"the memory in {folder} is damaged or was not fully written: {what}")
