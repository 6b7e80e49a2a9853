"""The process of one run, `python -m emu.study.plan.run_one`: started by a sweep here or by a task of a cluster.

Its first line of input is the job as JSON. The input then stays open for as long as whoever started it lives; when it
ends, so does this process, at once: no run goes on that nobody watches. What was saved is resumed by the next sweep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import CheckpointError, EmuError

PATIENCE = 120.0  # seconds to wait for a dying process, perhaps on a lost node, to let go of the run's folder
ORPHANED = 112  # exit status when whoever started this process is gone


class Job(NamedTuple):
    """All that a run's process needs to know."""

    folder: str
    config: dict[str, Any]
    cores: list[int]  # to keep to; none: all
    command: list[str]  # what the user typed, for meta.json


def start(job: Job, log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a run's process. It has a session of its own, so that Ctrl-C reaches only the sweep, which then decides."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "emu.study.plan.run_one"],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(job._asdict()).encode() + b"\n")
    process.stdin.flush()
    return process


def read_line(source: int) -> bytes:
    """One line, and not a byte more: without buffers, whose locks a thread that waits would hold to the end."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(source, 1)):
        line += byte
    return line


def end_with_input(source: int) -> None:
    """End this process when its input does."""

    def watch() -> None:
        while os.read(source, 1):
            pass
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()


def keep_to(cores: list[int]) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def wait_for_folder(folder: Path, patience: float = PATIENCE) -> None:
    """Wait until no other process trains in a folder."""
    from emu.run.lock import RunLock

    until = time.monotonic() + patience
    while folder.exists():
        try:
            RunLock(folder).release()
            return
        except CheckpointError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def run(job: Job) -> int:
    """Train, or go on with what is there. Returns the exit status."""
    from emu.config import from_dict
    from emu.run.folder import is_run, read_config
    from emu.training.progress import Progress
    from emu.training.session import Stopped, resume, train

    folder = Path(job.folder)
    try:
        wait_for_folder(folder)
        if is_run(folder):
            resume(folder, progress=Progress(), trust=read_config(folder) == from_dict(job.config))
        else:
            train(from_dict(job.config), folder, Progress())
    except Stopped as stopped:
        print(f"stopped by {stopped}", file=sys.stderr)
        return 143
    except EmuError as error:
        print(f"error {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    line = read_line(sys.stdin.fileno())
    if not line.endswith(b"\n"):
        return ORPHANED
    job = Job(**json.loads(line))
    end_with_input(sys.stdin.fileno())
    keep_to(job.cores)
    sys.argv = job.command
    return run(job)


if __name__ == "__main__":
    sys.exit(main())
