"""The shortest hash one would write for the job: chained, cells of one fixed size, no trees. A yardstick.

It is exact, fast on evenly spread keys, and slow as soon as keys crowd into a cell; compare `RadiusIndex` with it
inside one run to take the machine's mood out of the figures.
"""

from __future__ import annotations

import numpy as np
from numba import njit

CELL = 0.1  # suits a million standard normal keys in four dimensions: about one a cell


@njit
def _bucket(a: int, b: int, c: int, d: int, mask: int) -> int:
    return ((a * 73856093) ^ (b * 19349663) ^ (c * 83492791) ^ (d * 49979687)) & mask


@njit
def _cell(x: float) -> int:
    return int(np.floor(x / CELL))


@njit
def _insert(keys: np.ndarray, i: int, heads: np.ndarray, following: np.ndarray) -> None:
    bucket = _bucket(_cell(keys[i, 0]), _cell(keys[i, 1]), _cell(keys[i, 2]), _cell(keys[i, 3]), len(heads) - 1)
    following[i] = heads[bucket]
    heads[bucket] = i


@njit
def _build(keys: np.ndarray, size: int, heads: np.ndarray, following: np.ndarray) -> None:
    for i in range(size):
        _insert(keys, i, heads, following)


@njit
def _nearest(keys: np.ndarray, heads: np.ndarray, following: np.ndarray, q: np.ndarray, r: float) -> int:
    best, found = r * r, -1
    for a in range(_cell(q[0] - r), _cell(q[0] + r) + 1):
        for b in range(_cell(q[1] - r), _cell(q[1] + r) + 1):
            for c in range(_cell(q[2] - r), _cell(q[2] + r) + 1):
                for d in range(_cell(q[3] - r), _cell(q[3] + r) + 1):
                    i = heads[_bucket(a, b, c, d, len(heads) - 1)]
                    while i >= 0:
                        gap = 0.0
                        for k in range(4):
                            gap += (keys[i, k] - q[k]) ** 2
                        if gap < best:
                            best, found = gap, i
                        i = following[i]
    return int(found)


@njit
def _run(keys, size, heads, following, queries, radius, insert, out):  # type: ignore[no-untyped-def]
    for j in range(len(queries)):
        out[j] = _nearest(keys, heads, following, queries[j], radius)
        if insert and out[j] < 0:
            keys[size] = queries[j]
            _insert(keys, size, heads, following)
            size += 1
    return size


class PlainHash:
    name = "plain chained hash"
    exact = True

    def __init__(self, keys: np.ndarray, radius: float, spare: int = 0) -> None:
        self.size, self.radius = len(keys), radius
        buckets = 1 << max(10, int(np.ceil(np.log2(2 * len(keys)))))
        self.heads = np.full(buckets, -1, np.int32)
        self.following = np.empty(len(keys) + spare, np.int32)
        self.keys = np.empty((len(keys) + spare, keys.shape[1]), np.float32)
        self.keys[: self.size] = keys
        _build(self.keys, self.size, self.heads, self.following)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        return self._all(queries, False)

    def query_or_insert(self, keys: np.ndarray) -> None:
        self._all(keys, True)

    def _all(self, queries: np.ndarray, insert: bool) -> np.ndarray:
        out = np.empty(len(queries), np.int64)
        self.size = _run(self.keys, self.size, self.heads, self.following, queries, self.radius, insert, out)
        return out
