"""Small k-d trees for the cells that hold too many entries: near-duplicate keys, dense clusters, huge radii.

A tree is a node number; nodes live in preallocated arrays, children side by side (they are always read together).
A leaf lists at most `LEAF` entries. Entries with identical keys are split by their number, so that any number of
duplicates costs a logarithm. Every leaf holds an entry, hence n entries never need more than 4n nodes: nothing grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from emu.memory._compile import compiled, inlined

LEAF = 15  # entries in a leaf (one more while it is being split), and in a plain chain before it becomes a tree
END = -1  # end of a list
KIND, CHILD, COUNT, BUILT = 0, 1, 2, 3  # columns of `node`; the children are CHILD and CHILD + 1
IS_LEAF = -1  # KIND of a leaf; otherwise the dimension split, or D: split by entry number
LOW, HIGH = 0, 1  # of `box`
STACK = 1024  # deeper than any tree: balance allows 37 levels to a million entries, runs of equal keys 2D more
SAMPLE = 31  # coordinates looked at to guess a median
FREE, USED = 0, 1  # places in `counters`: first free pair of nodes, number of nodes ever used


class Tree(NamedTuple):
    """The nodes of all trees of an index, and room to work in."""

    node: np.ndarray  # (nodes, 4) int32
    cut: np.ndarray  # (nodes,) float64: keys below it are on the left; exact for a float32 and for an entry number
    box: np.ndarray  # (nodes, 2, D) float32: lowest and highest coordinates below a node; never too tight
    leaf: np.ndarray  # (nodes, LEAF + 1) int32: the entries of a leaf
    counters: np.ndarray  # (2,) int64
    stack: np.ndarray  # (STACK, 3) int64: nodes put aside while walking a tree (one caller at a time)
    stack_gap: np.ndarray  # (STACK,) float64
    scratch: np.ndarray  # (n,) int32: entries being built into a tree
    sample: np.ndarray  # (SAMPLE,) float64: coordinates a median is taken of
    axes: tuple[int, ...]  # 0 … D-1. Its length is part of its type: loops over D numbers are compiled without a loop


def empty_tree(capacity: int, dim: int) -> Tree:
    """Room for every tree `capacity` entries can make; untouched pages cost no memory."""
    nodes = 4 * capacity + 2  # a leaf has an entry, a tree of k leaves 2k - 1 nodes, and its root a node beside it
    return Tree(
        np.empty((nodes, 4), np.int32),
        np.empty(nodes, np.float64),
        np.empty((nodes, 2, dim), np.float32),
        np.empty((nodes, LEAF + 1), np.int32),
        np.array([END, 0], np.int64),
        np.empty((STACK, 3), np.int64),
        np.empty(STACK, np.float64),
        np.empty(capacity, np.int32),
        np.empty(SAMPLE, np.float64),
        tuple(range(dim)),
    )


@inlined
def distance(tree, keys, i, y, linf):
    """Squared Euclidean, or largest coordinate, distance in float64, summed in the order of the dimensions."""
    total = 0.0
    for d in range(len(tree.axes)):
        gap = abs(np.float64(keys[i, d]) - np.float64(y[d]))
        if linf:
            total = max(total, gap)
        else:
            total += gap * gap
    return total


@inlined
def _box_distance(tree, n, y, linf):
    """No entry below node n is closer than this, in the very arithmetic of `distance`."""
    total = 0.0
    for d in range(len(tree.axes)):
        here = np.float64(y[d])
        gap = max(0.0, np.float64(tree.box[n, LOW, d]) - here, here - np.float64(tree.box[n, HIGH, d]))
        if linf:
            total = max(total, gap)
        else:
            total += gap * gap
    return total


@inlined
def _scan_leaf(tree, keys, n, y, linf, best, best_id):
    """Closest wins, lowest entry number among equals."""
    for j in range(tree.node[n, COUNT]):
        i = np.int64(tree.leaf[n, j])
        gap = distance(tree, keys, i, y, linf)
        if gap < best or (gap == best and i < best_id):
            best = gap
            best_id = i
    return best, best_id


@compiled
def tree_search(tree, keys, n, y, linf, best, best_id):
    """The closest entry below node n, if it beats (best, best_id)."""
    depth = 0  # nodes put aside, with the distance to their boxes
    while True:
        while tree.node[n, KIND] != IS_LEAF:
            near = np.int64(tree.node[n, CHILD])
            if tree.node[n, KIND] < len(tree.axes):  # otherwise identical keys: the lowest number is on the left
                far = near + 1
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
        best, best_id = _scan_leaf(tree, keys, n, y, linf, best, best_id)
        while depth > 0 and tree.stack_gap[depth - 1] > best:
            depth -= 1
        if depth == 0:
            return best, best_id
        depth -= 1
        n = tree.stack[depth, 0]


@compiled
def take_pair(tree):
    """Two nodes side by side; returns the first."""
    n = tree.counters[FREE]
    if n != END:
        tree.counters[FREE] = tree.node[n, CHILD]
        return n
    n = tree.counters[USED]
    tree.counters[USED] = n + 2
    return n


@compiled
def _give_pair(tree, n):
    tree.node[n, CHILD] = tree.counters[FREE]
    tree.counters[FREE] = n


@inlined
def copy_row(source, i, target, j):
    for d in range(source.shape[1]):
        target[j, d] = source[i, d]


@inlined
def copy_key(tree, source, i, target, j):
    for d in range(len(tree.axes)):
        target[j, d] = source[i, d]


@compiled
def _copy_node(tree, source, target):
    copy_row(tree.node, source, tree.node, target)
    tree.cut[target] = tree.cut[source]
    for d in range(len(tree.axes)):
        tree.box[target, LOW, d] = tree.box[source, LOW, d]
        tree.box[target, HIGH, d] = tree.box[source, HIGH, d]
    if tree.node[source, KIND] == IS_LEAF:
        copy_row(tree.leaf, source, tree.leaf, target)


@compiled
def _child_of(tree, keys, n, i):
    """The child of node n on whose side entry i belongs."""
    kind = tree.node[n, KIND]
    on_left = i < tree.cut[n] if kind == len(tree.axes) else keys[i, kind] < tree.cut[n]
    return np.int64(tree.node[n, CHILD]) + (0 if on_left else 1)


@compiled
def _coordinate(tree, keys, i, kind):
    return np.float64(i) if kind == len(tree.axes) else np.float64(keys[i, kind])


@compiled
def _set_box(tree, keys, n, start, stop):
    """Fit the box of node n; returns its widest dimension, or D when all keys are identical."""
    widest, extent = np.int64(len(tree.axes)), np.float32(-1.0)
    for d in range(len(tree.axes)):
        low = high = keys[tree.scratch[start], d]
        for j in range(start + 1, stop):
            value = keys[tree.scratch[j], d]
            low = min(low, value)
            high = max(high, value)
        tree.box[n, LOW, d] = low
        tree.box[n, HIGH, d] = high
        if high > low and high - low > extent:
            widest, extent = np.int64(d), high - low
    return widest


@compiled
def _choose_cut(tree, keys, start, stop, kind):
    """About the median along `kind`, such that neither side is empty."""
    ids, sample = tree.scratch, tree.sample
    count = min(SAMPLE, stop - start)
    for j in range(count):
        value = _coordinate(tree, keys, ids[start + j * (stop - start) // count], kind)
        place = j
        while place > 0 and sample[place - 1] > value:
            sample[place] = sample[place - 1]
            place -= 1
        sample[place] = value
    cut = sample[count // 2]
    above = np.inf
    for j in range(start, stop):
        value = _coordinate(tree, keys, ids[j], kind)
        if value < cut:
            return cut
        if value > cut:
            above = min(above, value)
    return above  # the median is the smallest value there is


@compiled
def _partition(tree, keys, n, kind, start, stop):
    """Choose where node n is cut along `kind`, and put the entries of its left side first."""
    ids = tree.scratch
    cut = _choose_cut(tree, keys, start, stop, kind)
    tree.node[n, KIND] = kind
    tree.cut[n] = cut
    middle = start
    for j in range(start, stop):
        i = ids[j]
        if _coordinate(tree, keys, i, kind) < cut:
            ids[j] = ids[middle]
            ids[middle] = i
            middle += 1
    return middle


@compiled
def tree_build(tree, keys, n, stop):
    """Make node n the root of a balanced tree over scratch[:stop] (which gets reordered)."""
    start, depth = np.int64(0), 0
    while True:
        tree.node[n, COUNT] = tree.node[n, BUILT] = stop - start
        kind = _set_box(tree, keys, n, start, stop)
        if stop - start <= LEAF:
            tree.node[n, KIND] = IS_LEAF
            for j in range(start, stop):
                tree.leaf[n, j - start] = tree.scratch[j]
            if depth == 0:
                return
            depth -= 1
            n, start, stop = tree.stack[depth, 0], tree.stack[depth, 1], tree.stack[depth, 2]
        else:
            middle = _partition(tree, keys, n, kind, start, stop)
            children = take_pair(tree)
            tree.node[n, CHILD] = children
            tree.stack[depth, 0], tree.stack[depth, 1], tree.stack[depth, 2] = children + 1, middle, stop
            depth += 1
            n, stop = children, middle


@compiled
def tree_rebuild(tree, keys, root):
    """Collect the entries below root, free all nodes but root itself, build the tree anew."""
    filled, depth, n = np.int64(0), 0, root
    while True:
        if tree.node[n, KIND] == IS_LEAF:
            for j in range(tree.node[n, COUNT]):
                tree.scratch[filled] = tree.leaf[n, j]
                filled += 1
        else:
            tree.stack[depth, 0] = tree.node[n, CHILD]
            tree.stack[depth + 1, 0] = tree.node[n, CHILD] + 1
            depth += 2
        if depth == 0:
            break
        depth -= 1
        n = tree.stack[depth, 0]
    _free_below(tree, root)
    tree_build(tree, keys, root, filled)


@compiled
def _free_below(tree, root):
    """Give back the nodes below root, parents before children."""
    if tree.node[root, KIND] == IS_LEAF:
        return
    depth = 1
    tree.stack[0, 0] = tree.node[root, CHILD]
    while depth > 0:
        depth -= 1
        pair = tree.stack[depth, 0]
        for n in range(pair, pair + 2):
            if tree.node[n, KIND] != IS_LEAF:
                tree.stack[depth, 0] = tree.node[n, CHILD]
                depth += 1
        _give_pair(tree, pair)


@compiled
def _divide_duplicates(tree, keys, n, i):
    """Node n holds copies of one key and i has another: put the two side by side below n."""
    d = 0
    while keys[i, d] == tree.box[n, LOW, d]:
        d += 1
    copied = np.float64(tree.box[n, LOW, d])
    single_is_left = keys[i, d] < copied
    pair = take_pair(tree)
    single = pair if single_is_left else pair + 1
    _copy_node(tree, n, pair + 1 if single_is_left else pair)
    tree.node[single, KIND] = IS_LEAF
    tree.node[single, COUNT] = tree.node[single, BUILT] = 1
    tree.leaf[single, 0] = i
    for d2 in range(len(tree.axes)):
        tree.box[single, LOW, d2] = tree.box[single, HIGH, d2] = keys[i, d2]
    tree.node[n, KIND] = d
    tree.node[n, CHILD] = pair
    # right at the copies: then at most two such nodes a dimension lie above them, whatever comes later
    tree.cut[n] = copied if single_is_left else np.nextafter(copied, np.inf)


@compiled
def _is_copy(tree, keys, n, i):
    different = 0
    for d in range(len(tree.axes)):
        different += keys[i, d] != tree.box[n, LOW, d]
    return different == 0


@compiled
def _grow_box(tree, keys, n, i):
    for d in range(len(tree.axes)):
        tree.box[n, LOW, d] = min(tree.box[n, LOW, d], keys[i, d])
        tree.box[n, HIGH, d] = max(tree.box[n, HIGH, d], keys[i, d])


@compiled
def tree_insert(tree, keys, n, i):
    """Add entry i (its key already written) below node n.

    Returns the highest node that is to be built anew, lopsided or a leaf with an entry too many, or END. The kernels
    that Python calls do that: code called deep inside others is optimised by the compiler once a level.
    """
    crowded = np.int64(END)
    while True:
        kind = tree.node[n, KIND]
        apart = kind == len(tree.axes) and not _is_copy(tree, keys, n, i)
        if apart:
            _divide_duplicates(tree, keys, n, i)
        _grow_box(tree, keys, n, i)
        count = tree.node[n, COUNT] + 1
        tree.node[n, COUNT] = count
        if apart:
            break
        if kind == IS_LEAF:
            tree.leaf[n, count - 1] = i
            if count > LEAF and crowded == END:
                crowded = n
            break
        child = _child_of(tree, keys, n, i)
        # rebuilding only after the subtree grew by half keeps the cost per insertion logarithmic
        grown = 2 * count > 3 * tree.node[n, BUILT] + LEAF
        if crowded == END and grown and 4 * tree.node[child, COUNT] > 3 * count:
            crowded = n
        n = child
    return crowded


@inlined
def tree_plant(tree, n, count):
    """Make node n, whose `leaf` lists one entry too many, a tree to be built anew."""
    tree.node[n, KIND] = IS_LEAF
    tree.node[n, COUNT] = count


@compiled
def tree_remove(tree, keys, root, i):
    """Take entry i (its key still in place) out of the tree; returns how many entries are left in it."""
    n, parent = root, np.int64(END)
    while tree.node[n, KIND] != IS_LEAF:
        tree.node[n, COUNT] -= 1
        parent = n
        n = _child_of(tree, keys, n, i)
    last = tree.node[n, COUNT] - 1
    place = 0
    while tree.leaf[n, place] != i:
        place += 1
    tree.leaf[n, place] = tree.leaf[n, last]
    tree.node[n, COUNT] = last
    if last == 0 and parent != END:
        pair = np.int64(tree.node[parent, CHILD])
        _copy_node(tree, 2 * pair + 1 - n, parent)
        _give_pair(tree, pair)
    if tree.node[root, COUNT] == 0:
        _give_pair(tree, root)
        return 0
    return tree.node[root, COUNT]
