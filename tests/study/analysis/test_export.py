"""The marl-eval export: its shape, what it leaves out, and the absolute metrics in it."""

import json

import pytest

from emu.errors import EmuError
from emu.study.analysis.export import export, marl_eval
from emu.study.analysis.runs import load_runs
from study.synthetic import write_run

ABSOLUTE = {"step": 100, "episodes": 2, "win_rate": [1, 0], "return": [10.0, 0.0], "length": [3, 4]}


def test_runs_become_environment_task_algorithm_seed_step(tmp_path):
    write_run(tmp_path / "a", "qmix", "smac/MMM2", seed=4, points=((0, 0.0), (100, 0.5)))
    assert marl_eval(load_runs([tmp_path])) == {
        "smac": {
            "mmm2": {
                "qmix": {
                    "seed_4": {
                        "step_0": {
                            "step_count": 0,
                            "elapsed_time": 0.0,
                            "win_rate": [0.0],
                            "return": [0.0],
                            "length": [30.0],
                        },
                        "step_1": {
                            "step_count": 100,
                            "elapsed_time": 60.0,
                            "win_rate": [0.5],
                            "return": [5.0],
                            "length": [25.0],
                        },
                    }
                }
            }
        }
    }


def test_an_environment_without_tasks_is_its_own_task(tmp_path):
    write_run(tmp_path / "a")
    assert list(marl_eval(load_runs([tmp_path]))["gridworld"]) == ["gridworld"]


def test_runs_are_cut_to_the_tests_that_all_have(tmp_path):
    write_run(tmp_path / "a", "qmix", points=((0, 0.0), (100, 0.5), (200, 1.0)))
    write_run(tmp_path / "b", "vdn", points=((0, 0.0), (100, 0.5)))
    algorithms = marl_eval(load_runs([tmp_path]))["gridworld"]["gridworld"]
    assert list(algorithms["qmix"]["seed_0"]) == list(algorithms["vdn"]["seed_0"]) == ["step_0", "step_1"]


def test_absolute_metrics_come_last_and_only_if_all_runs_have_them(tmp_path):
    runs = [write_run(tmp_path / "a", seed=0), write_run(tmp_path / "b", seed=1)]
    (runs[0] / "absolute.json").write_text(json.dumps(ABSOLUTE))
    assert "absolute_metrics" not in marl_eval(load_runs([tmp_path]))["gridworld"]["gridworld"]["qmix"]["seed_0"]
    (runs[1] / "absolute.json").write_text(json.dumps(ABSOLUTE))
    exported = marl_eval(load_runs([tmp_path]))["gridworld"]["gridworld"]["qmix"]["seed_1"]
    assert list(exported)[-1] == "absolute_metrics"
    assert exported["absolute_metrics"] == {"win_rate": [1, 0], "return": [10.0, 0.0], "length": [3, 4]}


def test_two_runs_of_one_seed_are_refused(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    with pytest.raises(EmuError, match="have seed 0"):
        marl_eval(load_runs([tmp_path]))


def test_the_file_is_json(tmp_path):
    write_run(tmp_path / "runs" / "a")
    runs = load_runs([tmp_path])
    assert json.loads(export(runs, tmp_path / "deep" / "x.json").read_text()) == marl_eval(runs)
    with pytest.raises(EmuError, match=r"\.json"):
        export(runs, tmp_path / "x.txt")
