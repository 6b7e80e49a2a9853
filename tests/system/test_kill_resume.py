"""kill -9 at random moments, resume, and again: the metrics must equal those of a run that nobody disturbed."""

import random
import signal
import time

import pytest

from emu.run.best import best_is_whole

from .processes import emu, start, tiny_train

SETTINGS = {"steps": 3_000, "log_interval": 40, "eval.interval": 200, "checkpoint.interval": 90}


def life(folder, words, rng, environment):
    """One process, killed at a random moment. True if it was; false if it came to its end before."""
    process = start(*(["resume", folder] if (folder / "config.json").exists() else words), **environment)
    if rng.random() < 0.75:  # most deaths while it trains, tests and saves; the others while it starts or restores
        wait_for_life(folder, process)
        time.sleep(rng.uniform(0.0, 1.0))
    else:
        time.sleep(rng.uniform(0.2, 8.0))
    killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    _, stderr = process.communicate()
    assert killed or process.returncode == 0, stderr
    return killed


def wait_for_life(folder, process):
    """Until the process writes metrics."""
    path = folder / "metrics.jsonl"
    before = path.stat().st_mtime_ns if path.exists() else 0
    while process.poll() is None and not (path.exists() and path.stat().st_mtime_ns > before):
        time.sleep(0.02)


def survive(tmp_path, algo, kills, seed):
    """Kill runs until there were so many kills; every run that came to its end must equal the undisturbed one."""
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    cache = {"JAX_COMPILATION_CACHE_DIR": tmp_path / "jax"}  # a cache of its own, which a killed writer may leave torn
    done = emu(*tiny_train(whole, algo, **SETTINGS), **cache)
    assert done.returncode == 0, done.stderr
    expected, count, number = (whole / "metrics.jsonl").read_bytes(), 0, 0
    while count < kills:
        folder = tmp_path / f"broken-{number}"
        words, number = tiny_train(folder, algo, **SETTINGS), number + 1
        while count < kills and life(folder, words, rng, cache):
            count += 1
            assert best_is_whole(folder) or not (folder / "best" / "summary.json").exists()
        if not (folder / "config.json").exists():  # killed before it was a run
            continue
        done = emu("resume", folder, **cache)
        assert done.returncode == 0, done.stderr
        assert (folder / "metrics.jsonl").read_bytes() == expected
    return count, number


def test_three_kills(tmp_path):
    survive(tmp_path, "qmix", kills=3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "seed"), [("qmix", 2), ("qmix", 3), ("emu_qmix", 4), ("mappo", 5)])
def test_twenty_kills(tmp_path, algo, seed):
    count, runs = survive(tmp_path, algo, kills=20, seed=seed)
    print(f"{algo}, seed {seed}: {count} kills over {runs} runs, every one with the metrics of an undisturbed run")
