"""Kernels of the spatial hash: cells of one size, hashed into buckets that list the entries they hold.

A cell is never narrower than twice the radius, so the ball around a query touches at most two cells a dimension, and
nearly always just one in all, because cells are sized by the density of the keys. Buckets do not remember which cell
an entry came from: the distance test sorts out strangers.

A build lays the entries of a bucket side by side, copies of their keys with their numbers: a run, read at one go.
Entries that come later are chained in front of the run. A bucket with many entries becomes a k-d tree.
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
    copy_key,
    distance,
    take_pair,
    tree_build,
    tree_insert,
    tree_plant,
    tree_rebuild,
    tree_remove,
    tree_search,
)


def _sums(weights: tuple[int, ...]) -> np.ndarray:
    """The sum of every set of weights, in 64 bits; the bits of its place say which."""
    sums = np.zeros(1, np.uint64)
    for weight in weights:
        sums = np.concatenate([sums, sums + np.uint64(weight)])
    return sums.view(np.int64)


ABSENT = -2  # in `following`: the entry is not in the index
# Codes in `head` and `following`, beside entries: RUN - (16 * row + length - 1) of a run, and nodes of trees below.
RUN = -3
WEIGHTS = tuple(0x9E3779B97F4A7C15**power % 2**63 | 1 for power in range(1, 9))  # one a dimension, odd
STEPS = _sums(WEIGHTS)
BLOCK = 64  # queries whose memory is fetched ahead


class Grid(NamedTuple):
    """All a kernel needs to find, add and remove entries."""

    keys: np.ndarray  # (n, D) float32
    following: np.ndarray  # (n,) int32: next entry of the same bucket, or its run
    head: np.ndarray  # (buckets,) int32
    run: np.ndarray  # (n + 1, D) float32: keys in the order of their buckets; those of removed entries are infinite
    number: np.ndarray  # (n + 1,) int32: the entries of these rows
    empty: int  # code of the last row, a run of nobody: a bucket without entries is read like any other
    tree: Tree
    scale: float  # 1 / cell size
    reach: float  # the radius and a hair, so that rounding loses nobody
    limit: float  # a match is closer than this: radius squared for l2, radius for linf
    buckets: np.uint64  # how many
    linf: bool
    ahead: np.ndarray  # (BLOCK * 2^D,) int64: the buckets a block of queries reads, in turn
    places: np.ndarray  # (BLOCK + 1,) int64: where in `ahead` each of them starts


@inlined
def cell_of(value, scale):
    """Which cell a coordinate lies in; zero, where collapsed dimensions end up, is the middle of a cell.

    Beyond ±2^63 cells the conversion gives one and the same number: far-off keys share a cell, nothing is lost.
    """
    return np.int64(math.floor(value * scale + 0.5))


@inlined
def hashed(cells_sum):
    """Spread a weighted sum of cell numbers over 64 bits, of which the upper ones are the better mixed."""
    h = np.uint64(cells_sum)
    return (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)


@inlined
def _bucket(grid, cells_sum):
    """A bucket for a cell: the upper 32 bits of its hash, scaled to their number."""
    return np.int64(((hashed(cells_sum) >> np.uint64(32)) * grid.buckets) >> np.uint64(32))


@inlined
def bucket_of(grid, keys, i):
    total = np.int64(0)
    for d in range(len(grid.tree.axes)):
        total += cell_of(np.float64(keys[i, d]), grid.scale) * WEIGHTS[d]
    return _bucket(grid, total)


@inlined
def _look(grid, bucket, y, best, best_id):
    """The closest entry of a bucket, if it beats (best, best_id)."""
    i = np.int64(grid.head[bucket])
    while i >= 0:
        gap = distance(grid.tree, grid.keys, i, y, grid.linf)
        if gap < best or (gap == best and i < best_id):
            best = gap
            best_id = i
        i = np.int64(grid.following[i])
    if i < grid.empty:
        return tree_search(grid.tree, grid.keys, grid.empty - 1 - i, y, grid.linf, best, best_id)
    start, stop = _rows(i)
    for row in range(start, stop):
        gap = distance(grid.tree, grid.run, row, y, grid.linf)
        if gap <= best:
            i = np.int64(grid.number[row])
            if gap < best or i < best_id:
                best = gap
                best_id = i
    return best, best_id


@inlined
def _rows(code):
    """Where a run starts and stops."""
    place = RUN - code
    return place >> 4, (place >> 4) + (place & 15) + 1


@inlined
def _corner(grid, y):
    """Of the cells the ball around y touches: the weighted sum of the lowest, which dimensions have two, and y's own.

    The latter two as bits; END: more than two in one dimension, possible only where float64 is coarser than a cell.
    Written without branches: which dimensions are crossed is chance, and a wrong guess costs more than the sums.
    """
    total, crossed, own, widest = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for d in range(len(grid.tree.axes)):
        low = cell_of(np.float64(y[d]) - grid.reach, grid.scale)
        more = cell_of(np.float64(y[d]) + grid.reach, grid.scale) - low
        crossed |= more << d
        own |= (cell_of(np.float64(y[d]), grid.scale) - low) << d
        widest |= more
        total += low * WEIGHTS[d]
    return total, crossed if widest >> 1 == 0 else np.int64(END), own


@compiled
def _look_far(grid, y, best, best_id):
    """The closest entry in any of the cells touched, counted dimension by dimension, whatever their number."""
    cells = np.int64(1)
    for d in range(len(grid.tree.axes)):
        cells *= (
            1 + cell_of(np.float64(y[d]) + grid.reach, grid.scale) - cell_of(np.float64(y[d]) - grid.reach, grid.scale)
        )
    for c in range(cells):
        total = np.int64(0)
        for d in range(len(grid.tree.axes)):
            low = cell_of(np.float64(y[d]) - grid.reach, grid.scale)
            width = cell_of(np.float64(y[d]) + grid.reach, grid.scale) - low + 1
            total += (low + c % width) * WEIGHTS[d]
            c //= width
        best, best_id = _look(grid, _bucket(grid, total), y, best, best_id)
    return best, best_id


@inlined
def look_ahead(grid, keys, start):
    """List the buckets of the next `BLOCK` queries, then read what these will read, all at once.

    Loops of next to nothing but reads let the processor wait for many of them in parallel instead of in turn.
    Returns a sum that the caller must pass on, so that the compiler keeps the reads.
    """
    place, count = np.int64(0), min(BLOCK, keys.shape[0] - start)
    for j in range(count):
        grid.places[j] = place
        total, crossed, own = _corner(grid, keys[start + j])
        if crossed == END:
            grid.ahead[place] = END  # the query will find the cells on its own
            place += 1
            continue
        away = np.int64(0)
        while True:  # from the cell of the key itself, all sets of crossed dimensions
            grid.ahead[place] = _bucket(grid, total + STEPS[own ^ away])
            place += 1
            away = (away - crossed) & crossed
            if away == 0:
                break
    grid.places[count] = place
    kept = np.int64(0)
    for k in range(place):
        kept += grid.head[max(np.int64(0), grid.ahead[k])]
    for k in range(place):
        i = np.int64(grid.head[max(np.int64(0), grid.ahead[k])])
        start, stop = _rows(max(grid.empty, min(i, RUN)))
        kept += (grid.run[start, 0] > 0) + (grid.run[stop - 1, 0] > 0)
        kept += grid.following[max(0, i)] + (grid.keys[max(0, i), 0] > 0)
    return kept


@inlined
def nearest(grid, y, j):
    """(entry, distance) of the closest entry within the radius, lowest number among equals; (-1, limit) if none.

    `look_ahead` has listed the buckets of this query, number j of its block.
    """
    best, best_id = grid.limit, np.int64(END)
    for k in range(grid.places[j], grid.places[j + 1]):
        if grid.ahead[k] == END:
            best, best_id = _look_far(grid, y, best, best_id)
        else:
            best, best_id = _look(grid, grid.ahead[k], y, best, best_id)
    return best_id, best


@inlined
def home(grid, keys, row, j):
    """The bucket of a key: the first that was listed for it as query j of the block."""
    bucket = grid.ahead[grid.places[j]]
    return bucket if bucket != END else bucket_of(grid, keys, row)


@inlined
def insert(grid, i, bucket):
    """Add entry i, whose key is in `keys`, to its bucket. Returns a tree's node that is to be built anew, or END."""
    first = np.int64(grid.head[bucket])
    if first < grid.empty:
        grid.following[i] = END
        return tree_insert(grid.tree, grid.keys, grid.empty - 1 - first, i)
    length, j = 1, first
    while j >= 0:
        length += 1
        j = np.int64(grid.following[j])
    start, stop = _rows(j)
    length += stop - start - (j == grid.empty)
    grid.following[i] = first
    grid.head[bucket] = i
    if length <= LEAF:
        return np.int64(END)
    n = _plant(grid, i)
    grid.head[bucket] = grid.empty - 1 - n
    return n


