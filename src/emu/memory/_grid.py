"""Kernels of the spatial hash: cells of one size, hashed into buckets that chain the entries they hold.

A cell is never narrower than twice the radius, so the ball around a query touches at most two cells a dimension, and
nearly always just one in all, because cells are sized by the density of the keys. Buckets do not remember which cell
an entry came from: the distance test sorts out strangers. A bucket with many entries becomes a k-d tree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from emu.memory._compile import compiled, entry_point, inlined
from emu.memory._tree import (
    END,
    LEAF,
    Tree,
    copy_row,
    distance,
    take_pair,
    tree_build,
    tree_insert,
    tree_plant,
    tree_rebuild,
    tree_remove,
    tree_search,
)

ABSENT = -2  # in `following`: the entry is not in the index. In `head`: END, an entry, or ABSENT - node of a tree
WEIGHTS = tuple(0x9E3779B97F4A7C15**power % 2**63 | 1 for power in range(1, 9))  # one a dimension, odd
BLOCK = 32  # queries whose memory is fetched ahead
SAMPLE = 4096  # keys looked at when the cell size is chosen
CROWDED = 16  # neighbours in the sample from which on a cell is taken to become a tree
TREE_COST = 30.0  # of a small tree's search, in units of one entry read; the depth comes on top


class Grid(NamedTuple):
    """All a kernel needs to find, add and remove entries."""

    keys: np.ndarray  # (n, D) float32
    following: np.ndarray  # (n,) int32: next entry of the same bucket
    head: np.ndarray  # (buckets,) int32
    tree: Tree
    scale: float  # 1 / cell size
    reach: float  # the radius and a hair, so that rounding loses nobody
    limit: float  # a match is closer than this: radius squared for l2, radius for linf
    mask: np.uint64  # buckets - 1
    linf: bool
    ahead: np.ndarray  # (BLOCK * 2^D,) int64: the buckets a block of queries reads, in turn; or those of keys built in
    places: np.ndarray  # (BLOCK + 1,) int64: where in `ahead` each of them starts


@inlined
def _cell(value, scale):
    """Which cell a coordinate lies in; zero, where collapsed dimensions end up, is the middle of a cell.

    Beyond ±2^63 cells the conversion gives one and the same number: far-off keys share a cell, nothing is lost.
    """
    return np.int64(math.floor(value * scale + 0.5))


@inlined
def _hash(cells_sum):
    """Spread a weighted sum of cell numbers over 64 bits; the upper ones choose the bucket."""
    h = np.uint64(cells_sum)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@inlined
def bucket_of(grid, keys, i):
    total = np.int64(0)
    for d in range(len(grid.tree.axes)):
        total += _cell(np.float64(keys[i, d]), grid.scale) * WEIGHTS[d]
    return np.int64(_hash(total) & grid.mask)


@inlined
def _look(grid, bucket, y, best, best_id):
    i = np.int64(grid.head[bucket])
    if i < END:
        return tree_search(grid.tree, grid.keys, ABSENT - i, y, grid.linf, best, best_id)
    while i != END:
        gap = distance(grid.tree, grid.keys, i, y, grid.linf)
        if gap < best or (gap == best and i < best_id):
            best = gap
            best_id = i
        i = np.int64(grid.following[i])
    return best, best_id


@inlined
def _corner(grid, y):
    """Of the cells the ball around y touches: the weighted sum of the lowest one, and how many there are.

    Written without branches: nearly always there is one, and a wrong guess of the processor costs more than the sums.
    """
    total, cells = np.int64(0), 1
    for d in range(len(grid.tree.axes)):
        low = _cell(np.float64(y[d]) - grid.reach, grid.scale)
        cells *= _cell(np.float64(y[d]) + grid.reach, grid.scale) - low + 1
        total += low * WEIGHTS[d]
    return total, cells


@inlined
def _list_corners(grid, y, total, start):
    """Write the buckets of all cells the ball touches, two in some dimensions; returns where the list ends.

    Every crossed dimension doubles the list. END: more than two in one dimension, which is possible only where
    float64 itself is coarser than a cell.
    """
    grid.ahead[start] = total
    stop = start + 1
    for d in range(len(grid.tree.axes)):
        low = _cell(np.float64(y[d]) - grid.reach, grid.scale)
        high = _cell(np.float64(y[d]) + grid.reach, grid.scale)
        if high > low + 1:
            return np.int64(END)
        if high > low:
            for k in range(stop - start):
                grid.ahead[stop + k] = grid.ahead[start + k] + WEIGHTS[d]
            stop += stop - start
    for k in range(start, stop):
        grid.ahead[k] = np.int64(_hash(grid.ahead[k]) & grid.mask)
    return stop


@compiled
def _far_corner(grid, y, c):
    """Cell c of all that are touched, counted dimension by dimension, whatever their number."""
    total = np.int64(0)
    for d in range(len(grid.tree.axes)):
        low = _cell(np.float64(y[d]) - grid.reach, grid.scale)
        width = _cell(np.float64(y[d]) + grid.reach, grid.scale) - low + 1
        total += (low + c % width) * WEIGHTS[d]
        c //= width
    return total


@inlined
def look_ahead(grid, keys, start):
    """List the buckets of the next `BLOCK` queries, then read what these will read, all at once.

    Loops of next to nothing but reads let the processor wait for many of them in parallel instead of in turn.
    Returns a sum that the caller must pass on, so that the compiler keeps the reads.
    """
    place, count = np.int64(0), min(BLOCK, keys.shape[0] - start)
    for j in range(count):
        grid.places[j] = place
        total, cells = _corner(grid, keys[start + j])
        if cells == 1:
            grid.ahead[place] = np.int64(_hash(total) & grid.mask)
            place += 1
        else:
            stop = _list_corners(grid, keys[start + j], total, place)
            if stop == END:
                grid.ahead[place] = END  # the query will find the cells on its own
                place += 1
            else:
                place = stop
    grid.places[count] = place
    kept = np.int64(0)
    for k in range(place):
        kept += grid.head[max(np.int64(0), grid.ahead[k])]
    for k in range(place):
        i = np.int64(max(0, grid.head[max(np.int64(0), grid.ahead[k])]))
        kept += grid.following[i] + (grid.keys[i, 0] > 0)
    for k in range(place):
        i = np.int64(max(0, grid.head[max(np.int64(0), grid.ahead[k])]))
        i = np.int64(max(0, grid.following[i]))
        kept += grid.following[i] + (grid.keys[i, 0] > 0)
    return kept


@inlined
def nearest(grid, y, j):
    """(entry, distance) of the closest entry within the radius, lowest number among equals; (-1, limit) if none.

    `look_ahead` has listed the buckets of this query, number j of its block.
    """
    best, best_id = grid.limit, np.int64(END)
    for k in range(grid.places[j], grid.places[j + 1]):
        if grid.ahead[k] == END:
            _, cells = _corner(grid, y)
            for c in range(cells):
                bucket = np.int64(_hash(_far_corner(grid, y, c)) & grid.mask)
                best, best_id = _look(grid, bucket, y, best, best_id)
        else:
            best, best_id = _look(grid, grid.ahead[k], y, best, best_id)
    return best_id, best


@inlined
def home(grid, keys, row, j):
    """The bucket of a key: known already if query j of the block, at this key, touched one cell only."""
    k = grid.places[j]
    if grid.places[j + 1] == k + 1 and grid.ahead[k] != END:
        return grid.ahead[k]
    return bucket_of(grid, keys, row)


@inlined
def insert(grid, i, bucket):
    """Add entry i, whose key is in `keys`, to its bucket. Returns a tree's node that is to be built anew, or END."""
    first = np.int64(grid.head[bucket])
    if first < END:
        grid.following[i] = END
        return tree_insert(grid.tree, grid.keys, ABSENT - first, i)
    length, j = 1, first
    while j != END:
        length += 1
        j = np.int64(grid.following[j])
    grid.following[i] = first
    grid.head[bucket] = i
    if length <= LEAF:
        return np.int64(END)
    n = tree_plant(grid.tree, grid.following, i)
    grid.head[bucket] = ABSENT - n
    return n


