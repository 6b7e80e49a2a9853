"""Algorithm 2 of the paper as compiled rules: match, count, propagate, shift, add, evict; and recall.

The order of use is a doubly linked list through the entries, so that the least recently used one is known at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from emu.memory._compile import entry_point, inlined
from emu.memory._grid import BLOCK, home, insert, look_ahead, nearest, remove
from emu.memory._tree import END, copy_key, copy_row, tree_rebuild

SIZE, OLDEST, NEWEST = 0, 1, 2  # places in `ends`
OLDER, NEWER = 0, 1  # columns of `links`
VISITS, DESIRABLE_VISITS = 0, 1  # columns of `counts`
MATCHED, ADDED, PROPAGATED, EVICTED = 0, 1, 2, 3  # places in the tally of an update


class Store(NamedTuple):
    """What the memory knows of its entries, a row each; the keys are in the index."""

    states: np.ndarray  # (n, S or 2S) uint16: the bits of float16 or float32 states, so that one kernel copies both
    times: np.ndarray  # (n,) int32
    embeddings: np.ndarray  # (n, D) float32
    best_return: np.ndarray  # (n,) float32
    desirable: np.ndarray  # (n,) bool
    counts: np.ndarray  # (n, 2) int32: visits, desirable visits
    links: np.ndarray  # (n, 2) int32: the entry used just before, and just after
    ends: np.ndarray  # (3,) int64: number of entries, least and most recently used one


class Steps(NamedTuple):
    """The steps of some episodes, one after another."""

    keys: np.ndarray  # (n, D) float32, in the order in which they are learnt: each episode from its end to its start
    embeddings: np.ndarray  # (n, D) float32; these and the rest as the steps were made
    states: np.ndarray  # (n, S or 2S) uint16, as in the store
    rewards: np.ndarray  # (n,) float64; 0 for the last state of an episode, after which nothing comes
    lengths: np.ndarray  # (episodes,) int64: states of each
    desirable: np.ndarray  # (episodes,) bool


@inlined
def _append(store, i):
    """Make entry i, which is in no list, the most recently used."""
    newest = store.ends[NEWEST]
    store.links[i, OLDER] = newest
    store.links[i, NEWER] = END
    if newest == END:
        store.ends[OLDEST] = i
    else:
        store.links[newest, NEWER] = i
    store.ends[NEWEST] = i


@inlined
def _detach(store, i):
    older, newer = store.links[i, OLDER], store.links[i, NEWER]
    if older == END:
        store.ends[OLDEST] = newer
    else:
        store.links[older, NEWER] = newer
    if newer == END:
        store.ends[NEWEST] = older
    else:
        store.links[newer, OLDER] = older


@inlined
def _touch(store, i):
    if store.ends[NEWEST] != i:
        _detach(store, i)
        _append(store, i)


@inlined
def _write(grid, store, steps, row, made, time, i, value):
    """Put a step's state, time, embedding, key and return into entry i; it is learnt as `row`, was made as `made`."""
    copy_row(steps.states, made, store.states, i)
    store.times[i] = time
    copy_key(grid.tree, steps.embeddings, made, store.embeddings, i)
    store.best_return[i] = value
    copy_key(grid.tree, steps.keys, row, grid.keys, i)


@inlined
def _room(store):
    """A free entry, and whether it is still in the index: an unused one, or else the least recently used one."""
    size = store.ends[SIZE]
    if size < store.times.shape[0]:
        store.ends[SIZE] = size + 1
        return size, False
    i = store.ends[OLDEST]
    _detach(store, i)
    return i, True


