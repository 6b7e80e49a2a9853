"""Which runs are found, what they are called, and how they are put side by side."""

import json

import numpy as np
import pytest

from emu.errors import EmuError
from emu.study.analysis.runs import (
    aligned,
    by_env,
    by_label,
    find_runs,
    load_run,
    load_runs,
    require_one_version,
    smoothed,
)
from study.synthetic import make_study, write_run


def test_a_run_outside_a_study_is_called_by_its_algorithm(tmp_path):
    run = load_run(write_run(tmp_path / "a", "qmix", seed=3))
    assert (run.label, run.algo, run.env, run.version, run.seed) == ("qmix", "qmix", "gridworld", "gridworld 1", 3)
    assert run.scale == ""
    steps, values = run.series("test_return")
    np.testing.assert_array_equal(steps, [0, 100, 200])
    np.testing.assert_array_equal(values, [0, 5, 10])
    assert run.last("test_win_rate") == 1 and run.has("loss") and not run.has("memory_size")


def test_labels_and_scale_come_from_the_study_above_a_run(tmp_path):
    labels = {"δ=1.3e-3": ("emu_qplex", {}), "δ=0": ("emu_qplex", {"memory.radius": 0.0})}
    folder = make_study(tmp_path / "study", labels=labels, seeds=2)
    runs = load_runs([folder])
    assert [run.label for run in runs] == ["δ=1.3e-3"] * 2 + ["δ=0"] * 2
    assert {run.scale for run in runs} == {"laptop"}
    assert runs[2].config.memory.radius == 0
    inner = load_runs([folder / "runs" / "gridworld" / "δ=0" / "seed1"])
    assert inner[0].label == "δ=0" and inner[0].seed == 1


def test_a_run_that_its_study_does_not_list_keeps_its_algorithms_name(tmp_path):
    folder = make_study(tmp_path, seeds=1)
    write_run(folder / "runs" / "gridworld" / "extra" / "seed0", "vdn")
    assert "vdn" in by_label(load_runs([folder]))


def test_other_settings_are_another_curve_and_not_another_seed(tmp_path):
    """How long a run went and on how many devices does not matter; what it computes does. The preset needs no word."""
    write_run(tmp_path / "a", "qmix", seed=0)
    write_run(tmp_path / "b", "qmix", seed=1, points=((0, 0.0), (500, 1.0)), overrides={"devices": 1})
    assert {run.label for run in load_runs([tmp_path])} == {"qmix"}
    write_run(tmp_path / "c", "qmix", seed=0, overrides={"learner.td_lambda": 0.5, "env_args": {"penalty": 3}})
    write_run(tmp_path / "d", "vdn", seed=0)
    assert [run.label for run in load_runs([tmp_path])] == [
        "qmix",
        "qmix",
        "qmix (penalty 3, td_lambda 0.5)",
        "vdn",
    ]


def test_runs_are_found_below_a_folder_and_once(tmp_path):
    first, second = write_run(tmp_path / "x" / "a"), write_run(tmp_path / "x" / "b")
    assert find_runs([tmp_path, first]) == [first, second]
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmuError, match="No run was found"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(EmuError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])


def test_a_damaged_study_is_named(tmp_path):
    folder = make_study(tmp_path, seeds=1)
    (folder / "study.json").write_text("{")
    with pytest.raises(EmuError, match=r"study\.json cannot be read"):
        load_runs([folder])


def test_an_unknown_metric_is_refused_with_a_hint(tmp_path):
    with pytest.raises(EmuError, match="Did you mean 'test_return'"):
        load_run(write_run(tmp_path / "a")).series("test_retrun")


def test_seeds_are_compared_as_far_as_all_of_them_got(tmp_path):
    short = load_run(write_run(tmp_path / "a", points=((0, 0.0), (100, 1.0))))
    long = load_run(write_run(tmp_path / "b", points=((0, 0.0), (50, 0.0), (200, 1.0))))
    steps, values = aligned([short, long])
    np.testing.assert_array_equal(steps, [0, 50, 100])
    np.testing.assert_allclose(values, [[0, 0.5, 1], [0, 0, 1 / 3]])


def test_runs_are_grouped_in_order_of_appearance(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=2)])
    assert list(by_env(runs)) == ["gridworld", "smac/3m"]
    assert {label: len(group) for label, group in by_label(runs).items()} == {"emu_qplex": 4, "qplex": 4}


def test_versions_of_one_environment_are_not_mixed_by_accident(tmp_path):
    runs = [load_run(write_run(tmp_path / v, version=v)) for v in ("1", "2")]
    with pytest.raises(EmuError, match="--mix-versions"):
        require_one_version(runs)
    require_one_version(runs, mix_versions=True)
    other = load_run(write_run(tmp_path / "other", env="matrix/coordination"))
    require_one_version([runs[0], other])


def test_a_run_without_a_description_has_an_unknown_version_and_one_with_nonsense_is_refused(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "meta.json").write_text(json.dumps({"env": "gone"}))
    with pytest.raises(EmuError, match=r"'env' in .*meta\.json must hold one JSON object"):
        load_run(folder)
    (folder / "meta.json").unlink()
    assert load_run(folder).version == "unknown"


BROKEN = {
    "config.json": ["{", "[]", "3", '{"algo": 5}', ""],
    "metrics.jsonl": [
        "",
        '{"step": 0, "loss": 1.0}\n',  # never evaluated
        "[1, 2]\n",
        "\xff\xfe\n",  # no text
        '{"step": "x", "test_return": 1.0}\n',
        '{"test_return": 1.0}\n',
        '{"step": 5, "test_return": [1]}\n',
        '{"step": 5, "test_return": 1.0}\n{"step": 3, "test_return": 1.0}\n',
        '{"step": NaN, "test_return": 1.0}\n',
    ],
    "absolute.json": [
        "{",
        "[]",
        "3",
        '{"episodes": 2}',
        '{"episodes": 1, "win_rate": ["a"], "return": [1], "length": [1]}',
    ],
}


@pytest.mark.parametrize(("name", "content"), [(name, text) for name, texts in BROKEN.items() for text in texts])
def test_a_broken_run_is_left_out_and_named(tmp_path, name, content):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad", seed=1) / name).write_bytes(content.encode("latin-1"))
    heard: list[str] = []
    (run,) = load_runs([tmp_path], heard.append)
    assert run.folder == tmp_path / "good"
    assert len(heard) == 1 and str(tmp_path / "bad") in heard[0]
    with pytest.raises(EmuError, match="bad"):
        load_runs([tmp_path])
    with pytest.raises(EmuError, match="None of the runs"):
        load_runs([tmp_path / "bad"], heard.append)


@pytest.mark.parametrize(
    "content", ["[]", *(f'{{"runs": {runs}}}' for runs in ("3", "[3]", "[{}]", '[{"folder": 3}]'))]
)
def test_a_study_of_the_wrong_form_is_named(tmp_path, content):
    write_run(tmp_path / "a")
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(EmuError, match=r"study\.json cannot be read"):
        load_runs([tmp_path])


def test_smoothing_takes_the_mean_of_the_last_values():
    values = np.array([0.0, 4.0, 2.0, 6.0])
    np.testing.assert_allclose(smoothed(values, 1), values)
    np.testing.assert_allclose(smoothed(values, 3), [0, 2, 2, 4])
    np.testing.assert_allclose(smoothed(values, 99), [0, 2, 2, 3])