@inlined
def remove(grid, i):
    """Take entry i out; its key must still be the one it was added with."""
    bucket = bucket_of(grid, grid.keys, i)
    first = np.int64(grid.head[bucket])
    if first == i:
        grid.head[bucket] = grid.following[i]
    elif first >= 0:
        before = first
        while grid.following[before] != i:
            before = np.int64(grid.following[before])
        grid.following[before] = grid.following[i]
    elif tree_remove(grid.tree, grid.keys, ABSENT - first, i) == 0:
        grid.head[bucket] = END
    grid.following[i] = ABSENT


@entry_point
def query_batch(grid, queries, ids, gaps):
    kept = np.int64(0)
    for q in range(queries.shape[0]):
        if q % BLOCK == 0:
            kept += look_ahead(grid, queries, q)
        ids[q], gaps[q] = nearest(grid, queries[q], q % BLOCK)
    return kept


@entry_point
def insert_batch(grid, ids, keys):
    for j in range(ids.shape[0]):
        copy_row(keys, j, grid.keys, ids[j])
        crowded = insert(grid, np.int64(ids[j]), bucket_of(grid, keys, j))
        if crowded != END:
            tree_rebuild(grid.tree, grid.keys, crowded)


@entry_point
def remove_batch(grid, ids):
    for j in range(ids.shape[0]):
        remove(grid, np.int64(ids[j]))


