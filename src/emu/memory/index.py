"""An exact index for the fixed-radius nearest neighbour: the closest key nearer than the radius, or none.

Nothing outside the radius is ever used (Algorithm 2 of the paper), so a spatial hash answers exactly in constant time
whatever the number of entries. Keys are (n, D) float32, D = 1 … 8; entries are numbered by the caller, 0 … capacity-1.
Among entries at the same distance the lowest number wins: answers never depend on the order of insertions.
"""

from __future__ import annotations

import math

import numpy as np

from emu.errors import ConfigError, EmuError
from emu.memory import _grid
from emu.memory._cellsize import choose_cell
from emu.memory._grid import ABSENT, Grid
from emu.memory._guard import OneCaller, exclusive
from emu.memory._tree import empty_tree

REGRID_AT = (64, 1024, 16384)  # sizes at which the cell size is chosen anew; later only on `rebuild`
METRICS = ("l2", "linf")
MOST = 100_000_000  # entries: runs are told from each other, and from the nodes of trees, in 32 bits


class RadiusIndex(OneCaller):
    """Insert, move, remove and query by the hundred or by the million; every change is visible to the next query."""

    def __init__(self, dim: int, radius: float, capacity: int, metric: str = "l2") -> None:
        super().__init__()
        if not 1 <= dim <= 8:
            raise ConfigError(f"the index takes keys of 1 to 8 dimensions, got {dim}: reduce the embedding's dimension")
        if metric not in METRICS:
            raise ConfigError(f"unknown metric '{metric}': use one of {', '.join(METRICS)}")
        if not 1 <= capacity <= MOST:
            raise ConfigError(f"capacity must lie in 1 … {MOST:,}, got {capacity}")
        self.dim, self.capacity, self.metric = dim, capacity, metric
        self.size = 0  # entries present
        self._end = 0  # one past the highest entry ever present
        self._rows = 0  # of runs
        self._regrid_at = REGRID_AT[0]
        buckets = 2 * capacity
        run = np.empty((capacity + 1, dim), np.float32)
        run[capacity] = np.inf
        empty = _grid.RUN - 16 * capacity
        self._grid = Grid(
            keys=np.empty((capacity, dim), np.float32),
            following=np.full(capacity, ABSENT, np.int32),
            head=np.full(buckets, empty, np.int32),
            run=run,
            number=np.zeros(capacity + 1, np.int32),
            empty=empty,
            tree=empty_tree(capacity, dim),
            scale=1.0,
            reach=1.0,
            limit=1.0,
            buckets=np.uint64(buckets),
            linf=metric == "linf",
            ahead=np.empty(_grid.BLOCK << dim, np.int64),
            places=np.empty(_grid.BLOCK + 1, np.int64),
        )
        self._set_radius(radius)

    def _set_radius(self, radius: float) -> None:
        if not (radius > 0 and math.isfinite(radius)):
            raise ConfigError(f"the radius must be a positive number, got {radius}")
        self.radius = float(radius)
        reach = self.radius * (1 + 1e-6)
        limit = self.radius if self.metric == "linf" else self.radius * self.radius
        self._grid = self._grid._replace(reach=reach, limit=limit, scale=1 / (2.000001 * reach))

    @property
    def grid(self) -> Grid:
        """The arrays behind the index, for compiled callers; take it anew after every `rebuild`."""
        return self._grid

    @property
    def keys(self) -> np.ndarray:
        """(capacity, D): row i is the key of entry i where present. Write only through the methods."""
        return self._grid.keys

    @property
    def cell(self) -> float:
        return 1 / self._grid.scale

    @property
    def nbytes(self) -> int:
        """Bytes in use: per-entry arrays up to the highest entry, the bucket table and the trees' nodes."""
        tree = self._grid.tree
        node = sum(a.nbytes // len(a) for a in (tree.node, tree.cut, tree.box, tree.leaf))
        entries = (self._end + self._rows) * (4 * self.dim + 4)
        return entries + self._grid.head.nbytes + int(tree.counters[1]) * node

    def __len__(self) -> int:
        return self.size

    def __contains__(self, entry: int) -> bool:
        return 0 <= entry < self.capacity and bool(self._grid.following[entry] != ABSENT)

    @exclusive
    def query(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) entry numbers, -1 where nothing is nearer than the radius, and (n,) distances (inf there)."""
        keys = self._checked(keys)
        ids, gaps = np.empty(len(keys), np.int32), np.empty(len(keys), np.float64)
        _grid.query_batch(self._grid, keys, ids, gaps)
        if self.metric == "l2":
            np.sqrt(gaps, out=gaps)
        gaps[ids < 0] = np.inf
        return ids, gaps

    @exclusive
    def insert(self, ids: np.ndarray, keys: np.ndarray) -> None:
        """Add new entries; a number that is already present is refused."""
        ids, keys = self._new(ids, keys)
        for start, stop in self._stretches(len(ids)):
            _grid.insert_batch(self._grid, ids[start:stop], keys[start:stop])
            self.added(stop - start, int(ids[start:stop].max(initial=-1)) + 1)

    @exclusive
    def remove(self, ids: np.ndarray) -> None:
        ids = self._present(ids)
        _grid.remove_batch(self._grid, ids)
        self.size -= len(ids)

    @exclusive
    def move(self, ids: np.ndarray, keys: np.ndarray) -> None:
        """Give entries other keys."""
        ids, keys = self._present(ids), self._checked(keys)
        self._same_length(ids, keys)
        _grid.remove_batch(self._grid, ids)
        _grid.insert_batch(self._grid, ids, keys)

    @exclusive
    def query_or_insert(self, keys: np.ndarray) -> tuple[np.ndarray, int]:
        """Each key in turn finds its match or becomes a new entry (the next unused number), seen by the keys after it.

        Returns the (n,) entry numbers and how many entries were added.
        """
        keys = self._checked(keys)
        if self._end + len(keys) > self.capacity:
            raise EmuError(f"{len(keys)} keys may not fit: {self._end} of {self.capacity} numbers are taken")
        ids, before, start = np.empty(len(keys), np.int32), self._end, 0
        while start < len(keys):
            stop = min(len(keys), start + self._room())
            end, _ = _grid.query_or_insert_batch(self._grid, keys[start:stop], self._end, ids[start:stop])
            self.added(end - self._end, end)
            start = stop
        return ids, self._end - before

    @exclusive
    def rebuild(self, keys: np.ndarray | None = None, radius: float | None = None) -> None:
        """Index everything anew: after all keys changed (`keys`, one row an entry 0 … n-1), or the radius did.

        Chooses the cell size afresh; the answers are those of an index that got the same entries one by one.
        """
        self._rebuild(keys, radius)

    def _rebuild(self, keys: np.ndarray | None = None, radius: float | None = None) -> None:
        if keys is not None:
            keys = self._checked(keys)
            if len(keys) > self.capacity:
                raise EmuError(f"{len(keys)} keys do not fit into a capacity of {self.capacity}")
            grid = self._grid
            grid.keys[: len(keys)] = keys
            grid.following[: len(keys)] = _grid.END
            grid.following[len(keys) : self._end] = ABSENT
            self.size = self._end = len(keys)
        self._set_radius(self.radius if radius is None else radius)
        grid = self._grid
        target = max(self.size, self.capacity)  # finer cells than needed today cost nothing, and spare a pause later
        keys = grid.keys[: self._end]
        if self.size < self._end:
            keys = keys[grid.following[: self._end] != ABSENT]
        self._grid = grid._replace(scale=1 / choose_cell(keys, target, grid.reach))
        self._rows = _grid.build(self._grid, self._end)
        self._regrid_at = next((n for n in REGRID_AT if n > self.size), self.capacity + 1)

    def added(self, count: int, end: int) -> None:
        """Note entries that a compiled caller added; re-grids at a few small sizes while the keys are still few."""
        self.size += count
        self._end = max(self._end, end)
        if self.size >= self._regrid_at:
            self._rebuild()

    def _room(self) -> int:
        return max(1, self._regrid_at - self.size)

    def _stretches(self, count: int):
        start = 0
        while start < count:
            stop = min(count, start + self._room())
            yield start, stop
            start = stop

    def _checked(self, keys: np.ndarray) -> np.ndarray:
        keys = np.require(keys, np.float32, ["C", "W"])
        if keys.ndim != 2 or keys.shape[1] != self.dim:
            raise EmuError(f"keys must have shape (n, {self.dim}), got {keys.shape}")
        if not np.isfinite(keys).all():
            bad = int((~np.isfinite(keys).all(axis=1)).sum())
            raise EmuError(f"{bad} of {len(keys)} keys are not finite: check the encoder and the states for NaN")
        return keys

    def _numbers(self, ids: np.ndarray) -> np.ndarray:
        ids = np.asarray(ids).reshape(-1)
        if len(ids) and ids.dtype.kind not in "iu":
            raise EmuError(f"entry numbers must be whole numbers, got {ids.dtype}")
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.capacity):  # before they are cut to 32 bits
            raise EmuError(f"entry numbers must lie in 0 … {self.capacity - 1}")
        ids = np.require(ids, np.int32, ["C", "W"])
        if len(np.unique(ids)) != len(ids):
            raise EmuError("an entry number occurs twice in one call")
        return ids

    def _present(self, ids: np.ndarray) -> np.ndarray:
        ids = self._numbers(ids)
        missing = ids[self._grid.following[ids] == ABSENT]
        if len(missing):
            raise EmuError(f"entry {missing[0]} is not in the index")
        return ids

    def _new(self, ids: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, keys = self._numbers(ids), self._checked(keys)
        self._same_length(ids, keys)
        taken = ids[self._grid.following[ids] != ABSENT]
        if len(taken):
            raise EmuError(f"entry {taken[0]} is already in the index: use move")
        return ids, keys

    @staticmethod
    def _same_length(ids: np.ndarray, keys: np.ndarray) -> None:
        if len(ids) != len(keys):
            raise EmuError(f"{len(ids)} entry numbers for {len(keys)} keys")
