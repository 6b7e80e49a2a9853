"""The loop: the same numbers for the same seed, one update per episode, one compilation, an end that is explained,
and going on after a crash as if nothing had happened."""

import json
import shutil

import jax
import numpy as np
import pytest

from emu.errors import CheckpointError, EmuError, EnvError
from emu.run.folder import read_config, run_folder
from emu.run.metrics import last_evaluation, read_rows
from emu.training import loop
from emu.training.loop import Trainer
from emu.training.session import Stopped, resume, train
from toys import flip_byte, silent, tiny_config


def metrics_of(folder):
    return (folder / "metrics.jsonl").read_bytes()


def counters_of(folder):
    newest = max((folder / "checkpoints").iterdir())
    return json.loads((newest / "state.json").read_text())["counters"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run to its end; tests only read it, or work on a copy."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(tiny_config(), folder, silent())
    return folder


def test_the_same_seed_gives_the_same_metrics_byte_for_byte(finished, tmp_path):
    train(tiny_config(), tmp_path / "again", silent())
    assert metrics_of(tmp_path / "again") == metrics_of(finished)


def test_another_seed_gives_other_metrics(finished, tmp_path):
    train(tiny_config(seed=1), tmp_path / "other", silent())
    assert metrics_of(tmp_path / "other") != metrics_of(finished)


def test_a_run_tests_logs_and_saves_on_time(finished):
    rows = read_rows(finished)
    tests = [row["step"] for row in rows if "test_return" in row]
    logs = [row["step"] for row in rows if "loss" in row or "epsilon" in row]
    assert tests[0] == 0 and len(tests) == 5  # 0, 100, 200, 300, 400; a chunk is 32 steps
    assert all(step - 100 * number <= 32 for number, step in enumerate(tests))
    assert len(logs) == 8 and all(step - 50 * (number + 1) <= 32 for number, step in enumerate(logs))
    assert all(np.isfinite(value) for row in rows for value in row.values())
    assert last_evaluation(finished)["test_win_rate"] == rows[-1]["test_win_rate"]


def test_exploration_falls_on_schedule(finished):
    logged = {row["step"]: row["epsilon"] for row in read_rows(finished) if "epsilon" in row}
    assert len(logged) == 8 and min(logged) < 200 < max(logged)
    assert len(set(logged.values())) > 3 and min(logged.values()) == pytest.approx(0.05)
    for step, epsilon in logged.items():
        assert epsilon == pytest.approx(1 - 0.95 * min(1, step / 200))


@pytest.mark.parametrize(("per_episode", "per_call"), [(1, 1), (2, 3)])
def test_every_collected_episode_earns_its_updates(tmp_path, per_episode, per_call):
    config = tiny_config(**{"learner.updates_per_episode": per_episode, "learner.updates_per_call": per_call})
    train(config, tmp_path / "run", silent())
    counters = counters_of(tmp_path / "run")
    before_the_first_batch = counters["episodes"] - (counters["updates"] + counters["owed"]) / per_episode
    assert 0 <= before_the_first_batch < config.learner.batch_size
    assert counters["updates"] > 20 and 0 <= counters["owed"] < per_call


def test_nothing_is_compiled_twice(tmp_path):
    trainer = Trainer(tiny_config(**{"learner.length_buckets": 2, "steps": 600}), tmp_path, silent())
    trainer.run()
    assert 1 <= trainer.learner.update._cache_size() <= len(trainer.replay.lengths) == 2
    assert trainer.rollout._run._cache_size() == 1
    assert trainer.evaluator._run._cache_size() == 1


def test_one_device_is_enough(finished, tmp_path):
    """And it is really one: neither the learner nor the rollout touches the other."""
    trainers = [Trainer(tiny_config(devices=count), tmp_path / str(count), silent()) for count in (1, 2)]
    for part in ("state", "rollout_state"):
        leaves = [jax.tree.leaves(getattr(trainer, part)) for trainer in trainers]
        assert [len({device.id for leaf in some for device in leaf.devices()}) for some in leaves] == [1, 2], part
    train(tiny_config(devices=1), tmp_path / "run", silent())
    one, two = (read_rows(folder) for folder in (tmp_path / "run", finished))
    assert [list(row) for row in one] == [list(row) for row in two], "the same rows, whatever their values"


def test_more_devices_than_there_are_is_refused(tmp_path):
    with pytest.raises(EmuError, match=r"64 devices were asked for, but JAX sees 2"):
        train(tiny_config(devices=64), tmp_path / "run", silent())
    assert not (tmp_path / "run").exists()


def test_a_run_folder_says_where_it_came_from(finished):
    meta = json.loads((finished / "meta.json").read_text())
    assert meta["env"] == {"name": "gridworld", "version": "1", "has_goal": True}
    assert {"emu", "git_commit", "python", "packages", "devices", "command"} <= set(meta)
    assert read_config(finished) == tiny_config()


def test_a_used_folder_is_refused(finished):
    with pytest.raises(EmuError, match=r"already exists. Go on with it \(`emu resume"):
        train(tiny_config(), finished, silent())


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(EmuError, match="already exists"):
        train(tiny_config(), tmp_path, silent())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_before_its_first_step_can_be_started_again(tmp_path):
    for name in ("checkpoints", "replay"):
        (tmp_path / name).mkdir()
    for name in (".lock", "meta.json", ".config.json.part"):
        (tmp_path / name).touch()
    train(tiny_config(steps=32), tmp_path, silent())
    assert read_rows(tmp_path)


def test_a_bad_environment_leaves_nothing_behind(tmp_path):
    with pytest.raises(EnvError, match="Did you mean"):
        train(tiny_config(env_args={"penalti": 1}), tmp_path / "run", silent())
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EmuError, match=r"cannot be made.*--run-dir"):
        train(tiny_config(), tmp_path / "file" / "run", silent())


