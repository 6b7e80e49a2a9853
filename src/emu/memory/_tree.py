"""Small k-d trees for the cells that hold too many entries: near-duplicate keys, dense clusters, huge radii.

A tree is a node number; nodes live in preallocated arrays. Leaves are linked lists of at most `LEAF` entries. Entries
with identical keys are split by their number, so that any number of duplicates costs a logarithm. Every leaf holds an
entry, hence a memory of n entries never needs more than 2n nodes and nothing ever grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from emu.memory._compile import compiled

LEAF = 16  # entries in a leaf, and in a plain chain before it becomes a tree
END = -1  # end of a list
KIND, LEFT, RIGHT, COUNT, BUILT = 0, 1, 2, 3, 4  # columns of `node`; a leaf keeps its list's first entry in LEFT
IS_LEAF = -1  # KIND of a leaf; otherwise the dimension split, or D: split by entry number
STACK = 1024  # deeper than any tree: balance allows 37 levels to a million entries, runs of equal keys 2D more
SAMPLE = 31  # coordinates looked at to guess a median
FREE, USED = 0, 1  # places in `counters`: first free node, number of nodes ever used


class Tree(NamedTuple):
    """The nodes of all trees of an index."""

    node: np.ndarray  # (2n, 5) int32
    cut: np.ndarray  # (2n,) float64: keys below it are on the left; exact for a float32 and for an entry number
    low: np.ndarray  # (2n, D) float32: the box around everything below a node; never too small
    high: np.ndarray  # (2n, D) float32
    counters: np.ndarray  # (2,) int64
    stack: np.ndarray  # (STACK, 3) int64: nodes put aside while walking a tree (one caller at a time)
    stack_gap: np.ndarray  # (STACK,) float64
    scratch: np.ndarray  # (n,) int32: entries being built into a tree
    sample: np.ndarray  # (SAMPLE,) float64: coordinates a median is taken of


def empty_tree(capacity: int, dim: int) -> Tree:
    """Room for every tree `capacity` entries can make; untouched pages cost no memory."""
    nodes = 2 * capacity + 2
    return Tree(
        np.empty((nodes, 5), np.int32),
        np.empty(nodes, np.float64),
        np.empty((nodes, dim), np.float32),
        np.empty((nodes, dim), np.float32),
        np.array([END, 0], np.int64),
        np.empty((STACK, 3), np.int64),
        np.empty(STACK, np.float64),
        np.empty(capacity, np.int32),
        np.empty(SAMPLE, np.float64),
    )


@compiled
def distance(keys, i, y, linf):
    """Squared Euclidean, or largest coordinate, distance in float64, summed in the order of the dimensions."""
    total = 0.0
    for d in range(y.shape[0]):
        gap = abs(np.float64(keys[i, d]) - np.float64(y[d]))
        if linf:
            total = max(total, gap)
        else:
            total += gap * gap
    return total


@compiled
def _box_distance(tree, n, y, linf):
    """No entry below node n is closer than this, in the very arithmetic of `distance`."""
    total = 0.0
    for d in range(y.shape[0]):
        here = np.float64(y[d])
        gap = max(0.0, np.float64(tree.low[n, d]) - here, here - np.float64(tree.high[n, d]))
        if linf:
            total = max(total, gap)
        else:
            total += gap * gap
    return total


@compiled
def scan(keys, following, i, y, linf, best, best_id):
    """Walk a list from entry i; closest wins, lowest entry number among equals."""
    while i != END:
        gap = distance(keys, i, y, linf)
        if gap < best or (gap == best and i < best_id):
            best = gap
            best_id = i
        i = np.int64(following[i])
    return best, best_id


@compiled
def tree_search(tree, keys, following, n, y, linf, best, best_id):
    """The closest entry below node n, if it beats (best, best_id)."""
    depth = 0  # nodes put aside, on the stack with the distance to their boxes
    while True:
        while tree.node[n, KIND] != IS_LEAF:
            near = np.int64(tree.node[n, LEFT])
            if tree.node[n, KIND] < y.shape[0]:  # otherwise identical keys: the lowest number is on the left
                far = np.int64(tree.node[n, RIGHT])
                near_gap = _box_distance(tree, near, y, linf)
                far_gap = _box_distance(tree, far, y, linf)
                if far_gap < near_gap:
                    near, far = far, near
                    far_gap = near_gap
                if far_gap <= best:
                    tree.stack[depth, 0] = far
                    tree.stack_gap[depth] = far_gap
                    depth += 1
            n = near
        best, best_id = scan(keys, following, np.int64(tree.node[n, LEFT]), y, linf, best, best_id)
        while depth > 0 and tree.stack_gap[depth - 1] > best:
            depth -= 1
        if depth == 0:
            return best, best_id
        depth -= 1
        n = tree.stack[depth, 0]


@compiled
def take_node(tree):
    n = tree.counters[FREE]
    if n != END:
        tree.counters[FREE] = tree.node[n, LEFT]
        return n
    n = tree.counters[USED]
    tree.counters[USED] = n + 1
    return n


@compiled
def _give_node(tree, n):
    tree.node[n, LEFT] = tree.counters[FREE]
    tree.counters[FREE] = n


@compiled
def _goes_left(tree, keys, n, i):
    kind = tree.node[n, KIND]
    if kind == keys.shape[1]:
        return i < tree.cut[n]
    return keys[i, kind] < tree.cut[n]


@compiled
def copy_row(source, i, target, j):
    for d in range(source.shape[1]):
        target[j, d] = source[i, d]


@compiled
def _copy_node(tree, source, target):
    for column in range(tree.node.shape[1]):
        tree.node[target, column] = tree.node[source, column]
    tree.cut[target] = tree.cut[source]
    copy_row(tree.low, source, tree.low, target)
    copy_row(tree.high, source, tree.high, target)


@compiled
def _set_box(tree, keys, n, ids, start, stop):
    """Fit the box of node n; returns its widest dimension, or D when all keys are identical."""
    widest, extent = np.int64(keys.shape[1]), np.float32(0.0)
    for d in range(keys.shape[1]):
        low = high = keys[ids[start], d]
        for j in range(start + 1, stop):
            value = keys[ids[j], d]
            low = min(low, value)
            high = max(high, value)
        tree.low[n, d] = low
        tree.high[n, d] = high
        if high - low > extent or (high > low and widest == keys.shape[1]):
            widest, extent = d, high - low
    return widest


@compiled
def _coordinate(keys, i, kind):
    return np.float64(i) if kind == keys.shape[1] else np.float64(keys[i, kind])


@compiled
def _choose_cut(keys, ids, sample, start, stop, kind):
    """About the median along `kind`, such that neither side is empty."""
    count = min(SAMPLE, stop - start)
    for j in range(count):
        value = _coordinate(keys, ids[start + j * (stop - start) // count], kind)
        place = j
        while place > 0 and sample[place - 1] > value:
            sample[place] = sample[place - 1]
            place -= 1
        sample[place] = value
    cut = sample[count // 2]
    above = np.inf
    for j in range(start, stop):
        value = _coordinate(keys, ids[j], kind)
        if value < cut:
            return cut
        if value > cut:
            above = min(above, value)
    return above  # the median is the smallest value there is


@compiled
def _fill_leaf(tree, following, n, start, stop):
    tree.node[n, KIND] = IS_LEAF
    first = np.int32(END)
    for j in range(start, stop):
        following[tree.scratch[j]] = first
        first = tree.scratch[j]
    tree.node[n, LEFT] = first


@compiled
def _partition(tree, keys, n, kind, start, stop):
    """Choose where node n is cut along `kind`, and put the entries of its left side first."""
    ids = tree.scratch
    cut = _choose_cut(keys, ids, tree.sample, start, stop, kind)
    tree.node[n, KIND] = kind
    tree.cut[n] = cut
    middle = start
    for j in range(start, stop):
        i = ids[j]
        if _coordinate(keys, i, kind) < cut:
            ids[j] = ids[middle]
            ids[middle] = i
            middle += 1
    return middle


@compiled
def tree_build(tree, keys, following, n, stop):
    """Make node n the root of a balanced tree over scratch[:stop] (which gets reordered)."""
    start, depth = np.int64(0), 0
    while True:
        tree.node[n, COUNT] = tree.node[n, BUILT] = stop - start
        kind = _set_box(tree, keys, n, tree.scratch, start, stop)
        if stop - start <= LEAF:
            _fill_leaf(tree, following, n, start, stop)
            if depth == 0:
                return
            depth -= 1
            n, start, stop = tree.stack[depth, 0], tree.stack[depth, 1], tree.stack[depth, 2]
            continue
        middle = _partition(tree, keys, n, kind, start, stop)
        left, right = take_node(tree), take_node(tree)
        tree.node[n, LEFT] = left
        tree.node[n, RIGHT] = right
        tree.stack[depth, 0], tree.stack[depth, 1], tree.stack[depth, 2] = right, middle, stop
        depth += 1
        n, stop = left, middle


@compiled
def _rebuild(tree, keys, following, root):
    """Collect the entries below root, free all nodes but root itself, and build the tree anew."""
    filled, depth, n = np.int64(0), 0, root
    while True:
        if tree.node[n, KIND] == IS_LEAF:
            i = tree.node[n, LEFT]
            while i != END:
                tree.scratch[filled] = i
                filled += 1
                i = following[i]
        else:
            tree.stack[depth, 0], tree.stack[depth + 1, 0] = tree.node[n, LEFT], tree.node[n, RIGHT]
            depth += 2
        if n != root:
            _give_node(tree, n)
        if depth == 0:
            break
        depth -= 1
        n = tree.stack[depth, 0]
    tree_build(tree, keys, following, root, filled)


@compiled
def _set_leaf(tree, keys, following, n, i):
    tree.node[n, KIND] = IS_LEAF
    tree.node[n, LEFT] = i
    tree.node[n, COUNT] = tree.node[n, BUILT] = 1
    following[i] = END
    copy_row(keys, i, tree.low, n)
    copy_row(keys, i, tree.high, n)


@compiled
def _divide_duplicates(tree, keys, following, n, i):
    """Node n holds copies of one key and i has another: put the two side by side below n."""
    d = 0
    while keys[i, d] == tree.low[n, d]:
        d += 1
    copies, single = take_node(tree), take_node(tree)
    _copy_node(tree, n, copies)
    _set_leaf(tree, keys, following, single, i)
    single_is_left = keys[i, d] < tree.low[n, d]
    tree.node[n, KIND] = d
    copied = np.float64(tree.low[n, d])
    # right at the copies: then at most two such nodes a dimension lie above them, whatever comes later
    tree.cut[n] = copied if single_is_left else np.nextafter(copied, np.inf)
    tree.node[n, LEFT] = single if single_is_left else copies
    tree.node[n, RIGHT] = copies if single_is_left else single
    tree.node[n, COUNT] += 1


@compiled
def _is_copy(tree, keys, n, i):
    for d in range(keys.shape[1]):
        if keys[i, d] != tree.low[n, d]:
            return False
    return True


@compiled
def tree_insert(tree, keys, following, n, i):
    """Add entry i (its key already written) below node n."""
    lopsided = END
    while tree.node[n, KIND] != IS_LEAF:
        if tree.node[n, KIND] == keys.shape[1] and not _is_copy(tree, keys, n, i):
            _divide_duplicates(tree, keys, following, n, i)
            _grow_box(tree, keys, n, i)
            n = END
            break
        _grow_box(tree, keys, n, i)
        tree.node[n, COUNT] += 1
        count = tree.node[n, COUNT]
        child = np.int64(tree.node[n, LEFT] if _goes_left(tree, keys, n, i) else tree.node[n, RIGHT])
        # rebuilding only after the subtree grew by half keeps the cost per insertion logarithmic
        grown = 2 * count > 3 * tree.node[n, BUILT] + LEAF
        if lopsided == END and grown and 4 * tree.node[child, COUNT] > 3 * count:
            lopsided = n
        n = child
    if n != END:
        _grow_box(tree, keys, n, i)
        following[i] = tree.node[n, LEFT]
        tree.node[n, LEFT] = i
        tree.node[n, COUNT] += 1
        if tree.node[n, COUNT] > LEAF and lopsided == END:
            lopsided = n
    if lopsided != END:
        _rebuild(tree, keys, following, lopsided)


@compiled
def _grow_box(tree, keys, n, i):
    for d in range(keys.shape[1]):
        tree.low[n, d] = min(tree.low[n, d], keys[i, d])
        tree.high[n, d] = max(tree.high[n, d], keys[i, d])


@compiled
def unlink(following, first, i):
    """Take entry i out of the list starting at `first`; returns the list's new start."""
    if first == i:
        return following[i]
    before = first
    while following[before] != i:
        before = following[before]
    following[before] = following[i]
    return first


@compiled
def tree_remove(tree, keys, following, root, i):
    """Take entry i (its key still in place) out of the tree; returns how many entries are left in it."""
    n, parent = root, np.int64(END)
    while tree.node[n, KIND] != IS_LEAF:
        tree.node[n, COUNT] -= 1
        parent = n
        n = np.int64(tree.node[n, LEFT] if _goes_left(tree, keys, n, i) else tree.node[n, RIGHT])
    tree.node[n, LEFT] = unlink(following, tree.node[n, LEFT], i)
    tree.node[n, COUNT] -= 1
    if tree.node[n, COUNT] == 0:
        if parent == END:
            _give_node(tree, root)
            return 0
        sibling = np.int64(tree.node[parent, LEFT] + tree.node[parent, RIGHT] - n)
        _copy_node(tree, sibling, parent)
        _give_node(tree, n)
        _give_node(tree, sibling)
    return tree.node[root, COUNT]
