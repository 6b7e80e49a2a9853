"""The index against brute force: every answer, after every kind of change, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import ConfigError, EmuError
from emu.memory.index import RadiusIndex


class BruteForce:
    """Slow, obvious: all distances, strictly below the radius, lowest number among equals."""

    def __init__(self, dim: int, radius: float, capacity: int, metric: str) -> None:
        self.keys = np.zeros((capacity, dim), np.float32)
        self.present = np.zeros(capacity, bool)
        self.radius, self.metric = radius, metric

    def query(self, key: np.ndarray) -> int:
        ids = np.flatnonzero(self.present)
        if not len(ids):
            return -1
        gaps = np.abs(self.keys[ids].astype(np.float64) - key.astype(np.float64))
        if self.metric == "linf":
            total, limit = gaps.max(axis=1), self.radius
        else:
            total, limit = np.zeros(len(ids)), self.radius * self.radius
            for d in range(gaps.shape[1]):
                total += gaps[:, d] * gaps[:, d]
        best = int(np.argmin(total))  # the first of equals
        return int(ids[best]) if total[best] < limit else -1


def draw_keys(rng: np.random.Generator, kind: str, count: int, dim: int, radius: float) -> np.ndarray:
    """Keys that make matches, ties, duplicates, crowded cells and empty ones likely."""
    if kind == "lattice":  # exact duplicates, exact ties, distances exactly at the radius
        keys = rng.integers(-3, 4, (count, dim)) * radius
    elif kind == "gauss":
        keys = rng.normal(size=(count, dim)) * radius * 8
    elif kind == "collapsed":  # everything within a hundredth of the radius, some of it identical
        keys = 0.3 + rng.normal(size=(count, dim)).round(1) * radius * 0.01
    elif kind == "line":  # all but one dimension constant, sorted
        keys = np.zeros((count, dim))
        keys[:, 0] = np.sort(rng.normal(size=count)) * radius * 4
    else:  # scales: from far below to far above the radius
        keys = rng.normal(size=(count, dim)) * radius * 10.0 ** rng.integers(-6, 7, (count, 1))
    return keys.astype(np.float32)


KINDS = ("lattice", "gauss", "collapsed", "line", "scales")


def compare_random_run(
    seed: int, operations: int, kind: str, dim: int, metric: str, radius: float, capacity: int, batch: int = 8
) -> int:
    """Random inserts, moves, removals, rebuilds and queries; returns how many operations were compared."""
    rng = np.random.default_rng(seed)
    index, oracle = RadiusIndex(dim, radius, capacity, metric), BruteForce(dim, radius, capacity, metric)
    done = 0
    while done < operations:
        count = int(rng.integers(1, batch + 1))
        keys = draw_keys(rng, kind, count, dim, oracle.radius)
        choice = rng.random()
        if choice < 0.5:
            found, gaps = index.query(keys)
            assert found.tolist() == [oracle.query(key) for key in keys]
            assert (np.isinf(gaps) == (found < 0)).all()
        elif choice < 0.75:
            ids = rng.permutation(np.flatnonzero(~oracle.present))[:count]
            index.insert(ids, keys[: len(ids)])
            oracle.keys[ids], oracle.present[ids] = keys[: len(ids)], True
        elif choice < 0.85:
            ids = rng.permutation(np.flatnonzero(oracle.present))[:count]
            index.move(ids, keys[: len(ids)])
            oracle.keys[ids] = keys[: len(ids)]
        elif choice < 0.995:
            ids = rng.permutation(np.flatnonzero(oracle.present))[: count if rng.random() < 0.95 else capacity // 2]
            index.remove(ids)
            oracle.present[ids] = False
        elif choice < 0.998:
            oracle.radius = radius * float(rng.choice([0.01, 0.5, 1, 2, 100]))
            index.rebuild(radius=oracle.radius)
        else:  # every key changes at once, as re-embedding does
            size = int(rng.integers(0, capacity))
            keys = draw_keys(rng, kind, size, dim, oracle.radius)
            index.rebuild(keys)
            oracle.present[:] = np.arange(capacity) < size
            oracle.keys[:size] = keys
        assert len(index) == oracle.present.sum()
        done += count
    return done


@pytest.mark.parametrize("metric", ["l2", "linf"])
@pytest.mark.parametrize("kind", KINDS)
def test_fifty_thousand_random_operations_match_brute_force(kind: str, metric: str) -> None:
    assert compare_random_run(7, 5_000, kind, 4, metric, 1.3e-3, 600) >= 5_000


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["l2", "linf"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 2, 4, 8])
def test_a_million_random_operations_match_brute_force(kind: str, metric: str, dim: int) -> None:
    assert compare_random_run(dim, 25_000, kind, dim, metric, 1.3e-3, 2_000, batch=32) >= 25_000


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS),
    dim=st.sampled_from([1, 2, 3, 4, 6, 8]),
    metric=st.sampled_from(["l2", "linf"]),
    radius=st.sampled_from([1e-12, 1.3e-7, 1.3e-3, 0.5, 1e3, 1e12]),
    capacity=st.integers(1, 200),
)
def test_any_dimension_metric_radius_and_size_matches_brute_force(
    seed: int, kind: str, dim: int, metric: str, radius: float, capacity: int
) -> None:
    compare_random_run(seed, 200, kind, dim, metric, radius, capacity)


@pytest.mark.parametrize("kind", KINDS)
def test_query_or_insert_sees_entries_added_a_moment_ago(kind: str) -> None:
    rng = np.random.default_rng(3)
    keys = draw_keys(rng, kind, 1_500, 4, 0.01)
    index, oracle = RadiusIndex(4, 0.01, 1_500), BruteForce(4, 0.01, 1_500, "l2")
    ids, added = index.query_or_insert(keys)
    expected, size = [], 0
    for key in keys:
        found = oracle.query(key)
        if found < 0:
            found, size = size, size + 1
            oracle.keys[found], oracle.present[found] = key, True
        expected.append(found)
    assert ids.tolist() == expected
    assert added == size == len(index)


def test_ties_go_to_the_lowest_number_whatever_the_order_of_insertion() -> None:
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        index = RadiusIndex(2, 1.0, 3)
        keys = np.array([[0.5, 0], [-0.5, 0], [0, 0.5]], np.float32)
        index.insert(np.array(order), keys[order])
        assert index.query(np.zeros((1, 2)))[0].tolist() == [0]


def test_a_key_exactly_at_the_radius_is_not_a_match() -> None:
    index = RadiusIndex(1, 0.5, 1)
    index.insert(np.array([0]), np.array([[0.0]]))
    assert index.query(np.array([[0.5], [0.4999], [-0.5]]))[0].tolist() == [-1, 0, -1]


def test_any_number_of_identical_keys_stays_fast_and_gives_the_lowest_number() -> None:
    count = 50_000
    index = RadiusIndex(4, 1e-3, count)
    order = np.random.default_rng(0).permutation(count)
    index.insert(order, np.full((count, 4), 0.25))
    for removed in range(0, count - 1, 997):
        index.remove(np.arange(removed, min(removed + 997, count - 1)))
        assert index.query(np.full((1, 4), 0.25))[0][0] == min(removed + 997, count - 1)


def test_sorted_insertions_into_one_crowded_cell_keep_trees_shallow() -> None:
    count = 20_000
    index = RadiusIndex(1, 1e6, count)  # one radius holds everything: a single tree
    keys = np.linspace(0, 1, count, dtype=np.float32)[:, None]
    index.insert(np.arange(count), keys)
    assert index.query(keys)[0].tolist() == np.arange(count).tolist()
    assert tree_depth(index) < 45


def tree_depth(index: RadiusIndex) -> int:
    tree = index.grid.tree
    roots = index.grid.empty - 1 - index.grid.head.astype(int)
    todo, deepest = [(int(root), 1) for root in roots[roots >= 0]], 0
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        if tree.node[node, 0] != -1:
            todo += [(int(tree.node[node, 1]) + side, depth + 1) for side in (0, 1)]
    return deepest


def test_keys_that_are_not_finite_are_refused_and_change_nothing() -> None:
    index = RadiusIndex(2, 0.1, 10)
    for bad in (np.nan, np.inf):
        with pytest.raises(EmuError, match="not finite"):
            index.insert(np.array([0, 1]), np.array([[0.0, 0.0], [bad, 0.0]]))
    assert len(index) == 0


def test_misuse_says_what_is_wrong() -> None:
    index = RadiusIndex(2, 0.1, 4)
    index.insert(np.array([1]), np.zeros((1, 2)))
    with pytest.raises(EmuError, match="already in the index"):
        index.insert(np.array([1]), np.zeros((1, 2)))
    with pytest.raises(EmuError, match="not in the index"):
        index.remove(np.array([2]))
    with pytest.raises(EmuError, match="shape"):
        index.query(np.zeros((1, 3)))
    with pytest.raises(EmuError, match="twice"):
        index.remove(np.array([1, 1]))
    with pytest.raises(ConfigError, match="radius"):
        RadiusIndex(2, 0.0, 4)
    with pytest.raises(ConfigError, match="1 to 8"):
        RadiusIndex(9, 0.1, 4)
    with pytest.raises(ConfigError, match="metric"):
        RadiusIndex(2, 0.1, 4, "cosine")
