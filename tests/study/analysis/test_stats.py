"""Statistics against numbers worked out by hand and against SciPy."""

import json

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emu.errors import EmuError
from emu.study.analysis import stats
from emu.study.analysis.runs import load_run, load_runs
from study.synthetic import make_study, write_run

quick = settings(max_examples=40, deadline=None, derandomize=True)
shares = st.integers(0, 32).map(lambda n: n / 32)
scores = st.lists(arrays(float, st.integers(1, 7), elements=shares), min_size=1, max_size=4)


def runs_of(tmp_path, *curves, **keywords):
    return [load_run(write_run(tmp_path / str(n), seed=n, points=c, **keywords)) for n, c in enumerate(curves)]


# Over seeds and time


def test_mean_and_variance_at_a_step_between_tests(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 0.5)), ((0, 0.0), (100, 1.0)))
    mean, variance = stats.mean_and_variance(runs, 50)  # 0.25 and 0.5
    assert (mean, variance) == pytest.approx((0.375, 2 * 0.125**2))
    assert stats.mean_and_variance(runs[:1], 100) == (0.5, 0.0)
    with pytest.raises(EmuError, match="only up to step 100, not 101"):
        stats.mean_and_variance(runs, 101)


@pytest.mark.parametrize(
    ("points", "until", "expected"),
    [
        (((0, 1.0), (100, 1.0)), 100, 1.0),
        (((0, 0.0), (100, 1.0)), 100, 0.5),
        (((0, 0.0), (100, 1.0)), 50, 0.25),
        (((0, 0.0), (50, 0.0), (100, 1.0), (200, 1.0)), 200, (25 + 100) / 200),
        (((0, 0.0), (50, 0.0), (100, 1.0), (200, 1.0)), 75, (0.5 * 25 * 0.5) / 75),
        (((20, 0.5), (100, 0.5)), 100, 0.5),  # the first test came late: its value counts before it
    ],
)
def test_overall_win_rate_is_the_area_under_the_curve_over_the_time(tmp_path, points, until, expected):
    runs = runs_of(tmp_path, points)
    assert stats.overall_win_rates(runs, until)[0] == pytest.approx(expected)


def test_overall_win_rate_of_several_seeds_ends_where_all_have_been(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 1.0)), ((0, 0.0), (200, 0.0)))
    np.testing.assert_allclose(stats.overall_win_rates(runs), [0.5, 0.0])


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
@given(scores)
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


# From runs


def test_scores_are_measured_up_to_the_last_common_step_of_an_environment(tmp_path):
    runs = [
        load_run(write_run(tmp_path / "a", "qmix", points=((0, 0.0), (100, 1.0), (200, 0.0)))),
        load_run(write_run(tmp_path / "b", "vdn", points=((0, 0.0), (150, 0.5)))),
    ]
    assert stats.scores_by_label(runs, "last") == {"qmix": [pytest.approx([0.5])], "vdn": [pytest.approx([0.5])]}
    assert stats.scores_by_label(runs, "best")["qmix"] == [[1.0]]
    assert stats.scores_by_label(runs, "overall")["qmix"] == [pytest.approx([(50 + 37.5) / 150])]
    with pytest.raises(EmuError, match="emu absolute"):
        stats.scores_by_label(runs, "absolute")
    with pytest.raises(EmuError, match="Did you mean 'last'"):
        stats.scores_by_label(runs, "lst")  # type: ignore[arg-type]


def test_a_label_missing_in_an_environment_is_named(tmp_path):
    write_run(tmp_path / "a", "qmix", "gridworld")
    write_run(tmp_path / "b", "vdn", "matrix/coordination")
    with pytest.raises(EmuError, match="'vdn' has no run on gridworld"):
        stats.scores_by_label(load_runs([tmp_path]), "last")


def test_a_summary_by_hand(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 1.0), (200, 0.5)), ((0, 0.0), (100, 0.0), (200, 1.0)))
    (summary,) = stats.summarise(runs)
    assert (summary.env, summary.label, summary.seeds, summary.steps) == ("gridworld", "qmix", 2, 200)
    assert summary.last == pytest.approx((0.75, 0.5, 1.0))
    assert summary.overall.value == pytest.approx((0.625 + 0.25) / 2)
    assert summary.overall_std == pytest.approx(np.std([0.625, 0.25], ddof=1))
    assert summary.best == pytest.approx(0.75)
    assert summary.absolute is None


def test_absolute_metrics_are_summarised_once_every_run_has_them(tmp_path):
    runs = runs_of(tmp_path, *[((0, 0.0), (100, 1.0))] * 2)
    content = {"step": 100, "episodes": 4, "win_rate": [1, 1, 1, 0], "return": [1.0] * 4, "length": [5] * 4}
    (runs[0].folder / "absolute.json").write_text(json.dumps(content))
    assert stats.summarise(runs)[0].absolute is None
    (runs[1].folder / "absolute.json").write_text(json.dumps(content | {"win_rate": [0, 0, 0, 1]}))
    assert stats.summarise(runs)[0].absolute == pytest.approx((0.5, 0.25, 0.75))
    (runs[1].folder / "absolute.json").write_text(json.dumps(content | {"win_rate": [0]}))
    with pytest.raises(EmuError, match="one value per episode"):
        stats.summarise(runs)


def test_the_better_label_of_a_synthetic_study_is_better_everywhere(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=4)])
    scores = stats.scores_by_label(runs, "overall")
    assert [len(task) for task in scores["qplex"]] == [4, 4]
    assert stats.improvement_interval(scores["emu_qplex"], scores["qplex"]) == (1, 1, 1)
