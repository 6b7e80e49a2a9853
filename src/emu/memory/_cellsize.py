"""How wide the cells of an index should be: tried out on a sample of its keys.

Narrow cells mean that the ball around a query touches many of them, wide ones that each holds many entries.
"""

from __future__ import annotations

import math

import numpy as np

from emu.memory._compile import entry_point
from emu.memory._grid import WEIGHTS, cell_of, hashed

SAMPLE = 4096  # keys looked at
CROWDED = 16  # neighbours in the sample from which on a cell is taken to become a tree
TREE_COST = 30.0  # of a small tree's search, in units of one entry read; the depth comes on top


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
            total += cell_of(value, 1.0 / cell) * WEIGHTS[d]
            cells *= 1.0 + (cell_of(value + reach, 1.0 / cell) > cell_of(value - reach, 1.0 / cell))
        touched += cells
        h = hashed(total)
        slot = np.int64(h >> np.uint64(32)) & mask
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
    cell = max(smallest, spread * 1e-7)  # float32 is not finer than that
    best_cell, best_cost = smallest, math.inf
    while True:
        cost = _sample_cost(sample, cell, reach, target / len(sample), table, counts, codes)
        if cost <= best_cost:
            best_cell, best_cost = cell, cost
        if cell > spread:
            return best_cell
        cell *= 1.5
