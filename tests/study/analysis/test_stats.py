"""Statistics against numbers worked out by hand and against SciPy."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emu.study.analysis import stats

quick = settings(max_examples=40, deadline=None, derandomize=True)
shares = st.integers(0, 32).map(lambda n: n / 32)
scores = st.lists(arrays(float, st.integers(1, 7), elements=shares), min_size=1, max_size=4)
enough = st.lists(arrays(float, st.integers(5, 9), elements=shares), min_size=1, max_size=4)


# Over training time


@quick
@given(st.lists(st.tuples(st.integers(1, 50), shares), min_size=1, max_size=12), st.floats(0.01, 1))
def test_time_average_equals_a_fine_sum_and_stays_within_the_curve(gaps, share):
    steps = np.cumsum([0, *(gap for gap, _ in gaps)]).astype(float)
    values = np.array([0.0, *(value for _, value in gaps)])
    until = share * steps[-1]
    fine = (np.arange(20_000) + 0.5) / 20_000 * until
    average = stats.time_average(steps, values, until)
    assert average == pytest.approx(np.interp(fine, steps, values).mean(), abs=1e-3)
    assert values.min() - 1e-12 <= average <= values.max() + 1e-12


# Over tasks


def test_interquartile_mean_by_hand():
    assert stats.interquartile_mean([np.array([9.0, 1.0, 2.0, 3.0])]) == 2.5
    assert stats.interquartile_mean([np.array([0.0, 1.0, 2.0]), np.array([3.0, 100.0])]) == 2.0
    assert stats.interquartile_mean([np.array([7.0])]) == 7.0


@quick
@given(scores)
def test_interquartile_mean_is_scipys_trimmed_mean(tasks):
    expected = scipy.stats.trim_mean(np.concatenate(tasks), 0.25)
    assert stats.interquartile_mean(tasks) == pytest.approx(expected)


def test_probability_of_improvement_by_hand():
    first, second = [np.array([1.0, 0.5])], [np.array([0.5, 0.0])]
    assert stats.improvement(first, second) == (1 + 1 + 0.5 + 1) / 4
    assert stats.improvement([*first, np.array([0.0])], [*second, np.array([1.0])]) == (3.5 / 4 + 0) / 2


@quick
@given(scores, st.data())
def test_probability_of_improvement_is_scipys_u_over_the_number_of_pairs(first, data):
    second = [data.draw(arrays(float, st.integers(1, 7), elements=shares)) for _ in first]
    expected = [
        scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(first, second, strict=True)
    ]
    forth, back = stats.improvement(first, second), stats.improvement(second, first)
    assert forth == pytest.approx(np.mean(expected))
    assert forth + back == pytest.approx(1)
    assert stats.improvement(first, first) == pytest.approx(0.5)


def test_performance_profile_by_hand():
    tasks = [np.array([0.0, 0.5, 1.0, 1.0]), np.array([0.25])]
    shares = stats.profile(tasks, np.array([-0.1, 0.0, 0.25, 0.5, 1.0]))
    np.testing.assert_allclose(shares, [1, (0.75 + 1) / 2, (0.75 + 0) / 2, 0.25, 0])


@quick
@given(scores)
def test_performance_profile_falls_from_one_to_nothing(tasks):
    shares = stats.profile(tasks, np.linspace(-0.01, 1, 20))
    assert shares[0] == 1 and shares[-1] == 0
    assert (np.diff(shares) <= 1e-12).all()


# Intervals


def test_resamples_stay_within_their_task():
    tasks = [np.array([0.0, 1.0]), np.array([10.0, 11.0, 12.0])]
    low, high = stats.resample(tasks, np.random.default_rng(0), 200)
    assert low.shape == (200, 2) and high.shape == (200, 3)
    assert set(np.unique(low)) == {0, 1} and set(np.unique(high)) == {10, 11, 12}


@quick
@given(enough)
def test_an_interval_holds_its_bounds_and_repeats(tasks):
    found = stats.interval(tasks)
    assert found == stats.interval(tasks)
    pooled = np.concatenate(tasks)
    assert pooled.min() - 1e-12 <= found.low <= found.high <= pooled.max() + 1e-12


def test_a_bootstrap_interval_is_scipys():
    sample = np.random.default_rng(1).beta(2, 3, 20)
    ours = stats.interval([sample])
    theirs = scipy.stats.bootstrap(
        (sample,),
        lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=stats.RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(7),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


def test_an_interval_of_two_samples_is_scipys():
    rng = np.random.default_rng(2)
    first, second = rng.beta(3, 3, 15), rng.beta(2, 3, 12)

    def beats(x, y, axis):
        return (x[..., :, None] > y[..., None, :]).mean(axis=(-2, -1))

    ours = stats.improvement_interval([first], [second])
    theirs = scipy.stats.bootstrap(
        (first, second), beats, n_resamples=stats.RESAMPLES, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


def test_the_profile_lies_within_its_interval():
    shares, low, high = stats.profile_interval([np.linspace(0, 1, 8)], np.linspace(0, 1, 5))
    assert (low <= shares).all() and (shares <= high).all() and (low < high).any()


def test_an_interval_of_a_difference_is_scipys():
    rng = np.random.default_rng(4)
    first, second = rng.normal(1, 1, 12), rng.normal(0, 2, 9)
    ours = stats.difference(first, second)
    theirs = scipy.stats.bootstrap(
        (first, second),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        n_resamples=stats.RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == pytest.approx(first.mean() - second.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


# Few seeds


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_fewer_than_five_seeds_give_a_value_and_no_interval(seeds):
    some, many = np.linspace(0, 1, seeds), np.linspace(0, 1, 5)
    for found in (
        stats.interval([some]),
        stats.interval([many, some]),  # one task with too few is enough
        stats.difference(some, many),
        stats.improvement_interval([many], [some]),
    ):
        assert np.isfinite(found.value) and np.isnan([found.low, found.high]).all() and not found.known
    assert stats.profile_interval([some], np.linspace(0, 1, 5))[1:] == (None, None)
    assert stats.interval([many]).known


def test_seeds_that_are_all_alike_give_no_interval_of_no_width():
    found = stats.interval([np.ones(6)])
    assert found.value == 1 and not found.known


def test_separated_needs_five_seeds_and_a_difference_beyond_chance():
    low, high = np.array([0.1, 0.2, 0.15, 0.1, 0.2]), np.array([0.8, 0.9, 0.7, 0.9, 0.8])
    assert stats.separated(high, low) and not stats.separated(low, high)
    assert not stats.separated(high[:4], low)
    assert not stats.separated(high, np.array([0.9, 0.5, 1.0, 0.7, 0.9]))
    assert stats.separated(np.ones(5), np.zeros(5))


@quick
@given(enough, st.data())
def test_a_separated_pair_is_never_separated_the_other_way_round(tasks, data):
    first, second = tasks[0], data.draw(arrays(float, st.integers(5, 9), elements=shares))
    assert not (stats.separated(first, second) and stats.separated(second, first))
