"""What may be wrong around a run: folders that cannot be written, a terminal that shows ASCII only, a folder that goes
away while it trains, a current folder that is gone."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

from emu.errors import EmuError
from emu.training.callbacks import Callback, Callbacks
from emu.training.session import train
from study.synthetic import write_run
from toys import silent, tiny_config

from .common import accepting_nothing, command, require_refused

NOBODY = 65534


@contextlib.contextmanager
def as_anybody():
    """Permissions mean nothing to root: for a moment, be somebody else."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


@pytest.fixture
def closed(tmp_path):
    """A folder of runs in which nobody may write."""
    write_run(tmp_path / "runs" / "run", "emu_qmix")
    for words in (["table", tmp_path / "runs"], ["report", tmp_path / "runs", "--out", tmp_path / "x.html"]):
        assert command(*words).status == 0  # what is imported late is imported now: another user may not read it
    assert command("plot", tmp_path / "runs", "--out", tmp_path / "x.png").status == 0
    for path in [tmp_path, *tmp_path.parents]:  # another user must be able to come here
        if path.owner() != "root" or path == tmp_path.parents[-2]:
            continue
        path.chmod(path.stat().st_mode | 0o055)
    for path in [tmp_path / "runs", *(tmp_path / "runs").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield tmp_path / "runs"
    for path in [tmp_path / "runs", *(tmp_path / "runs").rglob("*")]:
        path.chmod(0o755)


WRITES = {
    "train": ["train", "--run-dir", "{}/new"],
    "train in the folder itself": ["train", "--run-dir", "{}"],
    "table": ["table", "{}", "--out", "{}/tables"],
    "plot": ["plot", "{}", "--out", "{}/x.png"],
    "export": ["export", "{}", "{}/x.json"],
    "report": ["report", "{}"],
    "sweep": ["sweep", "--algos", "qmix", "--envs", "gridworld", "--out", "{}/sweep"],
    "resume": ["resume", "{}/run"],
}


@pytest.mark.parametrize("what", WRITES)
def test_a_folder_that_cannot_be_written_is_named(closed, monkeypatch, what):
    accepting_nothing(monkeypatch)
    words = [word.format(closed) for word in WRITES[what]]
    with as_anybody():
        answer = command(*words)
    require_refused(answer, str(closed))


def test_a_folder_that_cannot_be_written_can_be_looked_at(closed):
    with as_anybody():
        assert command("table", closed).status == 0


ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(
    "words", [["algos"], ["envs", "gridworld"], ["train", "--env", "日本"], ["table", "δ"], ["--help"]]
)
def test_a_terminal_that_shows_ascii_only_is_no_reason_to_fail(words):
    done = subprocess.run(
        [sys.executable, "-m", "emu", *words], capture_output=True, env={**os.environ, **ASCII}, timeout=300
    )
    assert b"Traceback" not in done.stderr and done.returncode in (0, 2), done
    assert (done.stdout + done.stderr).isascii()


def test_tables_and_reports_are_written_in_utf8_whatever_the_locale(tmp_path):
    run = write_run(tmp_path / "é δ")
    script = "import sys; from emu.cli.app import main; sys.exit(main(sys.argv[1:]))"
    for words in (["table", run, "--out", tmp_path / "t"], ["report", run, "--out", tmp_path / "x.html"]):
        command_line = [sys.executable, "-c", script, *map(str, words)]
        done = subprocess.run(command_line, capture_output=True, env={**os.environ, **ASCII}, timeout=300)
        assert done.returncode == 0, done.stderr
    assert "QMIX" in (tmp_path / "t" / "summary.md").read_text("utf-8")
    assert "·" in (tmp_path / "x.html").read_text("utf-8")


class Remover(Callback):
    """Removes the run's folder, or a part of it, when training has begun."""

    def __init__(self, path):
        self.path = path

    def on_chunk(self, step, metrics):
        if step > 60:
            shutil.rmtree(self.path, ignore_errors=True)


@pytest.mark.parametrize("part", ["", "checkpoints", "replay", "best"])
def test_a_folder_that_goes_away_while_it_trains_is_named(tmp_path, part):
    folder = tmp_path / "run"
    config = tiny_config(steps=400, **{"checkpoint.interval": 50, "eval.interval": 50})
    try:
        train(config, folder, silent(), Callbacks([Remover(folder / part)]))
    except EmuError as error:
        assert str(folder) in str(error)
    else:
        assert part == "best", "only the best team can be made anew"


def test_a_current_folder_that_is_gone_is_no_reason_to_fail(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    require_refused(command("train", "--env", "nothing_here:Env", "--run-dir", tmp_path / "run"), "nothing_here")
    require_refused(command("table", "nothing"), "nothing")
