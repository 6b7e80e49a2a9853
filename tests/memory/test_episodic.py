"""The compiled memory against Algorithm 2 in plain Python, its rules one by one, and its life on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import CheckpointError, ConfigError, EmuError
from emu.memory import EpisodicMemory, RandomProjection, Recall, _rules

from .oracle import PlainMemory


class FakeEpisode(NamedTuple):
    state: np.ndarray
    reward: np.ndarray
    won: bool


def first_two(states: np.ndarray, times: np.ndarray) -> np.ndarray:
    """An encoder one can compute by hand: the first two numbers of the state."""
    return np.asarray(states[:, :2], np.float32)


def episode(positions: list[float], rewards: list[float], won: bool = False) -> FakeEpisode:
    """An episode through the given positions; the state is (position, 0, marker)."""
    state = np.zeros((len(positions), 3), np.float32)
    state[:, 0] = positions
    state[:, 2] = np.arange(len(positions)) + 100 * won
    return FakeEpisode(state, np.asarray(rewards, np.float32), won)


def small_memory(**options: Any) -> EpisodicMemory:
    given = {"state_dim": 3, "key_dim": 2, "capacity": 50, "radius": 0.1, "gamma": 0.5, "encode": first_two}
    return EpisodicMemory(**(given | options))


def random_episode(rng: np.random.Generator, state_dim: int, lattice: bool, scale: float = 1.0) -> FakeEpisode:
    steps = int(rng.integers(1, 12))
    state = rng.integers(-2, 3, (steps + 1, state_dim)) * 0.05 if lattice else rng.normal(size=(steps + 1, state_dim))
    reward = (rng.normal(size=steps) * scale).astype(np.float32)
    return FakeEpisode((state * scale).astype(np.float32), reward, bool(rng.random() < 0.3))


def assert_same(memory: EpisodicMemory, plain: PlainMemory) -> None:
    table, entries = memory.export(), plain.entries
    assert len(memory) == len(entries)
    if not entries:
        return
    for name in ("embedding", "key", "best_return", "desirable", "visits", "desirable_visits", "t"):
        expected = np.stack([np.asarray(getattr(e, name)) for e in entries])
        np.testing.assert_array_equal(table[name], expected.astype(table[name].dtype), err_msg=name)
    np.testing.assert_array_equal(memory.states(slice(0, len(memory))), np.stack([e.state for e in entries]))


def run_both(
    seed: int, rounds: int, capacity: int, radius: float, lattice: bool, scale: float = 1.0, **options: Any
) -> int:
    """Random episodes, recalls and re-embeddings; the two memories must agree after each.

    Returns how many operations were compared: states remembered, recalled or embedded anew.
    """
    rng = np.random.default_rng(seed)
    dim, done = 5, 0
    encode: Any = RandomProjection(dim, 3, seed)
    common = {"capacity": capacity, "radius": radius, "gamma": 0.9, "encode": encode} | options
    memory = EpisodicMemory(state_dim=dim, key_dim=3, **common)
    plain = PlainMemory(**common)
    for turn in range(rounds):
        batch = [random_episode(rng, dim, lattice, scale) for _ in range(int(rng.integers(1, 4)))]
        memory.update(batch)
        for e in batch:
            plain.update(e)
        assert_same(memory, plain)
        states = random_episode(rng, dim, lattice, scale).state
        done += sum(len(e.state) for e in batch) + len(states)
        recall = memory.recall(states, np.zeros(len(states), np.int32))
        for i, state in enumerate(states):
            match = plain.recall(state, 0)
            assert bool(recall.found[i]) == (match is not None)
            if match is not None:
                assert recall.best_return[i] == match.best_return
                assert recall.ratio[i] == np.float32(match.desirable_visits) / np.float32(match.visits)
                assert bool(recall.desirable[i]) == match.desirable
        if turn % 7 == 6:
            encode = RandomProjection(dim, 3, seed + turn)
            memory.reembed(encode)
            plain.reembed(encode, memory.normalisation.mean, memory.normalisation.spread)
            assert_same(memory, plain)
            done += len(memory)
    return done


@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("metric", ["l2", "linf"])
@pytest.mark.parametrize(
    "options", [{}, {"count_new_desirable": False}, {"backward_propagation": True}, {"return_threshold": 0.5}]
)
def test_random_episodes_leave_the_state_that_algorithm_2_in_plain_python_leaves(
    options: dict[str, Any], metric: str, lattice: bool
) -> None:
    run_both(1, 15, 60, 0.3 if not lattice else 0.08, lattice, metric=metric, **options)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    capacity=st.integers(1, 40),
    radius=st.sampled_from([1e-6, 0.05, 0.3, 2.0, 50.0]),
    lattice=st.booleans(),
)
def test_any_capacity_and_radius_agrees_with_plain_python(
    seed: int, capacity: int, radius: float, lattice: bool
) -> None:
    run_both(seed, 8, capacity, radius, lattice)


SCALES = (1e-38, 1e-30, 1e-12, 1.0, 1e6, 1e15, 1e29)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("metric", ["l2", "linf"])
def test_five_million_operations_at_extreme_magnitudes_agree_with_plain_python(scale: float, metric: str) -> None:
    """All fourteen together; every capacity from 1 to 64."""
    rng = np.random.default_rng(0)
    done = 0
    for capacity in range(1, 65):
        radius = float(rng.choice([0.05, 0.3, 2.0])) * (scale if rng.random() < 0.5 else 1)
        radius = max(radius, 1e-150)  # its square is a number
        done += run_both(capacity, 240, capacity, radius, bool(capacity % 2), scale, metric=metric)
    assert done * len(SCALES) * 2 >= 5_000_000


def test_a_new_entry_has_one_visit_and_the_discounted_return() -> None:
    memory = small_memory()
    memory.update([episode([0, 1, 2], [1, 4])])
    table = memory.export()
    assert table["t"].tolist() == [2, 1, 0]
    assert table["best_return"].tolist() == [0, 4, 3]  # R_2 = 0, R_1 = 4, R_0 = 1 + 0.5 * 4
    assert table["visits"].tolist() == [1, 1, 1]
    assert table["desirable_visits"].tolist() == [0, 0, 0]


def test_an_entry_added_at_t_is_matched_at_t_minus_1() -> None:
    memory = small_memory()
    assert memory.update([episode([5, 5.05], [1])]) == (1, 1, 0, 0)
    assert memory.export()["best_return"].tolist() == [1]  # max of R_1 = 0 and R_0 = 1


def test_best_return_never_falls_without_desirability() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4]), episode([0, 1], [1])])
    assert memory.export()["best_return"].tolist() == [0, 4]


def test_shift_replaces_state_when_a_desirable_episode_matches() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4])])
    assert memory.update([episode([0.05, 1.05], [2], won=True)]).propagated == 2
    table = memory.export()
    assert table["best_return"].tolist() == [0, 2]  # H <- R even though it was higher
    assert table["desirable"].all()
    np.testing.assert_allclose(table["key"][:, 0], [1.05, 0.05], rtol=1e-6)
    assert memory.states(slice(0, 2))[:, 2].tolist() == [101, 100]  # the new states
    assert table["visits"].tolist() == [2, 2]
    assert table["desirable_visits"].tolist() == [1, 1]


def test_a_second_desirable_match_keeps_the_state_and_the_higher_return() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4], won=True), episode([0.05, 1.05], [2], won=True)])
    table = memory.export()
    assert table["best_return"].tolist() == [0, 4]
    assert table["key"][:, 0].tolist() == [1, 0]
    assert table["desirable_visits"].tolist() == [2, 2]


def test_an_undesirable_match_of_a_desirable_entry_lowers_the_ratio_only() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4], won=True), episode([0, 1], [9])])
    recall = memory.recall(np.zeros((1, 3)), np.zeros(1))
    assert recall.best_return.tolist() == [9]
    assert recall.ratio.tolist() == [0.5]
    assert recall.desirable.tolist() == [True]


def test_backward_propagation_makes_the_earlier_part_of_the_episode_desirable() -> None:
    for option in (False, True):
        memory = small_memory(backward_propagation=option)
        memory.update([episode([1, 2], [0], won=True), episode([3, 1], [0])])  # lost, but came through 1
        assert memory.export()["key"][:, 0].tolist() == [2, 1, 3]
        assert memory.export()["desirable"].tolist() == [True, True, option]


def test_desirability_by_return_is_undiscounted_and_includes_the_threshold() -> None:
    memory = small_memory(return_threshold=3.0)
    memory.update([episode([0, 1, 2], [1, 2]), episode([7, 8, 9], [1, 1.9], won=True)])
    assert memory.export()["desirable"].tolist() == [True] * 3 + [False] * 3


def test_the_least_recently_matched_or_recalled_entry_is_replaced() -> None:
    memory = small_memory(capacity=3)
    memory.update([episode([0, 1, 2], [0, 0])])  # used in the order 2, 1, 0
    memory.recall(np.array([[2.0, 0, 0]]), np.zeros(1))  # now 1 is the oldest
    memory.update([episode([5], [])])
    assert sorted(memory.export()["key"][:, 0].tolist()) == [0, 2, 5]
    memory.update([episode([0], []), episode([6], [])])  # matching 0 leaves 2 as the oldest
    assert sorted(memory.export()["key"][:, 0].tolist()) == [0, 5, 6]


def test_recall_keeps_the_leading_shape_and_skips_masked_states() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4])])
    states = np.zeros((2, 3, 3), np.float32)
    recall = memory.recall(states, np.zeros((2, 3)), mask=np.array([[1, 1, 0], [1, 0, 0]], bool))
    assert isinstance(recall, Recall)
    assert recall.found.tolist() == [[True, True, False], [True, False, False]]
    assert recall.best_return.tolist() == [[4, 4, 0], [4, 0, 0]]
    assert recall.embedding.shape == (2, 3, 2)
    assert [a.dtype for a in recall] == [np.bool_, np.float32, np.float32, np.bool_, np.float32]
    assert memory.stats()["recall_rate"] == 1.0


def test_recall_of_an_empty_memory_finds_nothing() -> None:
    recall = small_memory().recall(np.zeros((4, 3)), np.zeros(4))
    assert not recall.found.any()
    assert not recall.best_return.any()


def test_sample_gives_different_entries_and_all_while_they_are_few() -> None:
    memory = small_memory(capacity=200)
    memory.update([episode([float(i) for i in range(100)], [1.0] * 99)])
    states, times, returns = memory.sample(30, np.random.default_rng(0))
    assert len({tuple(s) for s in states}) == 30
    assert times.shape == returns.shape == (30,)
    assert len(memory.sample(1_000, np.random.default_rng(0))[0]) == 100
    again = memory.sample(30, np.random.default_rng(0))
    np.testing.assert_array_equal(states, again[0])


def test_reembed_normalises_every_dimension_and_survives_a_collapsed_one() -> None:
    memory = small_memory(capacity=200, radius=1e-3)
    memory.update([episode([float(i) for i in range(100)], [1.0] * 99)])
    memory.reembed()  # the second dimension is 0 everywhere
    keys = memory.export()["key"]
    np.testing.assert_allclose(keys.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(keys.std(axis=0), [1, 0], atol=1e-6)
    assert memory.recall(np.array([[7.0, 0, 0]]), np.zeros(1)).found.all()
    everything_equal = small_memory()
    everything_equal.update([episode([0], [])])
    everything_equal.reembed(lambda s, t: np.zeros((len(s), 2), np.float32))
    assert everything_equal.recall(np.zeros((1, 3)), np.zeros(1)).found.all()


def test_auto_radius_is_the_papers() -> None:
    assert EpisodicMemory(state_dim=1, radius=0).radius == pytest.approx(0.0013, rel=0.01)


def test_half_precision_keeps_float16_states() -> None:
    memory = small_memory(half_precision=True)
    memory.update([FakeEpisode(np.array([[0.1, 0, 1e6], [1, 0, 3]], np.float32), np.zeros(1), False)])
    assert memory.states(slice(0, 2)).tolist()[1] == [float(np.float16(0.1)), 0, 65504]
    memory.reembed(first_two)
    assert memory.recall(np.array([[0.1, 0, 0]]), np.zeros(1)).found.all()


def test_bytes_bound_the_capacity_and_an_entry_costs_little_beyond_its_state() -> None:
    memory = EpisodicMemory(state_dim=10, gigabytes=2e-4)
    assert memory.capacity == 200_000 // memory.options.entry_bytes(10)
    rng = np.random.default_rng(0)
    while len(memory) < memory.capacity:
        memory.update([FakeEpisode(rng.normal(size=(101, 10)), np.zeros(100), False)])
    assert memory.nbytes <= 200_000 * 1.02
    assert memory.options.entry_bytes(10) - 40 <= 96


def test_rejudge_takes_desirability_from_entries_below_the_mean() -> None:
    memory = small_memory()
    memory.update([episode([0, 1], [4], won=True), episode([5, 6], [10])])
    memory.rejudge()  # H = 0, 4, 0, 10; mean 3.5
    table = memory.export()
    assert table["desirable"].tolist() == [False, True, False, True]
    assert table["desirable_visits"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("half", [False, True])
def test_save_load_continue_is_identical_to_never_having_saved(tmp_path: Path, half: bool) -> None:
    rng = np.random.default_rng(5)
    options = {"state_dim": 5, "key_dim": 3, "capacity": 80, "radius": 0.3, "half_precision": half}
    memory = EpisodicMemory(**options)

    def live(subject: EpisodicMemory, seed: int) -> list[Any]:
        own, seen = np.random.default_rng(seed), []
        for turn in range(12):
            subject.update([random_episode(own, 5, lattice=turn % 2 == 0) for _ in range(3)])
            recall = subject.recall(own.normal(size=(4, 6, 5)) * 0.5, np.zeros((4, 6)))
            seen += [a.copy() for a in recall] + list(subject.sample(20, own))
            if turn % 5 == 4:
                subject.reembed()
        return [*seen, *subject.export().values(), subject.stats()]

    live(memory, int(rng.integers(100)))
    memory.save(tmp_path / "memory")
    restored = EpisodicMemory(**options)
    restored.load(tmp_path / "memory")
    opened = EpisodicMemory.open(tmp_path / "memory")
    continued = live(memory, 9)
    for other in (restored, opened):
        for a, b in zip(continued, live(other, 9), strict=True):
            if isinstance(a, dict):
                assert {k: v for k, v in a.items() if k != "bytes"} == {k: v for k, v in b.items() if k != "bytes"}
            else:
                np.testing.assert_array_equal(a, b)


def test_a_memory_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    memory = small_memory()
    memory.update([episode([0, 1, 2], [0, 0])])
    memory.save(tmp_path)
    with pytest.raises(CheckpointError, match="key_dim"):
        EpisodicMemory(state_dim=3, key_dim=3).load(tmp_path)
    with pytest.raises(CheckpointError, match="capacity"):
        small_memory(capacity=2).load(tmp_path)
    with pytest.raises(CheckpointError, match="no readable memory"):
        small_memory().load(tmp_path / "nowhere")
    description = json.loads((tmp_path / "memory.json").read_text())
    (tmp_path / "memory.json").write_text(json.dumps(description | {"format": 99}))
    with pytest.raises(CheckpointError, match="format"):
        small_memory().load(tmp_path)
    assert not list(tmp_path.glob("*.pkl"))


def test_misuse_says_what_is_wrong_and_changes_nothing() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'radius'"):
        EpisodicMemory(state_dim=1, raduis=1)
    with pytest.raises(ConfigError, match="state_dim"):
        EpisodicMemory(0)
    memory = small_memory()
    with pytest.raises(EmuError, match="states of 3"):
        memory.recall(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(EmuError, match="not finite"):
        memory.update([episode([0, np.nan], [1])])
    with pytest.raises(EmuError, match="need 2 states"):
        memory.update([episode([0], [1])])
    assert len(memory) == 0


def test_a_state_has_the_same_embedding_in_every_batch() -> None:
    project, states = RandomProjection(216, 4), np.random.default_rng(0).normal(size=(3_200, 216)).astype(np.float32)
    together = project(states)
    for size in (1, 7, 64, 100, 999):
        np.testing.assert_array_equal(project(states[:size]), together[:size])
        np.testing.assert_array_equal(project(states[-size:]), together[-size:])


def test_the_memory_works_without_importing_jax() -> None:
    code = """
