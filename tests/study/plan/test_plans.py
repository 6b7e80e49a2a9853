"""What a plan is made of, and which folders count as finished."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.config import to_dict
from emu.errors import ConfigError, EmuError
from emu.files import replace_json
from emu.run.folder import write_config
from emu.study.plan.plans import (
    Plan,
    Planned,
    check_plan,
    differences,
    grid,
    parse_seeds,
    parse_settings,
    path_name,
    standing,
    write_study,
)

from .fakes import complete

RUN = Planned("matrix/climbing", "vdn", "vdn", 3, {"devices": 1, "steps": 500})


def test_a_run_lives_in_a_folder_named_by_task_label_and_seed():
    assert str(RUN.folder) == "runs/matrix-climbing/vdn/seed3"
    assert str(RUN.log) == "logs/matrix-climbing/vdn/seed3.log"
    assert path_name("dcae δ=1.3e-3") == "dcae-delta=1.3e-3"
    assert path_name("my_module:Env") == "my_module-Env"


def test_the_configuration_is_the_preset_with_the_overrides():
    config = RUN.config()
    assert (config.algo, config.env, config.seed, config.steps, config.devices) == ("vdn", RUN.env, 3, 500, 1)


def test_a_grid_has_every_combination_and_names_what_varies():
    runs = grid(["matrix/climbing", "gridworld"], ["vdn"], [0, 1], {"learner.gamma": [0.9, 0.5], "steps": [10]})
    assert len(runs) == 2 * 1 * 2 * 2
    assert [run.label for run in runs[:4]] == ["vdn learner.gamma=0.9"] * 2 + ["vdn learner.gamma=0.5"] * 2
    assert runs[0].overrides == {"devices": 1, "tensorboard": False, "learner.gamma": 0.9, "steps": 10}
    assert len({run.folder for run in runs}) == 8


def test_a_run_takes_one_device_unless_told_otherwise():
    assert grid(["gridworld"], ["vdn"], [0], {})[0].config().devices == 1
    assert grid(["gridworld"], ["vdn"], [0], {"devices": [2]})[0].config().devices == 2


def test_settings_are_json_or_words():
    words = ["steps=5", "mixer.kind=vdn,qmix", "agent.own_heads=true", 'env_args={"a": 1, "b": 2}', "x=1e-3"]
    assert parse_settings(words) == {
        "steps": [5],
        "mixer.kind": ["vdn", "qmix"],
        "agent.own_heads": [True],
        "env_args": [{"a": 1, "b": 2}],
        "x": [0.001],
    }


@pytest.mark.parametrize("words", [["steps"], ["=3"], ["steps="], ["steps=1", "steps=2"], ["seed=3"]])
def test_bad_settings_are_explained(words):
    with pytest.raises(ConfigError):
        parse_settings(words)


def test_seeds():
    assert parse_seeds("0-3") == [0, 1, 2, 3]
    assert parse_seeds("4") == [4]
    assert parse_seeds("7, 0-2,1") == [7, 0, 1, 2]
    for text in ("", "a", "3-1", "1-", "-1", "0..3"):
        with pytest.raises(ConfigError):
            parse_seeds(text)


@given(st.lists(st.integers(0, 50), min_size=1, unique=True))
def test_any_list_of_seeds_is_read_back(seeds):
    assert parse_seeds(",".join(map(str, seeds))) == seeds


# Finished, unfinished, new, refused


def test_a_folder_without_a_configuration_is_new(tmp_path):
    assert standing(tmp_path / "run", RUN.config()) == "new"


def test_a_committed_result_without_checkpoints_is_finished(tmp_path):
    complete(tmp_path, RUN.config())
    assert standing(tmp_path, RUN.config()) == "finished"


def test_metrics_short_of_the_last_test_are_unfinished(tmp_path):
    complete(tmp_path, RUN.config(), step=499)
    assert standing(tmp_path, RUN.config()) == "unfinished"
    (tmp_path / "metrics.jsonl").write_text('{"step": 512, "td_loss": 1.0}\n')  # a training row is no test
    assert standing(tmp_path, RUN.config()) == "unfinished"
    (tmp_path / "metrics.jsonl").unlink()
    assert standing(tmp_path, RUN.config()) == "unfinished"


def test_a_run_killed_between_its_last_test_and_its_last_save_is_unfinished(tmp_path):
    complete(tmp_path, RUN.config(), step=512)
    (tmp_path / "checkpoints").mkdir()
    assert standing(tmp_path, RUN.config()) == "unfinished"
    (tmp_path / "checkpoints" / "000000000448").mkdir()
    (tmp_path / "checkpoints" / ".writing-512").mkdir()
    assert standing(tmp_path, RUN.config()) == "unfinished"
    (tmp_path / "checkpoints" / "000000000512").mkdir()
    assert standing(tmp_path, RUN.config()) == "finished"


def test_a_half_written_last_line_does_not_count(tmp_path):
    complete(tmp_path, RUN.config(), step=448)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 512, "test_return": 1.')
    assert standing(tmp_path, RUN.config()) == "unfinished"


def test_a_configuration_from_before_a_setting_existed_is_the_same(tmp_path):
    complete(tmp_path, RUN.config())
    content = to_dict(RUN.config())
    del content["memory"]["metric"], content["log_interval"]
    replace_json(tmp_path / "config.json", content)
    assert standing(tmp_path, RUN.config()) == "finished"


def test_a_folder_with_other_settings_is_refused_by_name(tmp_path):
    folder = tmp_path / RUN.folder
    folder.mkdir(parents=True)
    write_config(folder, RUN._replace(overrides={"devices": 1, "steps": 900}).config())
    with pytest.raises(EmuError, match=r"seed3 holds a run with other settings \(steps 900 instead of 500\)"):
        check_plan(Plan("p", "P", "", [RUN]), tmp_path)


def test_differences_are_named_and_few():
    other = RUN._replace(algo="qmix", overrides={"devices": 1, "steps": 500, "learner.gamma": 0.5}).config()
    assert differences(other, RUN.config()) == (
        "algo 'qmix' instead of 'vdn', mixer.kind 'qmix' instead of 'vdn', learner.gamma 0.5 instead of 0.99"
    )


def test_results_of_another_version_of_the_environment_are_refused(tmp_path):
    folder = tmp_path / RUN.folder
    complete(folder, RUN.config())
    plan = Plan("p", "P", "", [RUN])
    assert check_plan(plan, tmp_path) == {RUN.folder: "finished"}
    (folder / "meta.json").write_text(json.dumps({"env": {"name": "matrix", "version": "0"}}))
    with pytest.raises(EmuError, match="version 0 of its environment"):
        check_plan(plan, tmp_path)


def test_a_plan_that_cannot_be_run_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(EmuError, match="Two runs of 'p' would share"):
        check_plan(Plan("p", "P", "", [RUN, RUN]), tmp_path)
    with pytest.raises(EmuError, match="No environment is called"):
        check_plan(Plan("p", "P", "", [RUN._replace(env="matrix/climbin")]), tmp_path)
    with pytest.raises(EmuError, match="no runs"):
        check_plan(Plan("p", "P", "", []), tmp_path)


# study.json


def test_study_json_names_every_run_and_the_command(tmp_path):
    write_study(Plan("name", "Title", "paper", [RUN]), tmp_path, "emu study name")
    assert json.loads((tmp_path / "study.json").read_text()) == {
        "name": "name",
        "title": "Title",
        "scale": "paper",
        "command": "emu study name",
        "runs": [
            {
                "folder": "runs/matrix-climbing/vdn/seed3",
                "env": "matrix/climbing",
                "label": "vdn",
                "algo": "vdn",
                "seed": 3,
                "overrides": {"devices": 1, "steps": 500},
            }
        ],
    }


def test_more_seeds_join_a_study_and_panels_stay(tmp_path):
    write_study(Plan("name", "Title", "paper", [RUN]), tmp_path, "first")
    content = json.loads((tmp_path / "study.json").read_text())
    replace_json(tmp_path / "study.json", {**content, "panels": {"a": 1}})
    write_study(Plan("name", "Title", "paper", [RUN, RUN._replace(seed=4)]), tmp_path, "second")
    content = json.loads((tmp_path / "study.json").read_text())
    assert [entry["seed"] for entry in content["runs"]] == [3, 4]
    assert content["command"] == "second" and content["panels"] == {"a": 1}


def test_another_study_in_the_folder_is_refused(tmp_path):
    write_study(Plan("name", "Title", "paper", [RUN]), tmp_path, "")
    with pytest.raises(EmuError, match=r"holds 'name' \(paper\), not 'name' \(laptop\)"):
        write_study(Plan("name", "Title", "laptop", [RUN]), tmp_path, "")
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(EmuError, match="cannot be read"):
        write_study(Plan("name", "Title", "paper", [RUN]), tmp_path, "")