@compiled
def _plant(grid, i):
    """A tree of one leaf from the chain that starts at entry i and the run behind it; to be built anew."""
    n, count = take_pair(grid.tree), 0
    while i >= 0:
        grid.tree.leaf[n, count] = i
        count += 1
        i = np.int64(grid.following[i])
    start, stop = _rows(i)
    for row in range(start, stop):
        if grid.run[row, 0] < np.inf:
            grid.tree.leaf[n, count] = grid.number[row]
            count += 1
    tree_plant(grid.tree, n, count)
    return n


@inlined
def remove(grid, i):
    """Take entry i out; its key must still be the one it was added with."""
    bucket, before = bucket_of(grid, grid.keys, i), np.int64(END)
    j = np.int64(grid.head[bucket])
    while j >= 0 and j != i:
        before = j
        j = np.int64(grid.following[j])
    if j < 0:
        _remove_placed(grid, bucket, j, i)
    elif before == END:
        grid.head[bucket] = grid.following[i]
    else:
        grid.following[before] = grid.following[i]
    grid.following[i] = ABSENT


@compiled
def _remove_placed(grid, bucket, code, i):
    """Take entry i out of the tree or the run with this code."""
    if code < grid.empty:
        if tree_remove(grid.tree, grid.keys, grid.empty - 1 - code, i) == 0:
            grid.head[bucket] = grid.empty
        return
    row, _ = _rows(code)
    while grid.number[row] != i:
        row += 1
    for d in range(len(grid.tree.axes)):
        grid.run[row, d] = np.inf


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
        copy_key(grid.tree, keys, j, grid.keys, ids[j])
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
            copy_key(grid.tree, keys, q, grid.keys, found)
            crowded = insert(grid, found, home(grid, keys, q, q % BLOCK))
            if crowded != END:
                tree_rebuild(grid.tree, grid.keys, crowded)
        ids[q] = found
    return first_free, kept