import sys, types, numpy as np
from emu.memory import EpisodicMemory, episodic_incentive
memory = EpisodicMemory(state_dim=6, capacity=100)
states = np.ones((3, 6), np.float32)
memory.update([types.SimpleNamespace(state=states, reward=np.ones(2), won=True)])
recall = memory.recall(states, np.arange(3))
assert episodic_incentive(recall, np.zeros(3, np.float32), np.zeros(3, bool), 0.99).sum() > 0
memory.reembed()
rest = [m for m in sys.modules if m.split(".")[0] in ("jax", "jaxlib", "flax", "optax", "torch")]
own = [m for m in sys.modules if m.startswith("emu.") and not m.startswith(("emu.memory", "emu.errors", "emu.bounds"))]
assert not rest and not own, (rest, own)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_states_that_may_not_be_written_are_learnt_and_left_alone() -> None:
    memory = EpisodicMemory(state_dim=3, capacity=200)
    states = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)  # a whole block of the random projection
    states.flags.writeable = False
    memory.update([SimpleNamespace(state=states, reward=np.ones(63), won=True)])
    np.testing.assert_array_equal(memory.states(np.arange(64)), states[::-1])


def test_any_kind_of_array_from_the_encoder_uses_the_same_compiled_kernels() -> None:
    def read_only(states: np.ndarray, times: np.ndarray) -> np.ndarray:
        x = first_two(states, times).copy()
        x.flags.writeable = False
        return x

    def compiled() -> tuple[int, int]:
        return len(_rules.learn.signatures), len(_rules.recollect.signatures)  # type: ignore[attr-defined]

    memory = small_memory()
    memory.update([episode([0, 1], [1])])
    memory.recall(np.zeros((2, 3)), np.zeros(2))
    before = compiled()
    for encode in (first_two, read_only, lambda s, t: np.asfortranarray(s[:, :2]), lambda s, t: s[:, :2].tolist()):
        memory = small_memory(encode=encode)
        memory.update([episode([0, 1], [1])])
        mask = np.broadcast_to(np.array([True]), (2,))
        assert memory.recall(np.zeros((2, 3)), np.zeros(2), mask).found.all()
    assert compiled() == before


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_states_begin_where_xla_reads_them_without_copying(dtype: str) -> None:
    for capacity in (1, 7, 100_000):
        memory = EpisodicMemory(state_dim=5, capacity=capacity, half_precision=dtype == "float16")
        assert memory._states.ctypes.data % 64 == 0 and memory._states.shape == (capacity, 5)
        assert memory._states.dtype == dtype and memory._states.flags.c_contiguous
