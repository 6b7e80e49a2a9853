"""From runs to scores: at which step, of which kind, and on which scale runs are compared."""

import json

import numpy as np
import pytest

from emu.errors import EmuError
from emu.study.analysis import scores, stats
from emu.study.analysis.runs import load_run, load_runs
from study.synthetic import make_study, write_run

LOW, HIGH = ((0, 0.0), (100, 0.2)), ((0, 0.0), (100, 1.0))


def runs_of(tmp_path, *curves, **keywords):
    return [load_run(write_run(tmp_path / str(n), seed=n, points=c, **keywords)) for n, c in enumerate(curves)]


def test_values_between_two_evaluations_are_interpolated(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 0.5)), ((0, 0.0), (100, 1.0)))
    np.testing.assert_allclose(scores.values_at(runs, 50), [0.25, 0.5])
    with pytest.raises(EmuError, match="only up to step 100, not 101"):
        scores.values_at(runs, 101)


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
    assert scores.overall(runs, until)[0] == pytest.approx(expected)


def test_overall_win_rate_of_several_seeds_ends_where_all_have_been(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 1.0)), ((0, 0.0), (200, 0.0)))
    np.testing.assert_allclose(scores.overall(runs), [0.5, 0.0])


def test_scores_are_measured_up_to_the_last_common_step_of_an_environment(tmp_path):
    runs = [
        load_run(write_run(tmp_path / "a", "qmix", points=((0, 0.0), (100, 1.0), (200, 0.0)))),
        load_run(write_run(tmp_path / "b", "vdn", points=((0, 0.0), (150, 0.5)))),
    ]
    assert scores.scores_by_label(runs, "last") == {"qmix": [pytest.approx([0.5])], "vdn": [pytest.approx([0.5])]}
    assert scores.scores_by_label(runs, "best")["qmix"] == [[1.0]]
    assert scores.scores_by_label(runs, "overall")["qmix"] == [pytest.approx([(50 + 37.5) / 150])]
    with pytest.raises(EmuError, match="emu absolute"):
        scores.scores_by_label(runs, "absolute")
    with pytest.raises(EmuError, match="Did you mean 'last'"):
        scores.scores_by_label(runs, "lst")  # type: ignore[arg-type]


def test_a_label_missing_in_an_environment_is_named(tmp_path):
    write_run(tmp_path / "a", "qmix", "gridworld")
    write_run(tmp_path / "b", "vdn", "matrix/coordination")
    with pytest.raises(EmuError, match="'vdn' has no run on gridworld"):
        scores.scores_by_label(load_runs([tmp_path]), "last")


def test_a_summary_by_hand(tmp_path):
    runs = runs_of(tmp_path, ((0, 0.0), (100, 1.0), (200, 0.5)), ((0, 0.0), (100, 0.0), (200, 1.0)))
    (summary,) = scores.summarise(runs)
    assert (summary.env, summary.label, summary.steps) == ("gridworld", "qmix", 200)
    assert summary.score == scores.WINS and not summary.ahead
    assert summary.last.value == 0.75 and not summary.last.known
    np.testing.assert_allclose(summary.seeds, [0.625, 0.25])
    assert summary.overall.value == pytest.approx((0.625 + 0.25) / 2)
    assert summary.best == pytest.approx(0.75)
    assert summary.training and summary.training.value == pytest.approx(0.8 * 0.75)
    assert summary.absolute is None


def test_absolute_metrics_are_summarised_once_every_run_has_them(tmp_path):
    runs = runs_of(tmp_path, *[((0, 0.0), (100, 1.0))] * 2)
    content = {"step": 100, "episodes": 4, "win_rate": [1, 1, 1, 0], "return": [1.0] * 4, "length": [5] * 4}
    (runs[0].folder / "absolute.json").write_text(json.dumps(content))
    assert scores.summarise(runs)[0].absolute is None
    (runs[1].folder / "absolute.json").write_text(json.dumps(content | {"win_rate": [0, 0, 0, 1]}))
    found = scores.summarise(runs)[0].absolute
    assert found and found.value == 0.5
    (runs[1].folder / "absolute.json").write_text(json.dumps(content | {"win_rate": [0]}))
    with pytest.raises(EmuError, match="must be a list of 4 numbers"):
        scores.summarise(runs)


def test_the_better_label_of_a_synthetic_study_is_better_everywhere(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=5)])
    found = scores.scores_by_label(runs, "overall")
    assert [len(task) for task in found["qplex"]] == [5, 5]
    assert stats.improvement_interval(found["emu_qplex"], found["qplex"]).value == 1
    assert [summary.ahead for summary in scores.summarise(runs)] == [True, False] * 2


# Tasks without a goal