@entry_point
def build(grid, count):
    """Index the entries below `count` that are present, from their keys alone: sort them by bucket into runs.

    Buckets are first counted, then filled. In between, `head` holds where the next entry of a bucket goes, and
    `following` the bucket of an entry. Returns how many rows the runs take.
    """
    head, following = grid.head, grid.following
    for bucket in range(head.shape[0]):
        head[bucket] = 0
    for start in range(0, count, BLOCK):  # in blocks: many reads and writes are then under way at once
        stop = min(count, start + BLOCK)
        for i in range(start, stop):
            if following[i] != ABSENT:
                following[i] = bucket_of(grid, grid.keys, i)
        for i in range(start, stop):
            if following[i] != ABSENT:
                head[following[i]] += 1
    rows = 0
    for bucket in range(head.shape[0]):
        length = head[bucket]
        head[bucket] = rows
        rows += length
    for i in range(count):
        if following[i] != ABSENT:
            row = head[following[i]]
            head[following[i]] = row + 1
            following[i] = END
            grid.number[row] = i
    for row in range(rows):
        copy_key(grid.tree, grid.keys, grid.number[row], grid.run, row)
    _close_runs(grid)
    return rows


@compiled
def _close_runs(grid):
    """`head` says where runs stop: let it say what they are. Those with too many entries become trees."""
    grid.tree.counters[0] = END
    grid.tree.counters[1] = 0
    start = np.int64(0)
    for bucket in range(grid.head.shape[0]):
        stop = np.int64(grid.head[bucket])
        length = stop - start
        grid.head[bucket] = RUN - (16 * start + length - 1) if length > 0 else grid.empty
        if length > LEAF:
            for row in range(start, stop):
                grid.tree.scratch[row - start] = grid.number[row]
            n = take_pair(grid.tree)
            tree_build(grid.tree, grid.keys, n, length)
            grid.head[bucket] = grid.empty - 1 - n
        start = stop
