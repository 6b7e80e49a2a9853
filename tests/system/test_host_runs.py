"""Whole runs on Python environments: trained, tested, stopped, resumed and killed, as a user would.

Nearly all of the time goes into compiling and starting Python. So the runs share one game, one algorithm and one number
of devices, and with them the compiled programs; the others use the smallest learner there is.
"""

import importlib.util
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from emu.cli.app import main
from emu.run.metrics import read_rows
from emu.training.session import resume, train
from processes_alive import all_gone
from system.processes import start, tiny_train
from toys import silent, tiny_config

GAME, ALGO = "pymarl:host_envs:TwoPaths", "emu_vdn"  # the memory's snapshots walk through the workers too
needs_zoo = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="mpe2 is not installed")
needs_gym = pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="gymnasium is not installed")
HERE = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))}


def run(folder, env=GAME, algo=ALGO, **changes):
    config = tiny_config(algo, env, **{"steps": 200, "eval.interval": 200, "rollout.workers": 2, **changes})
    train(config, folder, silent())
    return read_rows(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host") / "run"
    run(folder)
    return folder


def test_the_same_command_twice_gives_the_same_metrics(finished, tmp_path):
    run(tmp_path / "again")
    assert (finished / "metrics.jsonl").read_bytes() == (tmp_path / "again" / "metrics.jsonl").read_bytes()
    assert list((finished / "snapshots").glob("*.npz"))


def test_a_resumed_run_goes_on_with_new_episodes(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    before = read_rows(tmp_path / "run")
    resume(tmp_path / "run", steps=400, progress=silent(), trust=True)
    rows = read_rows(tmp_path / "run")
    assert rows[: len(before)] == before and rows[-1]["step"] >= 400
    episodes = [row["episodes"] for row in rows if "episodes" in row]
    assert episodes == sorted(episodes)


def test_a_worker_that_dies_is_counted_and_the_run_goes_on(tmp_path):
    (tmp_path / "marks").mkdir()
    rows = run(tmp_path / "run", "pymarl:host_envs:DeadlyPaths", env_args={"folder": str(tmp_path / "marks"), "at": 15})
    last = [row for row in rows if "worker_failures" in row][-1]
    assert last["worker_failures"] == 1 and last["dropped_episodes"] <= 2
    assert rows[-1]["step"] >= 200


@needs_zoo
def test_a_team_trains_on_a_pettingzoo_environment(tmp_path):
    rows = run(tmp_path / "run", "pettingzoo:mpe2.simple_spread_v3", "vdn", env_args={"max_cycles": 25})
    logged = [row for row in rows if "td_loss" in row]
    assert logged and logged[-1]["train_length"] == 25 and logged[-1]["worker_failures"] == 0


@needs_gym
def test_an_agent_trains_on_cartpole(tmp_path):
    rows = run(tmp_path / "run", "gymnasium:CartPole-v1", "vdn", **{"mixer.kind": "none"})
    assert any("td_loss" in row for row in rows)
    assert rows[-1]["test_return"] == rows[-1]["test_length"] > 1  # one point a step


def children(pid):
    """Worker processes of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)],  # test_pool kills supervisors, too
    ids=lambda n: n.name,
)
def test_a_stopped_run_leaves_no_worker(tmp_path, number, capsys):
    words = tiny_train(tmp_path / "run", ALGO, GAME, **{"steps": 10**6, "rollout.workers": 2, "devices": 2})
    process = start(*words, **HERE)
    deadline = time.monotonic() + 600  # a busy machine compiles slowly
    while not _tested(tmp_path / "run") and time.monotonic() < deadline:
        time.sleep(0.1)
    workers = children(process.pid)
    assert len(workers) == 2, process.poll()
    os.kill(process.pid, number)
    process.communicate(timeout=600)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert all_gone(workers)
    if number == signal.SIGINT:
        assert main(["evaluate", str(tmp_path / "run"), "--episodes", "5", "--json", "--trust"]) == 0
        assert json.loads(capsys.readouterr().out)["episodes"] == 5


def _tested(folder):
    path = folder / "metrics.jsonl"
    return path.exists() and path.read_text().count("train_return") >= 1
