"""One process per run."""

import os
import subprocess
import sys

import pytest

from emu.errors import CheckpointError
from emu.run.lock import RunLock


def test_a_second_process_is_refused(tmp_path):
    lock = RunLock(tmp_path)
    code = f"from pathlib import Path; from emu.run.lock import RunLock; RunLock(Path({str(tmp_path)!r}))"
    for _ in range(2):  # the first refusal leaves the owner's number where it was
        refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert refused.returncode != 0
        assert f"in use by another process (pid {os.getpid()})" in refused.stderr
    lock.release()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_second_lock_in_the_same_process_is_refused_too(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(CheckpointError, match="in use by another process"):
        RunLock(tmp_path)
    lock.release()
    RunLock(tmp_path).release()


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os; from pathlib import Path; from emu.run.lock import RunLock; "
        f"lock = RunLock(Path({str(tmp_path)!r})); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    RunLock(tmp_path).release()


def test_a_folder_that_cannot_be_locked_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be locked"):
        RunLock(tmp_path / "file")
