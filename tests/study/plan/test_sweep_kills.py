"""A real sweep that is interrupted in every way, and ends with the metrics of runs that nobody disturbed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emu.study.plan.plans import grid
from emu.training.session import train
from toys import TINY, silent

CHANGES = {**TINY, "steps": 3_000, "eval.interval": 200, "checkpoint.interval": 100}


def start(out, tmp_path):
    """`emu sweep` as a user starts it, two seeds, one after the other."""
    settings = [f"{key}={str(value).lower()}" for key, value in CHANGES.items()]
    words = ["--algos", "qmix", "--envs", "gridworld/tiny", "--seeds", "0-1", "--workers", "1", "--set", *settings]
    return subprocess.Popen(
        [sys.executable, "-m", "emu", "sweep", *words, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=300.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def next_worker(folder, after=0):
    """The process that trains in a folder, once it has written a checkpoint of its own; not the process `after`."""
    saved = {path.name for path in folder.glob("checkpoints/[0-9]*")}

    def owner():
        lock = folder / ".lock"
        text = lock.read_text().strip() if lock.exists() else ""
        return int(text) if text else 0

    wait_until(lambda: owner() not in (0, after) and alive(owner()))
    wait_until(lambda: {path.name for path in folder.glob("checkpoints/[0-9]*")} - saved)
    return owner()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="asks /proc which processes live")
def test_a_sweep_survives_the_loss_of_a_worker_of_itself_and_ctrl_c(tmp_path):
    out = tmp_path / "sweep"
    first, second = (out / run.folder for run in grid(["gridworld/tiny"], ["qmix"], [0, 1], {}))

    sweep = start(out, tmp_path)
    worker = next_worker(first)
    os.kill(worker, signal.SIGKILL)  # the sweep starts it again by itself
    worker = next_worker(first, after=worker)
    sweep.kill()  # nobody is left to look after the run: it ends as well
    sweep.wait()
    wait_until(lambda: not alive(worker), 30.0)
    assert not (second / "config.json").exists()

    sweep = start(out, tmp_path)
    worker = next_worker(first, after=worker)
    sweep.send_signal(signal.SIGINT)
    text, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 130 and "The same command goes on with it: emu sweep" in text
    assert not alive(worker)

    sweep = start(out, tmp_path)
    text, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0 and "2 runs finished, 0 were finished before, 0 failed" in text
    for seed, folder in enumerate((first, second)):
        settings = {key: [value] for key, value in CHANGES.items()}
        config = grid(["gridworld/tiny"], ["qmix"], [seed], settings)[0].config()
        train(config, tmp_path / f"whole{seed}", silent())
        assert (folder / "metrics.jsonl").read_bytes() == (tmp_path / f"whole{seed}" / "metrics.jsonl").read_bytes()
