"""Workers on Ray's nodes: the same episodes as workers here; a lost actor is a worker that died."""

import os
import signal
import sys

import jax
import numpy as np
import pytest

from emu import envs
from emu.config import Config, RolloutConfig, replace
from emu.devices import Devices
from emu.envs.workers import ray as ray_backend
from emu.envs.workers.pool import Pool
from emu.envs.workers.shared_arrays import STEP
from emu.errors import ConfigError, EmuError, EnvError
from emu.play.worker_groups import Workers
from emu.play.workers import WorkerRollout
from processes_alive import alive, all_gone
from toys import CountingLearner, same_episode


class FakeRay:
    """Actors that are objects in this process, and do what they are told when they are told."""

    class exceptions:
        class RayError(Exception):
            pass

        class GetTimeoutError(RayError):
            pass

    def remote(self, **_):
        return FakeClass

    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, answers, timeout):
        pass

    def kill(self, actor):
        actor.thing.worker.kill()


class FakeClass:
    """Stands for the class (`remote` makes an actor) and for the actor (its methods have a `remote`)."""

    def __init__(self, kind, thing=None):
        self.kind, self.thing = kind, thing

    def remote(self, *args):
        return FakeClass(self.kind, self.kind(*args))

    def __getattr__(self, name):
        method = getattr(self.thing, name)
        return type("Method", (), {"remote": staticmethod(method)})


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(ray_backend, "connect", lambda address: FakeRay())


def pool_of(name, backend=ray_backend.RayBackend, copies=1, **args):
    return Pool(envs.make(name, **args), copies, 1, 60.0, pause=0.01, backend=backend)


def exchange(pool, seeds):
    pool.ask("train", 0, np.arange(pool.copies), np.array(seeds, np.int64))
    return pool.answer("train", 0)


def test_what_the_environments_show_reaches_the_trainers_arrays(fake):
    pool = pool_of("host_envs:HostCounting", copies=3)
    try:
        assert exchange(pool, [13, 4, 12])
        pool.arrays.action[:] = [[0, 1], [2, 0], [1, 1]]
        assert exchange(pool, [STEP, STEP, 2])
        np.testing.assert_array_equal(pool.arrays.state, [[13, 1, 0, 1], [4, 1, 2, 0], [2, 0, -1, -1]])
        np.testing.assert_array_equal(pool.arrays.reward[:2], [13.0, 4.0])
        np.testing.assert_array_equal(pool.arrays.action, [[0, 1], [2, 0], [1, 1]])
    finally:
        pids = [worker.handle.actor.thing.worker.process.pid for worker in pool.workers]
        pool.close()
    assert all_gone(pids)


def test_a_failure_over_there_is_told_here(fake, tmp_path):
    pool = pool_of("host_envs:Trouble", kind="raise", folder=str(tmp_path), at=1, times=9)
    pool.max_failures = 2
    try:
        assert exchange(pool, [13]) and not exchange(pool, [STEP])
        assert exchange(pool, [13])  # by another worker
        with pytest.raises(EnvError, match="the ball is lost"):
            exchange(pool, [STEP])
    finally:
        pool.close()


def test_an_actor_that_is_lost_or_silent_is_a_failure(fake):
    pool = pool_of("host_envs:HostCounting")
    ray = FakeRay()
    try:
        assert exchange(pool, [13])
        for error in (ray.exceptions.RayError("the node is gone"), ray.exceptions.GetTimeoutError()):
            pool.ask("train", 0, np.arange(1), np.array([STEP]))
            handle = pool.workers[0].handle
            handle.asked[-1] = (handle.asked[-1][0], error)
            assert not pool.answer("train", 0)
            assert exchange(pool, [13])
    finally:
        pool.close()
    assert pool.failures == 2


def test_ray_needs_to_be_there_and_to_be_told_how_many_workers(monkeypatch):
    with pytest.raises(ConfigError, match=r"needs --rollout\.workers"):
        replace(Config(), {"rollout.where": "ray"})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EmuError, match=r"--rollout\.where ray needs Ray.*emu-marl\[cluster\]"):
        ray_backend.connect("auto")


# On real nodes


@pytest.fixture(scope="module")
def nodes():
    """A head and one more node, two cores each."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emu-marl[cluster]'")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    together = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    together.add_node(num_cpus=2)
    together.wait_for_nodes()
    yield together.address
    ray.shutdown()
    together.shutdown()


def play(where, cluster="auto", chunks=12, before=lambda number, workers: None, warn=lambda message: None):
    """Episodes and counts of a rollout with two workers and four copies."""
    config = RolloutConfig(workers=2, where=where, cluster=cluster)
    learner = CountingLearner()
    workers = Workers(envs.make("host_envs:HostCounting"), learner, Devices.of(), config, 4, 1, warn)
    rollout = WorkerRollout(workers, 5, Devices.of())
    state, episodes = rollout.init(jax.random.PRNGKey(0)), []
    try:
        for number in range(chunks):
            before(number, workers)
            state, ended, _ = rollout.collect(learner.init(None), state, 0.0)
            episodes += ended
    finally:
        rollout.close()
    return episodes, rollout.stats()


@pytest.mark.slow
def test_nodes_play_the_same_episodes_as_this_machine(nodes):
    here, _ = play("here")
    there, stats = play("ray", nodes)
    assert len(here) == len(there) > 20 and stats == {"worker_failures": 0, "dropped_episodes": 0}
    assert all(same_episode(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["actor", "its worker"])
def test_an_actor_killed_in_mid_run_is_replaced_and_leaves_nothing(nodes, victim):
    warnings, seen = [], []

    def kill(number, workers):
        handles = [worker.handle for worker in workers.pool.workers] if number else []
        seen.extend(pid for handle in handles for pid in handle.ray.get(handle.actor.pids.remote()) if pid not in seen)
        if number == 4:
            os.kill(seen[victim], signal.SIGKILL)

    episodes, stats = play("ray", nodes, before=kill, warn=warnings.append)
    assert stats["worker_failures"] == len(warnings) == 1 and 1 <= stats["dropped_episodes"] <= 2
    assert "failed and is started again" in warnings[0]
    assert len(episodes) > 20 and len(seen) == 6  # two actors with a worker each, and the new pair
    assert all_gone(seen) and not any(map(alive, seen))
