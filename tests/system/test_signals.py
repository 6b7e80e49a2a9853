"""What ends a run from outside, and what it leaves: signals, a closed pipe, an impatient user."""

import os
import signal
import subprocess
import time

import pytest

from emu.run.folder import RunFolder

from .processes import ENVIRONMENT, command, emu, start, tiny_train

ENDLESS = {"steps": 1_000_000, "replay.episodes": 32, "checkpoint.interval": 10**9, "log_interval": 20}


def wait_for_rows(folder, count, process):
    path = RunFolder(folder).metrics
    for _ in range(2400):
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the run wrote nothing")


def saved_step(folder):
    return RunFolder(folder).checkpoint_steps()[-1]


@pytest.fixture
def training(tmp_path):
    """A run under way that would take hours."""
    folder = tmp_path / "it's a [run]"
    process = start(*tiny_train(folder, "vdn", "matrix/coordination", **ENDLESS))
    wait_for_rows(folder, 6, process)
    yield folder, process
    process.kill()
    process.communicate()


def test_a_closed_terminal_saves_as_sigterm_does(training):
    folder, process = training
    process.send_signal(signal.SIGHUP)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 129, stderr
    assert "SIGHUP: saving, then stopping." in stderr and saved_step(folder) > 0
    assert "emu resume '" in stdout, "a name that a shell would take apart is quoted"


def test_a_closed_pipe_saves_too(training):
    """`emu train 2>&1 | head`: nobody reads the progress any more."""
    folder, process = training
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert saved_step(folder) > 0


def test_the_signal_of_a_closed_pipe_alone_means_nothing(training):
    """It also comes when a worker process dies, which must not end a run."""
    folder, process = training
    process.send_signal(signal.SIGPIPE)
    rows = RunFolder(folder).metrics.read_bytes().count(b"\n")
    wait_for_rows(folder, rows + 5, process)
    assert process.poll() is None


def test_a_run_that_was_told_to_outlive_its_terminal_does(tmp_path):
    folder = tmp_path / "run"
    words = command(*tiny_train(folder, "vdn", "matrix/coordination", **ENDLESS))
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(["nohup", *words], env=ENVIRONMENT, **pipes)
    try:
        wait_for_rows(folder, 6, process)
        process.send_signal(signal.SIGHUP)
        wait_for_rows(folder, RunFolder(folder).metrics.read_bytes().count(b"\n") + 5, process)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


SLOW_SAVE = """
import sys, time
import emu.training.loop as loop
real = loop.save
def slow(trainer):
    if trainer.stop_signal:
        print("SAVING", flush=True)
        time.sleep(600)
    real(trainer)
loop.save = slow
from emu.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_second_ctrl_c_does_not_wait_for_the_save(tmp_path):
    folder = tmp_path / "run"
    words = command(*tiny_train(folder, "vdn", "matrix/coordination", **ENDLESS))
    words[1:3] = ["-c", SLOW_SAVE]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, **pipes, text=True, env=ENVIRONMENT)
    try:
        wait_for_rows(folder, 6, process)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "SAVING\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 130 and "Ctrl-C again: at once" in stderr and "Traceback" not in stderr
    finally:
        process.kill()
        process.wait()
    done = emu("resume", folder, "--steps", 64)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_names_code_from_outside_asks_for_trust(tmp_path):
    """The command line as a whole: every command that looks at a run, and the payload is never executed."""
    folder = tmp_path / "run"
    done = emu(*tiny_train(folder, "vdn", "matrix/coordination", steps=64))
    assert done.returncode == 0, done.stderr
    config = RunFolder(folder).config
    proof = tmp_path / "executed"
    text = config.read_text().replace('"env": "matrix/coordination"', '"env": "os:system"')
    config.write_text(text.replace('"env_args": {}', f'"env_args": {{"command": "touch {proof}"}}'))
    out = tmp_path / "out"
    for words in (["resume"], ["evaluate"], ["render"], ["absolute"]):
        done = emu(*words, folder)
        assert done.returncode == 2 and "--trust" in done.stderr and "Traceback" not in done.stderr, done.stderr
    for words in (["report", folder, "--out", f"{out}.html"], ["table", folder], ["export", folder, f"{out}.json"]):
        done = emu(*words)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert not os.path.exists(proof)
