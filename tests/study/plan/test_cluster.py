"""Ray on three nodes of this machine: one is lost in mid-sweep, and nobody can tell from the metrics."""

import os
import signal
import sys
import threading
import time

import pytest

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emu-marl[cluster]'")

from ray.cluster_utils import Cluster  # noqa: E402

from emu.errors import EmuError  # noqa: E402
from emu.run.metrics import read_rows  # noqa: E402
from emu.study.plan.cluster import Tasks, cluster, load_ray  # noqa: E402
from emu.study.plan.plans import Plan, grid  # noqa: E402
from emu.study.plan.sweep import local, run_plan  # noqa: E402
from toys import TINY  # noqa: E402

CHANGES = {**TINY, "steps": 3_000, "eval.interval": 200, "checkpoint.interval": 100}


@pytest.fixture
def nodes(monkeypatch):
    """A head and two more nodes, one core each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    together = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        together.add_node(num_cpus=1)
    together.wait_for_nodes()
    yield together
    ray.shutdown()
    together.shutdown()


def make_plan(name, seeds):
    settings = {key: [value] for key, value in CHANGES.items()}
    return Plan(name, name, "", grid(["gridworld/tiny"], ["qmix"], seeds, settings))


def started(folder):
    """Whether a run has saved something and is not yet through."""
    checkpoints = folder / "checkpoints"
    steps = [int(path.name) for path in checkpoints.glob("[0-9]*")] if checkpoints.exists() else []
    return bool(steps) and max(steps) < CHANGES["steps"] * 0.8


def lose_a_node(together, folders, lost):
    """Once every node is at work, kill one that is not the head, as a power cut would."""
    deadline = time.monotonic() + 300
    while sum(map(started, folders)) < 3:
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    node = together.worker_nodes and next(iter(together.worker_nodes))
    together.remove_node(node, allow_graceful=False)
    lost.append(node)


class FakeRay:
    """Two nodes, of which the second does not see the first one's files, and one that is gone."""

    def nodes(self):
        return [{"NodeID": name * 56, "NodeManagerAddress": f"{name}.net", "Alive": name != "c"} for name in "abc"]

    def remote(self, **_):
        return lambda function: FakeTask(function)

    def get(self, answer):
        return answer

    def init(self, **_):
        pass

    def shutdown(self):
        pass


class FakeTask:
    def __init__(self, function, node=""):
        self.function, self.node = function, node

    def options(self, scheduling_strategy):
        return FakeTask(self.function, scheduling_strategy.node_id)

    def remote(self, path):
        return self.function(path if self.node == "a" * 56 else "/elsewhere" + path)


def test_a_folder_that_a_node_does_not_see_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("emu.study.plan.cluster.load_ray", FakeRay)
    with pytest.raises(EmuError, match=r"is not seen by b\.net\. A study on a cluster needs a folder"):
        Tasks("auto", tmp_path, [], [])
    assert not list(tmp_path.iterdir())


def test_no_cluster_is_explained(tmp_path, monkeypatch):
    def refuse(self, **_):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(FakeRay, "init", refuse)
    monkeypatch.setattr("emu.study.plan.cluster.load_ray", FakeRay)
    with pytest.raises(EmuError, match=r"No Ray cluster was reached at 'auto'.*ray start --head"):
        Tasks("auto", tmp_path, [], [])


def test_ray_that_is_not_installed_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EmuError, match=r"pip install 'emu-marl\[cluster\]'"):
        load_ray()


@pytest.mark.slow
def test_a_node_lost_in_mid_sweep_changes_nothing(nodes, tmp_path):
    plan = make_plan("lost", range(4))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert not run_plan(plan, whole, ["emu"], local(whole, plan.runs, 1, ["emu"])).failed
    lost: list = []
    folders = [broken / run.folder for run in plan.runs]
    killer = threading.Thread(target=lose_a_node, args=(nodes, folders, lost))
    killer.start()
    outcome = run_plan(plan, broken, ["emu"], cluster(nodes.address, broken, plan.runs, ["emu"]))
    killer.join()
    assert len(lost) == 1 and outcome.finished == 4 and not outcome.failed
    for run in plan.runs:
        disturbed, undisturbed = (out / run.folder / "metrics.jsonl" for out in (broken, whole))
        assert disturbed.read_bytes() == undisturbed.read_bytes()
    lives = [(broken / run.log).read_text().count("algorithm  qmix") for run in plan.runs]
    assert sum(lives) == 5  # the run on the lost node, and no other, began a second life


@pytest.mark.slow
def test_ctrl_c_lets_the_runs_on_a_cluster_save(nodes, tmp_path):
    plan = make_plan("stopped", range(1))
    folder = tmp_path / plan.runs[0].folder

    def interrupt():
        deadline = time.monotonic() + 300
        while not started(folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=interrupt)
    killer.start()
    outcome = run_plan(plan, tmp_path, ["emu"], cluster(nodes.address, tmp_path, plan.runs, ["emu"]))
    killer.join()
    assert outcome.stopped == "SIGINT" and not outcome.failed
    log = (tmp_path / plan.runs[0].log).read_text()
    assert log.strip().endswith("stopped by SIGTERM")
    saved = max(int(path.name) for path in folder.glob("checkpoints/[0-9]*"))
    assert read_rows(folder)[-1]["step"] <= saved