def test_without_a_goal_teams_are_compared_by_their_return(tmp_path):
    runs = runs_of(tmp_path, LOW, HIGH, env="gymnasium:Hopper-v4", algo="td3")
    assert scores.score_of(runs) == scores.RETURNS
    np.testing.assert_allclose(scores.run_scores(runs, "last"), [2, 10])
    np.testing.assert_allclose(scores.run_scores(runs, "overall"), [1, 5])
    np.testing.assert_allclose(scores.run_scores(runs, "best"), [2, 10])
    (summary,) = scores.summarise(runs)
    assert summary.score.name == "return" and summary.overall.value == 3
    assert summary.training and summary.training.value == pytest.approx(0.8 * 6)


def test_over_tasks_returns_go_from_the_lowest_to_the_highest_evaluation_of_any_run(tmp_path):
    write_run(tmp_path / "a", "td3", "gymnasium:Hopper-v4", points=((0, 0.5), (100, 0.7)))
    write_run(tmp_path / "b", "emu_td3", "gymnasium:Hopper-v4", points=((0, 0.3), (100, 0.8), (200, 9.0)))
    found = scores.scores_by_label(load_runs([tmp_path]), "last")  # 3 to 8: what comes after step 100 does not count
    assert found == {"td3": [pytest.approx([4 / 5])], "emu_td3": [pytest.approx([1.0])]}


def test_tasks_with_and_without_a_goal_can_be_compared_together(tmp_path):
    for algo, points in (("emu_dqn", HIGH), ("dqn", LOW)):
        write_run(tmp_path / algo / "a", algo, "gymnasium:CartPole-v1", points=points)
        write_run(tmp_path / algo / "b", algo, "gridworld", points=points)
    runs = load_runs([tmp_path])
    found = scores.scores_by_label(runs, "last")
    assert {label: [float(task[0]) for task in tasks] for label, tasks in found.items()} == {
        "emu_dqn": [1.0, 1.0],
        "dqn": [0.2, 0.2],
    }
    assert scores.measure_name("overall", runs) == "overall score (win rate or normalised return)"


@pytest.mark.parametrize(
    ("env", "recorded", "points", "goal"),
    [
        ("gridworld", None, LOW[:1], True),  # never won: its name says that it has a goal
        ("smac/3m", None, LOW[:1], True),
        ("atari/breakout", None, HIGH, False),
        ("gymnasium:CartPole-v1", None, HIGH, False),
        ("my_module:Env", None, LOW[:1], False),  # nobody ever won: nothing to compare by
        ("my_module:Env", None, HIGH, True),
        ("my_module:Env", False, HIGH, False),  # what was written down decides
        ("gymnasium:CartPole-v1", True, LOW, True),
    ],
)
def test_whether_a_task_has_a_goal_is_written_down_or_derived(tmp_path, env, recorded, points, goal):
    folder = write_run(tmp_path / "a", "qmix", "gridworld", points=points)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"env": env}))
    described = {"name": env, "version": "1"} | ({} if recorded is None else {"has_goal": recorded})
    (folder / "meta.json").write_text(json.dumps({"env": described}))
    assert load_run(folder).has_goal == goal


def test_one_run_that_reached_the_goal_speaks_for_all_of_its_task(tmp_path):
    for name, points in (("a", LOW[:1]), ("b", HIGH)):
        folder = write_run(tmp_path / name, "qmix", seed=len(points), points=points)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"env": "my_module:Env"}))
    assert [run.has_goal for run in load_runs([tmp_path])] == [True, True]


# Training episodes


def test_the_training_score_weighs_episodes_by_how_much_of_them_lies_in_the_last_tenth(tmp_path):
    (run,) = runs_of(tmp_path, HIGH)
    rows = [(80, 10, 0.0), (92, 40, 0.5), (104, 100, 1.0), (110, 900, 0.0)]  # 90 ... 100 counts
    rows = [{"step": step, "episodes": episodes, "train_win_rate": rate} for step, episodes, rate in rows]
    values = scores.training_scores([run._replace(rows=rows)], 100)
    second, third = 30 * 2 / 12, 60 * 8 / 12  # episodes of these rows, as far as their steps count
    assert values is not None and values[0] == pytest.approx((second * 0.5 + third * 1.0) / (second + third))
    values = scores.training_scores([run._replace(rows=rows[:1])], 100)  # nothing that late: the last row stands
    assert values is not None and values[0] == 0
    assert scores.training_scores([run._replace(rows=[{"step": 1, "test_return": 1.0}])], 100) is None


def test_numbers_are_written_with_sensible_digits():
    assert [scores.WINS.text(x, 3) for x in (0.5, 0, 1)] == ["0.500", "0.000", "1.000"]
    assert [scores.RETURNS.text(x) for x in (2345.6, -12.345, 0.5, 0)] == ["2346", "-12.35", "0.5000", "0.00"]
    assert scores.WINS.span(stats.Interval(0.5, 0.4, 0.6)) == "[0.40, 0.60]"
    assert scores.WINS.span(stats.Interval(0.5, 0.501, 0.502)) == ""  # no width that two digits can show
    assert scores.WINS.span(stats.Interval(0.5, float("nan"), float("nan"))) == ""