@entry_point
def learn(grid, store, steps, gamma, count_new_desirable, backward_propagation, tally):
    """Run the rules over the steps in turn; an entry added is visible to the very next step."""
    value, desirable, kept, episode, start, end = 0.0, False, np.int64(0), -1, np.int64(0), np.int64(0)
    for row in range(steps.keys.shape[0]):
        if row % BLOCK == 0:
            kept += look_ahead(grid, steps.keys, row)
        if row == end:
            episode += 1
            start, end = end, end + steps.lengths[episode]
            value, desirable = 0.0, steps.desirable[episode]
        time = end - 1 - row
        value = steps.rewards[start + time] + gamma * value
        rounded = np.float32(value)

        i, _ = nearest(grid, steps.keys[row], row % BLOCK)
        added, was_desirable, shifted, leaves = i == END, False, False, False
        if added:
            i, leaves = _room(store)
            tally[EVICTED] += leaves
        else:
            was_desirable = store.desirable[i]
            shifted = leaves = desirable and not was_desirable
        if leaves:
            remove(grid, i)
        if added or shifted:
            _write(grid, store, steps, row, start + time, time, i, rounded)
            crowded = insert(grid, i, home(grid, steps.keys, row, row % BLOCK))
            if crowded != END:
                tree_rebuild(grid.tree, grid.keys, crowded)

        if added:
            store.desirable[i] = desirable
            store.counts[i, VISITS] = 1
            store.counts[i, DESIRABLE_VISITS] = 1 if desirable and count_new_desirable else 0
            _append(store, i)
        else:
            store.desirable[i] = was_desirable or shifted
            store.counts[i, VISITS] += 1
            store.counts[i, DESIRABLE_VISITS] += 1 if desirable else 0
            store.best_return[i] = max(store.best_return[i], rounded)
            _touch(store, i)
        tally[ADDED] += added
        tally[MATCHED] += not added
        tally[PROPAGATED] += shifted
        desirable = desirable or (backward_propagation and was_desirable)
    return kept


@entry_point
def recollect(grid, store, keys, wanted, ids):
    """Find the entries of a batch of keys, -1 where there is none, and note their use in the order of the batch."""
    kept, found = np.int64(0), 0
    for row in range(keys.shape[0]):
        if row % BLOCK == 0:
            kept += look_ahead(grid, keys, row)
        ids[row] = END
        if wanted[row]:
            i, _ = nearest(grid, keys[row], row % BLOCK)
            ids[row] = i
            if i != END:
                found += 1
                _touch(store, i)
    return found, kept


@entry_point
def use_order(store, order):
    """List the entries from the least to the most recently used."""
    i, place = store.ends[OLDEST], 0
    while i != END:
        order[place] = i
        place += 1
        i = np.int64(store.links[i, NEWER])


@entry_point
def restore_order(store, order):
    store.ends[OLDEST] = END
    store.ends[NEWEST] = END
    for place in range(order.shape[0]):
        _append(store, np.int64(order[place]))


@entry_point
def normalise(embeddings, mean, spread, keys):
    """y = (x - mean) / spread in float32. One kernel for all keys: the same embedding always has the same key."""
    for row in range(keys.shape[0]):
        for d in range(keys.shape[1]):
            keys[row, d] = (embeddings[row, d] - mean[d]) / spread[d]


@entry_point
def moments(embeddings, mean, spread):
    """Mean and standard deviation of every dimension, in float64, two passes."""
    rows = embeddings.shape[0]
    for d in range(embeddings.shape[1]):
        mean[d] = 0.0
        spread[d] = 0.0
    for row in range(rows):
        for d in range(embeddings.shape[1]):
            mean[d] += embeddings[row, d]
    for d in range(embeddings.shape[1]):
        mean[d] /= rows
    for row in range(rows):
        for d in range(embeddings.shape[1]):
            spread[d] += (embeddings[row, d] - mean[d]) ** 2
    for d in range(embeddings.shape[1]):
        spread[d] = np.sqrt(spread[d] / rows)


@entry_point
def whiten(embeddings, mean, matrix, keys):
    """y = (x - mean) matrix in float32, summed in the order of the dimensions."""
    for row in range(keys.shape[0]):
        for d in range(keys.shape[1]):
            total = np.float32(0)
            for j in range(keys.shape[1]):
                total += (embeddings[row, j] - mean[j]) * matrix[j, d]
            keys[row, d] = total


@entry_point
def covariance(embeddings, mean, out):
    """Of the dimensions, in float64, divided by n."""
    dims, rows = embeddings.shape[1], embeddings.shape[0]
    for d in range(dims):
        for j in range(dims):
            out[d, j] = 0.0
    for row in range(rows):
        for d in range(dims):
            for j in range(dims):
                out[d, j] += (embeddings[row, d] - mean[d]) * (embeddings[row, j] - mean[j])
    for d in range(dims):
        for j in range(dims):
            out[d, j] /= rows
