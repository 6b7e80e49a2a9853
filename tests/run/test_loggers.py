"""What trackers are told: TensorBoard, Weights & Biases and trackio, read back from their own files."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from emu.config import Config, replace
from emu.errors import ConfigError
from emu.run.loggers import build_loggers
from emu.run.metrics import MetricsWriter
from emu.run.tags import flat_settings, tag
from emu.training.session import train
from toys import silent, tiny_config

CONFIG = replace(Config(), {"env_args": {"penalty": 0.5}})
EVALUATION = {"test_win_rate": 0.5, "test_return": 2.0}
TRAINING = {"td_loss": 0.25, "train_return": 1.0, "memory_size": 17, "embedder_loss": 3.0, "loss": float("nan")}
TIMING = {"wall": 1e9, "rollout": 4.0}
TAGGED = {
    (0, "eval/win_rate"): 0.5,
    (0, "eval/return"): 2.0,
    (0, "time/rollout"): 4.0,
    (3, "train/td_loss"): 0.25,
    (3, "train/return"): 1.0,
    (3, "memory/size"): 17.0,
    (3, "memory/embedder_loss"): 3.0,
}


def write_all(folder, name, settings=None, from_step=0):
    """What a run tells a logger."""
    given = {"tensorboard": name == "tensorboard"} | ({} if name == "tensorboard" else {"loggers": {name: settings}})
    config = replace(CONFIG, given)
    (logger,) = build_loggers(config)
    logger.open(folder, config, from_step)
    writer = MetricsWriter(folder, [logger])
    writer.row(0, EVALUATION)
    writer.timing(0, TIMING)
    writer.row(3, TRAINING)
    writer.close()


def write_all_in_a_process(folder, name, settings, **environment):
    """The same in a process of its own: some trackers have written everything only when their process ends."""
    here = Path(__file__).parent
    program = f"""
import sys; sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]
from pathlib import Path
from test_loggers import write_all
write_all(Path({str(folder)!r}), {name!r}, {settings!r})
"""
    around = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], env=around, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stderr


def test_every_metric_has_a_group():
    grouped = {"test_length": "eval/length", "epsilon": "train/epsilon", "replay_bytes": "train/replay_bytes"}
    assert {name: tag(name) for name in grouped} == grouped


def test_settings_are_flat_and_plain():
    settings = flat_settings(CONFIG)
    assert settings["learner.gamma"] == CONFIG.learner.gamma and settings["env_args.penalty"] == 0.5
    assert all(isinstance(value, bool | int | float | str) for value in settings.values())


# TensorBoard


def events(folder):
    from tensorboardX.proto import event_pb2

    for path in sorted((folder / "tensorboard").iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            yield event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length


def test_tensorboard_files_hold_every_finite_value_in_its_group(tmp_path):
    write_all(tmp_path, "tensorboard")
    values = [(event.step, value) for event in events(tmp_path) for value in event.summary.value]
    assert {(step, v.tag): v.simple_value for step, v in values if v.HasField("simple_value")} == TAGGED


def test_tensorboard_files_hold_the_hyperparameters(tmp_path):
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    write_all(tmp_path, "tensorboard")
    content = [
        HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in events(tmp_path)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]
    (started,) = [data.session_start_info for data in content if data.HasField("session_start_info")]
    assert started.hparams["learner.gamma"].number_value == CONFIG.learner.gamma
    assert started.hparams["env"].string_value == "gridworld"
    (experiment,) = [data.experiment for data in content if data.HasField("experiment")]
    assert {info.name.tag for info in experiment.metric_infos} == {"eval/win_rate", "eval/return"}


def test_a_resumed_run_hides_what_lies_beyond_its_checkpoint(tmp_path):
    write_all(tmp_path, "tensorboard", from_step=3)
    assert [event.step for event in events(tmp_path) if event.HasField("session_log")] == [3]


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loggers") / "run"
    train(tiny_config(steps=100, tensorboard=True), folder, silent())
    return folder


def test_a_finished_run_logs_a_gif_of_its_best_team(drawn_run):
    pictures = [
        (event.step, value.image)
        for event in events(drawn_run)
        for value in event.summary.value
        if value.tag == "best_team"
    ]
    ((step, picture),) = pictures
    assert picture.encoded_image_string == (drawn_run / "team.gif").read_bytes()
    with Image.open(drawn_run / "team.gif") as gif:
        assert gif.size == (picture.width, picture.height) and gif.n_frames > 1
    assert step == json.loads((drawn_run / "best" / "summary.json").read_text())["step"]


def test_loggers_change_no_row(drawn_run, tmp_path):
    train(tiny_config(steps=100), tmp_path / "run", silent())
    metrics = [folder / "metrics.jsonl" for folder in (drawn_run, tmp_path / "run")]
    assert metrics[0].read_bytes() == metrics[1].read_bytes()
    assert not (tmp_path / "run" / "team.gif").exists()


# Weights & Biases


def wandb_records(path):
    """The records of a .wandb file, which has the format of LevelDB's log: parts of records in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := -at % 32768) < 7 and left:
            at += left  # too short for a header: filled with zeros
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(record)
            record = b""


def test_weights_and_biases_keeps_an_offline_run_in_the_folder(tmp_path):
    pytest.importorskip("wandb")
    write_all_in_a_process(tmp_path, "wandb", {"project": "mine"})
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rows, run = {}, None
    for record in wandb_records(path):
        if record.HasField("run"):
            run = record.run
        items = {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
        rows |= {(items["_step"], name): value for name, value in items.items() if not name.startswith("_")}
    loss = rows.pop((3, "train/loss"))  # W&B writes NaN, too
    assert rows == TAGGED and loss != loss
    assert run is not None and run.project == "mine" and run.display_name == "gridworld, qmix, seed 0"
    settings = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert settings["learner.gamma"] == CONFIG.learner.gamma
    assert run.run_id == (tmp_path / "wandb" / "id.txt").read_text()


def test_a_resumed_run_keeps_its_name_at_weights_and_biases(tmp_path):
    pytest.importorskip("wandb")
    from emu.run.trackers import WandB

    first, other = WandB._identity(tmp_path / "a"), WandB._identity(tmp_path / "b")
    assert first == WandB._identity(tmp_path / "a") != other


# trackio


def test_trackio_keeps_a_run_on_this_machine(tmp_path):
    pytest.importorskip("trackio")
    write_all_in_a_process(tmp_path, "trackio", {"project": "mine"}, TRACKIO_DIR=str(tmp_path / "db"))
    with contextlib.closing(sqlite3.connect(tmp_path / "db" / "mine.db")) as database:
        rows = database.execute("select step, metrics from metrics").fetchall()
        ((name, settings),) = database.execute("select run_name, config from configs").fetchall()
    found = {(step, key): value for step, text in rows for key, value in json.loads(text).items()}
    found.pop((3, "train/loss"), None)  # NaN, which it writes as it likes
    assert found == TAGGED
    assert name.startswith("gridworld, qmix, seed 0") and json.loads(settings)["learner.gamma"] == CONFIG.learner.gamma


# All


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_missing_package_is_named_before_anything_is_made(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'emu-marl\[{name}\]'"):
        build_loggers(replace(CONFIG, {"tensorboard": False, "loggers": {name: {}}}))