def test_numbers_that_are_no_longer_numbers_stop_the_run(tmp_path):
    with pytest.raises(EmuError, match=r"Training diverged at step \d+: .*loss.* is not finite.*learning_rate"):
        train(tiny_config("vdn", **{"learner.learning_rate": 1e30}), tmp_path / "run", silent())


def test_default_folder_has_no_strange_characters():
    assert str(run_folder(tiny_config(env="gridworld/tiny", seed=3))) == "runs/gridworld-tiny/qmix-seed3"


# Going on


class Crash(BaseException):
    """What kill -9 looks like from inside: nothing below gets to react."""


def crash_after(monkeypatch, chunks):
    """Let training die after so many chunks, at another moment within the chunk each time."""
    left = [chunks]
    name = ("collect", "learn", "report")[chunks % 3]
    where = loop if name == "report" else Trainer
    original = getattr(where, name)

    def dying(self, *args):
        left[0] -= 1
        result = original(self, *args)
        if left[0] == 0:
            raise Crash
        return result

    monkeypatch.setattr(where, name, dying)


ALGORITHMS = ["qmix", "emu_qmix", "mappo"]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_crashed_and_resumed_again_and_again_it_writes_what_it_would_have_written(tmp_path, monkeypatch, algo):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(tiny_config(algo), whole, silent())
    start = lambda: train(tiny_config(algo), broken, silent())  # noqa: E731
    crashes = 0
    for chunks in (3, 7, 6, 8, 11):
        with monkeypatch.context() as patch:
            crash_after(patch, chunks)
            try:
                start()
            except Crash:
                crashes += 1
        start = lambda: resume(broken, progress=silent())  # noqa: E731
    start()
    assert crashes >= 4
    assert metrics_of(broken) == metrics_of(whole)
    assert counters_of(broken) == counters_of(whole)


def test_asked_to_stop_it_saves_and_goes_on(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    original = Trainer.learn

    def learn(self):
        original(self)
        if self.counters.step > 170:
            self.stop_signal = "SIGTERM"

    with monkeypatch.context() as patch, pytest.raises(Stopped, match="SIGTERM"):
        patch.setattr(Trainer, "learn", learn)
        train(tiny_config(), folder, silent())
    assert 170 < counters_of(folder)["step"] < 240
    resume(folder, progress=silent())
    assert metrics_of(folder) == metrics_of(finished)


def test_a_damaged_latest_checkpoint_falls_back_and_ends_the_same(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    newest = max((folder / "checkpoints").iterdir())
    flip_byte(newest / "rollout.npz")
    warnings = []
    progress = silent()
    progress.warn = warnings.append
    resume(folder, progress=progress)
    assert any("Falling back" in warning for warning in warnings)
    assert metrics_of(folder) == metrics_of(finished)


def test_a_finished_run_says_so_and_can_be_made_longer(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    warnings = []
    progress = silent()
    progress.warn = warnings.append
    assert resume(folder, progress=progress) == last_evaluation(finished)
    assert "is complete" in warnings[0]
    resume(folder, steps=500, progress=silent())
    assert metrics_of(folder).startswith(metrics_of(finished)) and counters_of(folder)["step"] >= 500
    assert read_config(folder).steps == 500


def test_metrics_that_were_cut_are_refused(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(EmuError, match="shorter than its checkpoint says"):
        resume(folder, steps=500, progress=silent())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be used"),
        ("[]", "JSON object"),
        ('{"sede": 1}', "Did you mean 'seed'"),
        ("\0\0", "cannot be used"),
    ],
)
def test_a_broken_config_is_explained(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(EmuError, match=message):
        resume(tmp_path, progress=silent())


def test_something_that_is_no_run_cannot_be_resumed(tmp_path):
    with pytest.raises(EmuError, match="is not a run folder"):
        resume(tmp_path, progress=silent())


def test_a_run_in_use_is_refused(finished, tmp_path):
    from emu.run.lock import RunLock

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    lock = RunLock(folder)
    with pytest.raises(CheckpointError, match="in use by another process"):
        resume(folder, steps=9_999, progress=silent())
    lock.release()
    assert read_config(folder).steps == 400