@entry_point
def query_or_insert_batch(grid, keys, first_free, ids):
    """For each key in turn: the entry that matches, else a new one. Returns the next free number and a mere sum."""
    kept = np.int64(0)
    for q in range(keys.shape[0]):
        if q % BLOCK == 0:
            kept += look_ahead(grid, keys, q)
        found, _ = nearest(grid, keys[q], q % BLOCK)
        if found == END:
            found = first_free
            first_free += 1
            copy_row(keys, q, grid.keys, found)
            crowded = insert(grid, found, home(grid, keys, q, q % BLOCK))
            if crowded != END:
                tree_rebuild(grid.tree, grid.keys, crowded)
        ids[q] = found
    return first_free, kept


@entry_point
def build(grid, count, length):
    """Index the entries below `count` that are present, from their keys alone; `length` is zero for every bucket."""
    for bucket in range(grid.head.shape[0]):
        grid.head[bucket] = END
    grid.tree.counters[0] = END
    grid.tree.counters[1] = 0
    overfull, ahead = 0, grid.ahead
    for start in range(0, count, ahead.shape[0]):
        stop = min(count, start + ahead.shape[0])
        for i in range(start, stop):  # apart from the reads and writes below: many of these are then under way at once
            ahead[i - start] = bucket_of(grid, grid.keys, i)
        for i in range(start, stop):
            if grid.following[i] != ABSENT:
                bucket = ahead[i - start]
                grid.following[i] = grid.head[bucket]
                grid.head[bucket] = i
                overfull += length[bucket] == LEAF
                length[bucket] = min(length[bucket] + 1, LEAF + 1)
    bucket = 0
    while overfull > 0:
        if length[bucket] > LEAF:
            entries, i = np.int64(0), grid.head[bucket]
            while i != END:
                grid.tree.scratch[entries] = i
                entries += 1
                i = grid.following[i]
            n = take_pair(grid.tree)
            tree_build(grid.tree, grid.keys, n, entries)
            grid.head[bucket] = ABSENT - n
            overfull -= 1
        bucket += 1


@entry_point
def _sample_cost(sample, cell, reach, weight, table, counts, codes):
    """Mean cost of a query with cells of this size, in entries read; `weight` entries stand behind one of the sample.

    Cells touched times the cost of reading one. A collapsed dimension, in the middle of its cell, never touches two.
    """
    for slot in range(counts.shape[0]):
        counts[slot] = 0
    mask, touched = np.int64(table.shape[0] - 1), 0.0
    for j in range(sample.shape[0]):
        total, cells = np.int64(0), 1.0
        for d in range(sample.shape[1]):
            value = np.float64(sample[j, d])
            total += _cell(value, 1.0 / cell) * WEIGHTS[d]
            cells *= 1.0 + (_cell(value + reach, 1.0 / cell) > _cell(value - reach, 1.0 / cell))
        touched += cells
        h = _hash(total)
        slot = np.int64(h & np.uint64(mask))
        while counts[slot] > 0 and table[slot] != h:
            slot = (slot + 1) & mask
        table[slot] = h
        counts[slot] += 1
        codes[j] = slot
    cost = 0.0
    for j in range(sample.shape[0]):
        others = counts[codes[j]] - 1
        cost += TREE_COST + 6.0 * math.log2(others * weight) if others >= CROWDED else others * weight
    return touched / sample.shape[0] * (1.0 + cost / sample.shape[0])


def choose_cell(keys: np.ndarray, target: int, reach: float) -> float:
    """The cell size with the cheapest expected query once `target` entries are distributed as these keys are."""
    smallest = max(2.000001 * reach, 1e-30)
    if len(keys) < 2:
        return smallest
    sample = np.ascontiguousarray(keys[:: max(1, len(keys) // SAMPLE)][:SAMPLE])
    spread = float((sample.max(axis=0).astype(np.float64) - sample.min(axis=0)).max())
    table, counts = np.empty(4 * SAMPLE, np.uint64), np.empty(4 * SAMPLE, np.int64)
    codes = np.empty(len(sample), np.int64)
    cell, best_cell, best_cost = (
        max(smallest, spread * 1e-7),
        smallest,
        math.inf,
    )  # float32 is not finer than that
    while True:
        cost = _sample_cost(sample, cell, reach, target / len(sample), table, counts, codes)
        if cost <= best_cost:
            best_cell, best_cost = cell, cost
        if cell > spread:
            return best_cell
        cell *= 1.5
