"""Resuming when something is wrong: nothing is lost, nothing is silent, nothing begins anew unless asked."""

import json
import shutil

import pytest

from emu.config import to_dict
from emu.errors import CheckpointError, ConfigError, EmuError
from emu.run.best import best_is_whole
from emu.run.checkpoint import Checkpoints
from emu.run.folder import RunFolder, read_config, read_meta
from emu.run.metrics import read_rows
from emu.run.trust import Untrusted
from emu.training import loop, reporting
from emu.training.session import Stopped, resume, train
from toys import flip_byte, silent, tiny_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session") / "run"
    train(tiny_config(steps=200), folder, silent())
    return folder


@pytest.fixture
def run(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    return folder


def edit(folder, **changes):
    """Change settings by hand, as a user does with an editor."""
    config = json.loads((folder / "config.json").read_text())
    for path, value in changes.items():
        *groups, name = path.split("__")
        node = config
        for group in groups:
            node = node[group]
        node[name] = value
    (folder / "config.json").write_text(json.dumps(config))


def content(folder):
    """Every file of a run by name, but for the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def warned():
    progress, warnings = silent(), []
    progress.warn = warnings.append
    return progress, warnings


FIXED = [
    ("agent__hidden", 16),
    ("rollout__envs", 2),
    ("env", "gridworld"),
    ("memory__use", "incentive"),
    ("seed", 7),
    ("algo", "vdn"),
    ("mixer__kind", "vdn"),
]


@pytest.mark.parametrize(("name", "value"), FIXED)
def test_a_setting_that_cannot_change_is_named_and_nothing_is_touched_twice_over(run, name, value):
    """The second attempt is the one that used to wipe the run."""
    edit(run, **{name: value})
    before = content(run)
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"other settings: {name.replace('__', '.')} .* -> "):
            resume(run, steps=300, progress=silent())
        assert content(run) == before


def test_what_may_change_is_said_and_recorded(run):
    edit(run, learner__learning_rate=1e-4, learner__gamma=0.5, checkpoint__keep=3)
    progress, warnings = warned()
    resume(run, steps=300, progress=progress)
    (entry,) = read_meta(run)["resumes"]
    assert entry["changes"] == {"learner.learning_rate": [5e-4, 1e-4], "learner.gamma": [0.9, 0.5]}
    assert entry["step"] >= 200 and entry["command"] and entry["time"]
    assert any("learner.learning_rate 0.0005 -> 0.0001" in text for text in warnings)
    resume(run, steps=400, progress=silent())
    assert [sorted(entry) for entry in read_meta(run)["resumes"]][1] == ["command", "emu", "git_commit", "step", "time"]


def test_fewer_steps_than_there_are_is_refused_before_anything_is_written(run):
    before = content(run)
    with pytest.raises(ConfigError, match="--steps 100 lies behind the run, which is at step 2"):
        resume(run, steps=100, progress=silent())
    assert content(run) == before


def test_a_run_in_another_version_of_its_environment_is_refused(run):
    meta = read_meta(run)
    (run / "meta.json").write_text(json.dumps({**meta, "env": {**meta["env"], "version": "older"}}))
    before = content(run)
    with pytest.raises(CheckpointError, match="was trained in version older"):
        resume(run, 400, silent())
    assert content(run) == before


def test_a_run_whose_checkpoints_are_all_damaged_is_never_begun_anew_by_itself(run):
    for folder in (run / "checkpoints").iterdir():
        flip_byte(folder / "state.json")
    metrics = (run / "metrics.jsonl").read_bytes()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="--restart"):
            resume(run, steps=300, progress=silent())
        assert (run / "metrics.jsonl").read_bytes() == metrics and best_is_whole(run)
        assert all(folder.name.startswith("damaged-") for folder in (run / "checkpoints").iterdir())


def test_a_run_whose_checkpoints_were_removed_is_never_begun_anew_by_itself(run):
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="a run took place there"):
        resume(run, progress=silent())
    assert (run / "metrics.jsonl").read_bytes() == before


def test_damaged_checkpoints_alone_are_reason_enough_not_to_begin_anew(run):
    """Without a row of metrics, too: what was set aside may still be rescued."""
    for folder in (run / "checkpoints").iterdir():
        flip_byte(folder / "state.json")
    (run / "metrics.jsonl").unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="--restart"):
            resume(run, progress=silent())
        assert not (run / "metrics.jsonl").exists() and best_is_whole(run)
        assert all(folder.name.startswith("damaged-") for folder in (run / "checkpoints").iterdir())


def test_restart_begins_anew_and_ends_as_a_fresh_run_does(run, finished):
    for folder in (run / "checkpoints").iterdir():
        flip_byte(folder / "state.json")
    resume(run, progress=silent(), restart=True)
    assert (run / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert not list((run / "checkpoints").glob("damaged-*"))
    resume(run, progress=silent())


def test_a_new_beginning_removes_checkpoints_and_segments_and_nothing_else(run):
    precious = [run / "checkpoints" / "thesis", run / "checkpoints" / "damaged-thesis", run / "replay" / "thesis"]
    for folder in precious:
        folder.mkdir()
        (folder / "chapter.tex").write_text("precious")
    newest = max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    newest.rename(newest.with_name(f"damaged-{newest.name}-2"))
    Checkpoints(run, 2).clear()
    assert all((folder / "chapter.tex").read_text() == "precious" for folder in precious)
    left = {path.name for name in ("checkpoints", "replay") for path in (run / name).iterdir()}
    assert left == {"thesis", "damaged-thesis"}


def test_a_run_killed_before_its_first_row_begins_anew(run):
    for name in ("checkpoints", "replay", "best"):
        shutil.rmtree(run / name)
    (run / "metrics.jsonl").unlink()
    progress, warnings = warned()
    resume(run, progress=progress)
    assert "before its first checkpoint" in warnings[0] and len(read_rows(run)) > 5


def test_there_is_a_checkpoint_before_the_first_row(tmp_path, monkeypatch):
    """So metrics without any checkpoint are always a loss, never a beginning."""
    original, seen = loop.evaluate, []

    def evaluate(self):
        seen.append((self.checkpoints.steps(), (self.folder / "metrics.jsonl").stat().st_size))
        return original(self)

    monkeypatch.setattr(loop, "evaluate", evaluate)
    train(tiny_config(steps=32), tmp_path / "run", silent())
    assert seen[0] == ([0], 0)


@pytest.mark.parametrize("damage", ["removed", "parameters", "summary"])
def test_a_lost_best_team_is_rebuilt_as_it_was(run, damage):
    before = json.loads((run / "best" / "summary.json").read_text())
    parameters = (run / "best" / before["file"]).read_bytes()
    if damage == "removed":
        shutil.rmtree(run / "best")
    else:
        flip_byte(run / "best" / (before["file"] if damage == "parameters" else "summary.json"), 0.9)
    assert not best_is_whole(run)
    progress, warnings = warned()
    resume(run, progress=progress)
    assert any("rebuilt from the checkpoint" in text for text in warnings)
    after = json.loads((run / "best" / "summary.json").read_text())
    assert (run / "best" / after.pop("file")).read_bytes() == parameters
    before.pop("file")
    assert after == before and read_meta(run)["resumes"][0]["rebuilt_best"] is True


def test_lost_episodes_are_said_and_recorded_and_the_run_goes_on(run):
    first = min((run / "replay").glob("*.npz"))
    first.write_bytes(first.read_bytes()[:100])
    progress, warnings = warned()
    resume(run, steps=300, progress=progress)
    assert any("WITHOUT" in text for text in warnings)
    assert read_meta(run)["resumes"][0]["lost_episodes"] > 0
    assert read_rows(run)[-1]["step"] >= 300


def test_a_damaged_row_is_said_on_resume_and_the_run_goes_on(run):
    flip_byte(run / "metrics.jsonl", 0.3)
    progress, warnings = warned()
    resume(run, steps=300, progress=progress)
    assert any("metrics.jsonl: line" in text for text in warnings)


def test_checkpoints_by_time_change_no_number(finished, tmp_path, monkeypatch):
    """Minutes of a clock that runs a thousand times too fast."""
    monkeypatch.setattr("emu.training.clock.Clock.minutes_unsaved", property(lambda self: 6.0))
    saved = []
    original = reporting.checkpoint_due
    monkeypatch.setattr(reporting, "checkpoint_due", lambda self: saved.append(original(self)) or saved[-1])
    train(tiny_config(steps=200), tmp_path / "run", silent())
    assert len(saved) > 5 and all(saved)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    saved.clear()
    train(tiny_config(steps=200, **{"checkpoint.minutes": 0}), tmp_path / "never", silent())
    assert not all(saved)


def test_every_checkpoint_begins_the_minutes_anew(tmp_path, monkeypatch):
    """Else there would be one after every chunk, once the first minutes were over."""
    original, saved, begun = Checkpoints.save, [], []

    def save(self, step, *rest):
        saved.append(step)
        return original(self, step, *rest)

    monkeypatch.setattr(Checkpoints, "save", save)
    monkeypatch.setattr("emu.training.clock.Clock.saved", lambda self: begun.append(saved[-1]))
    train(tiny_config(steps=200), tmp_path / "run", silent())
    assert begun == saved and len(saved) > 1


NAMES = ["a[b]c", "with space", "ünïcödé-日本", 'it\'s "quoted"', "*? [/bold]", "x" * 240]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_run_goes_on_whatever_its_folder_is_called(finished, tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(finished, folder)
    resume(folder, steps=240, progress=silent())
    assert read_rows(folder)[-1]["step"] >= 240 and not list((folder / "checkpoints").glob("damaged*"))


@pytest.mark.parametrize("name", ["x" * 300, "y/" * 3000])
def test_a_name_too_long_for_the_disk_is_explained(tmp_path, name):
    with pytest.raises(EmuError, match="is too long for a file system"):
        train(tiny_config(), tmp_path / name, silent())


# What a folder may name


PAYLOADS = [
    {"env": "os:system", "env_args": {"command": "touch executed"}},
    {"env": "pymarl:os:system"},
    {"env": "pettingzoo:antigravity"},
    {"env": "gymnasium:this:Env-v0"},
    {"env": "gymnasium:GymV21Environment-v0", "env_args": {"env_id": "os:system"}},
    {"rollout": {"where": "ray", "workers": 1, "cluster": "ray://evil.example:10001"}},
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: str(next(iter(payload.values()))))
def test_a_foreign_folder_asks_for_trust_before_anything_is_built(run, payload, monkeypatch):
    from emu.run.team import load_team
    from emu.training.snapshots import snapshot_of

    config = json.loads((run / "config.json").read_text())
    for name, value in payload.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(run)
    monkeypatch.setattr("emu.envs.make", lambda *_, **__: pytest.fail("an environment was built"))
    for build in (lambda: resume(run, progress=silent()), lambda: load_team(run)):
        with pytest.raises(Untrusted, match="If you trust this folder, say --trust"):
            build()
    with pytest.raises(Untrusted, match="which this command never does"):  # reports have no such option
        snapshot_of(run)
    assert not (run / "executed").exists()


def test_a_trusted_folder_is_resumed(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from emu.envs.gridworld import GridWorld\n\n\nclass Mine(GridWorld):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    args = {"rows": 5, "columns": 6, "limit": 12, "penalty": 0.5}
    train(tiny_config(env="mine:Mine", env_args=args, steps=32), tmp_path / "run", silent())
    with pytest.raises(Untrusted, match="env 'mine:Mine'"):
        resume(tmp_path / "run", steps=64, progress=silent())
    resume(tmp_path / "run", steps=64, progress=silent(), trust=True)
    assert read_config(tmp_path / "run").steps == 64


def test_stopped_by_a_closed_pipe_it_has_saved(finished, tmp_path):
    """Nobody reads the progress any more: the run saves as on SIGTERM, and goes on as if nothing had been."""

    class Closed:
        """A pipe whose reader went away after some lines."""

        lines = 0

        def write(self, text):
            self.lines += text.count("\n")
            if self.lines > 6:
                raise BrokenPipeError(32, "Broken pipe")
            return len(text)

        def flush(self):
            pass

    from rich.console import Console

    from emu.training.progress import Progress

    with pytest.raises(Stopped, match="SIGPIPE"):
        train(tiny_config(steps=200), tmp_path / "run", Progress(Console(file=Closed(), width=200)))
    assert RunFolder(tmp_path / "run").checkpoint_steps()[-1] >= read_rows(tmp_path / "run")[-1]["step"] > 0
    resume(tmp_path / "run", progress=silent())
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert to_dict(read_config(tmp_path / "run")) == to_dict(read_config(finished))
