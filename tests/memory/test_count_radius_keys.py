"""Options beyond the paper against plain Python and NumPy: smoothed ratios, a radius by hit rate, whitened keys."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.memory import EpisodicMemory, normalisation

from .oracle import PlainMemory

DIM = 3


def bare(states: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.asarray(states, np.float32)


def memory(**options: Any) -> EpisodicMemory:
    given = {"capacity": 5_000, "key_dim": DIM, "radius": 0.05, "gamma": 0.9, "encode": bare}
    return EpisodicMemory(DIM, **(given | options))


def walk(rng: np.random.Generator, steps: int = 40) -> SimpleNamespace:
    """A random walk; half of them are won."""
    state = np.cumsum(rng.normal(size=(steps + 1, DIM)) * 0.2, axis=0).astype(np.float32)
    return SimpleNamespace(state=state, reward=rng.normal(size=steps).astype(np.float32), won=bool(rng.random() < 0.5))


@pytest.mark.parametrize("count_new", [True, False])
@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (0.5, 2.0), (1.0, 1.0), (0.0, 0.001)])
def test_the_ratio_is_that_of_the_counts_with_the_prior_added(count_new: bool, a: float, b: float) -> None:
    rng = np.random.default_rng(0)
    subject = memory(radius=0.3, count_new_desirable=count_new, prior_desirable=a, prior_visits=b)
    plain = PlainMemory(bare, 5_000, 0.3, 0.9, count_new_desirable=count_new)
    for _ in range(8):
        episode = walk(rng)
        subject.update([episode])
        plain.update(episode)
    states = walk(rng).state
    recall = subject.recall(states, 0)
    assert recall.found.any() and not recall.found.all()
    for state, found, ratio in zip(states, recall.found, recall.ratio, strict=True):
        entry = plain.recall(state, 0)
        assert found == (entry is not None)
        expected = 0.0 if entry is None else (entry.desirable_visits + a) / (entry.visits + b)
        assert ratio == pytest.approx(expected, rel=1e-6)


def test_the_three_count_rules_on_a_memory_visited_once_and_twice() -> None:
    """Counted: 1/1, then 2/2. Not counted: 0/1, then 1/2. Smoothed by 0.5 and 2: 1.5/3, then 2.5/4."""
    episode = SimpleNamespace(state=np.zeros((1, DIM)), reward=np.zeros(0), won=True)
    rules = {
        "counted": {},
        "not counted": {"count_new_desirable": False},
        "smoothed": {"prior_desirable": 0.5, "prior_visits": 2.0},
    }
    seen = {}
    for name, options in rules.items():
        subject, ratios = memory(**options), []
        for _ in range(2):
            subject.update(episode)
            ratios.append(float(subject.recall(np.zeros((1, DIM)), 0).ratio[0]))
        seen[name] = ratios
    assert seen == {"counted": [1.0, 1.0], "not counted": [0.0, 0.5], "smoothed": [0.5, 0.625]}


@pytest.mark.parametrize(("wanted", "seen", "factor"), [(0.5, 0.5, 1), (0.75, 0.5, 2), (0.25, 0.5, 0.5), (0.9, 0.1, 4)])
def test_the_radius_is_doubled_for_a_quarter_too_few_hits(wanted: float, seen: float, factor: float) -> None:
    subject = memory(target_hit_rate=wanted)
    subject.counters |= {"matched": round(100 * seen), "added": round(100 * (1 - seen))}
    subject.reembed()
    assert subject.radius == pytest.approx(0.05 * factor)
    subject.reembed()  # nothing was learnt meanwhile
    assert subject.radius == pytest.approx(0.05 * factor)


@pytest.mark.parametrize("wanted", [0.3, 0.8])
@pytest.mark.parametrize("start", [1e-5, 3.0])
def test_the_hit_rate_settles_at_the_wanted_one(wanted: float, start: float) -> None:
    rng, subject = np.random.default_rng(1), memory(radius=start, target_hit_rate=wanted, capacity=2_000)
    rates = []
    for _ in range(60):
        learnt = subject.update([walk(rng) for _ in range(10)])
        rates.append(learnt.matched / (learnt.matched + learnt.added))
        subject.reembed()
    assert np.mean(rates[-15:]) == pytest.approx(wanted, abs=0.06)


def test_without_a_wanted_hit_rate_the_radius_stays() -> None:
    subject = memory()
    subject.update([walk(np.random.default_rng(0))])
    subject.reembed()
    assert subject.radius == 0.05


def stretched(rng: np.random.Generator, count: int, narrow: float = 0.03) -> np.ndarray:
    """Points that lie nearly on a line, not along any axis."""
    turned = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    return (rng.normal(size=(count, DIM)) * [1.0, narrow, narrow] @ turned + 5).astype(np.float32)


def test_whitened_keys_have_the_covariance_of_independent_numbers_where_plain_ones_lie_on_a_line() -> None:
    x = stretched(np.random.default_rng(0), 2_000)
    plain = np.linalg.eigvalsh(np.cov(normalisation.fitted(x, False).keys(x).T, bias=True))
    white = np.cov(normalisation.fitted(x, True).keys(x).T, bias=True)
    assert plain[-1] > 2.9 and plain[0] < 0.02
    np.testing.assert_allclose(white, np.eye(DIM), atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 0.1, 0.01]))
def test_whitening_is_that_of_numpy(seed: int, narrow: float) -> None:
    x = stretched(np.random.default_rng(seed), 300, narrow)
    values, vectors = np.linalg.eigh(np.cov(x.T.astype(np.float64), bias=True))
    expected = (x - x.mean(axis=0, dtype=np.float64)) @ vectors @ np.diag(values**-0.5) @ vectors.T
    np.testing.assert_allclose(normalisation.fitted(x, True).keys(x), expected, atol=2e-3 / narrow)


def test_whitening_survives_a_dimension_that_says_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(100, DIM)).astype(np.float32)
    x[:, 1], x[:, 2] = 7, 2 * x[:, 0]
    keys = normalisation.fitted(x, True).keys(x)
    assert np.isfinite(keys).all()
    variances = np.sort(np.linalg.eigvalsh(np.cov(keys.T)))
    assert variances[-1] == pytest.approx(1, rel=0.05) and variances[-2] < 1e-3


def test_a_memory_with_whitened_keys_follows_algorithm_2_in_plain_python() -> None:
    rng, subject = np.random.default_rng(2), memory(whiten=True, radius=0.4)
    plain = PlainMemory(bare, 5_000, 0.4, 0.9)
    for turn in range(12):
        episode = walk(rng)
        subject.update([episode])
        plain.update(episode)
        if turn == 5:
            subject.reembed()
            plain.keys_by(subject.normalisation.keys)
    for name in ("visits", "desirable_visits", "best_return", "desirable", "key"):
        expected = [getattr(entry, name) for entry in plain.entries]
        np.testing.assert_array_equal(subject.export()[name], np.array(expected), err_msg=name)
    assert subject.counters["matched"] > 20


def test_a_saved_memory_goes_on_with_its_radius_and_its_whitening(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    episodes = [walk(rng) for _ in range(30)]
    options = {"target_hit_rate": 0.6, "whiten": True, "prior_visits": 2.0, "prior_desirable": 0.5, "capacity": 300}

    def live(subject: EpisodicMemory, some: list[SimpleNamespace]) -> None:
        for episode in some:
            subject.update(episode)
            subject.reembed()

    subject = memory(**options)
    live(subject, episodes[:15])
    subject.save(tmp_path)
    again = EpisodicMemory.open(tmp_path, encode=bare)
    assert again.radius == subject.radius != 0.05
    for each in (subject, again):
        live(each, episodes[15:])
    assert again.stats() == subject.stats()
    for name, column in subject.export().items():
        np.testing.assert_array_equal(column, again.export()[name], err_msg=name)
