"""Supervision: what happens when a worker dies, hangs or raises, and that nothing is left behind."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu import envs
from emu.envs import EnvSpec
from emu.envs.workers.guardian import descendants
from emu.envs.workers.pool import Pool, groups_of
from emu.envs.workers.shared_arrays import STEP, make_memory, open_arrays
from emu.errors import EnvError
from host_envs import HostCounting
from processes_alive import alive, all_gone


@pytest.fixture
def pools():
    """Makes pools that are closed after the test."""
    made = []

    def make(name, copies=1, workers=1, timeout=60.0, pause=0.01, **options):
        args = options.pop("env_args", {})
        made.append(Pool(envs.make(name, **args), copies, workers, timeout, pause=pause, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def exchange(pool, seeds, worker=0, channel="train"):
    """Ask for one thing and wait for it."""
    copies = pool.copies_of(worker, range(pool.copies))
    pool.ask(channel, worker, copies, np.array(seeds, np.int64))
    return pool.answer(channel, worker)


def pids(pool):
    return [worker.handle.process.pid for worker in pool.workers]


def trouble(kind, folder, **args):
    return {"name": "host_envs:Trouble", "env_args": {"kind": kind, "folder": str(folder), **args}}


def play_until_failure(pool, steps=20):
    """Answers, one per exchange, up to and including the first bad one."""
    fine = [exchange(pool, [13])]
    while fine[-1] and len(fine) < steps:
        fine.append(exchange(pool, [STEP]))
    return fine


def test_the_shared_arrays_show_what_the_environments_show(pools):
    pool = pools("host_envs:HostCounting", copies=3)
    assert exchange(pool, [13, 4, 12])
    pool.arrays.action[:] = [[0, 1], [2, 0], [1, 1]]
    assert exchange(pool, [STEP, STEP, 2])
    np.testing.assert_array_equal(pool.arrays.state, [[13, 1, 0, 1], [4, 1, 2, 0], [2, 0, -1, -1]])
    np.testing.assert_array_equal(pool.arrays.obs[1], [[4, 1, 2, 0], [4, 1, 0, 1]])
    np.testing.assert_array_equal(pool.arrays.reward[:2], [13.0, 4.0])
    assert pool.arrays.avail.all()
    assert not pool.arrays.terminated[:2].any() and not pool.arrays.truncated[:2].any()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("die", "killed by SIGKILL"),
        ("hang", "did not answer within 3 seconds"),
        ("raise", "RuntimeError: the ball is lost"),
        ("shape", "obs of shape (2, 5); its specification says (2, 4)"),
    ],
)
def test_a_failing_worker_is_replaced_and_its_asker_told(pools, tmp_path, kind, reason):
    warnings = []
    pool = pools(**trouble(kind, tmp_path), timeout=3.0 if kind == "hang" else 60.0, warn=warnings.append)
    before = pids(pool)
    assert play_until_failure(pool) == [True] * 5 + [False]
    assert pool.failures == 1 and reason in warnings[0]
    assert all_gone(before) and all(map(alive, pids(pool)))
    assert exchange(pool, [13]) and exchange(pool, [STEP])  # the next one works


def test_a_worker_killed_between_questions_is_replaced_too(pools):
    pool = pools("host_envs:HostCounting")
    assert exchange(pool, [13])
    os.kill(pids(pool)[0], signal.SIGKILL)
    assert all_gone(pids(pool))
    assert not exchange(pool, [STEP])
    assert exchange(pool, [13])


def test_too_many_failures_in_a_row_end_with_the_workers_own_traceback(pools, tmp_path):
    pool = pools(**trouble("raise", tmp_path, at=1, times=99), max_failures=3)
    for _ in range(2):
        assert play_until_failure(pool) == [True, False]
    with pytest.raises(EnvError, match="failed 3 times without finishing an episode") as error:
        play_until_failure(pool)
    text = str(error.value)
    assert "Traceback (most recent call last)" in text and 'RuntimeError("the ball is lost")' in text
    assert all_gone(pids(pool))


def test_a_finished_episode_forgives_earlier_failures(pools, tmp_path):
    pool = pools(**trouble("raise", tmp_path, at=1, times=4), max_failures=2)
    for _ in range(4):
        assert play_until_failure(pool) == [True, False]
        pool.forgive(0)
    assert pool.failures == 4


def test_a_failure_on_one_channel_loses_the_episodes_of_the_other(pools, tmp_path):
    pool = pools(**trouble("die", tmp_path, at=1), copies=2)
    train, test = np.array([0]), np.array([1])
    pool.ask("train", 0, train, np.array([13]))
    pool.ask("test", 0, test, np.array([13]))
    assert pool.answer("test", 0)  # the other channel's answer came first and is kept
    assert not pool.workers[0].asked and pool.answer("train", 0)
    pool.ask("test", 0, test, np.array([STEP]))
    assert not pool.answer("test", 0)
    assert not pool.answer("train", 0)


def test_global_generators_are_seeded_with_every_episode(pools):
    pool = pools("host_envs:Unseeded")
    shown = []
    for seed in (5, 6, 5):
        assert exchange(pool, [seed])
        shown.append(pool.arrays.state[0, 0])
    assert shown[0] == shown[2] == np.random.RandomState(5).randint(10_000) % 14


def test_closing_ends_the_workers_and_what_they_started(pools, tmp_path):
    pool = pools("host_envs:Parent", copies=2, workers=2, env_args={"folder": str(tmp_path)})
    assert exchange(pool, [1], worker=0) and exchange(pool, [1], worker=1)
    programs = [int(path.name) for path in tmp_path.iterdir()]
    assert len(programs) == 3 and all(map(alive, [*programs, *pids(pool)]))  # one is this process's own
    own = next(program for program in programs if _parent_of(program) == os.getpid())
    os.kill(own, signal.SIGKILL)
    pool.close()
    assert all_gone([*programs, *pids(pool)])


HOWS = ("setsid", "daemon", "stopped", "fork", "copy")


@pytest.mark.parametrize("how", HOWS)
def test_programs_that_left_the_group_end_with_their_worker(pools, tmp_path, how):
    pool = pools("host_envs:Runaway", env_args={"folder": str(tmp_path), "how": how})
    assert exchange(pool, [13]) and exchange(pool, [STEP]) and exchange(pool, [STEP])
    programs = [int(path.name) for path in tmp_path.iterdir()]
    assert programs and (how == "copy" or all(map(alive, programs)))
    pool.close()
    assert all_gone([*programs, *pids(pool)])


def test_programs_of_a_worker_that_is_replaced_end_with_it(pools, tmp_path):
    pool = pools("host_envs:Runaway", env_args={"folder": str(tmp_path), "how": "daemon"})
    assert exchange(pool, [13]) and exchange(pool, [STEP])
    (program,) = (int(path.name) for path in tmp_path.iterdir())
    os.kill(worker_of(pids(pool)[0]), signal.SIGKILL)
    assert not exchange(pool, [STEP])
    assert all_gone([program])


@pytest.mark.parametrize("stopped", ["worker", "guardian"])
def test_a_stopped_worker_ends_with_its_pool(pools, stopped):
    pool = pools("host_envs:HostCounting")
    assert exchange(pool, [13])
    guardian = pids(pool)[0]
    worker = worker_of(guardian)
    os.kill(worker if stopped == "worker" else guardian, signal.SIGSTOP)
    pool.close()
    assert all_gone([worker, guardian])


def worker_of(guardian):
    """The process that plays, below the one that watches over it."""
    return descendants(guardian)[0]


@pytest.mark.parametrize(("survives", "reason"), [(False, "Websocket connection closed"), (True, "was started again")])
def test_a_game_that_dies_is_replaced_with_its_worker(pools, tmp_path, survives, reason):
    """Also one that the environment itself has replaced: its broken episode must not look like a defeat."""
    warnings = []
    args = {"folder": str(tmp_path), "survives": survives}
    pool = pools("pymarl:host_envs:WithGame", env_args=args, warn=warnings.append)
    pool.arrays.action[:] = 1
    assert exchange(pool, [1]) and exchange(pool, [STEP])
    (first,) = (int(path.name) for path in tmp_path.iterdir())
    os.kill(first, signal.SIGKILL)
    assert all_gone([first])
    assert not exchange(pool, [STEP])
    assert reason in warnings[0] and pool.failures == 1
    assert exchange(pool, [1]) and exchange(pool, [STEP])
    games = [int(path.name) for path in tmp_path.iterdir()]
    assert len(games) == 2 + survives and sum(map(alive, games)) == 1  # the new worker's, and no other
    pool.close()
    assert all_gone(games)


def _parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


SUPERVISOR = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with SIGINT ignored
import numpy as np
from emu import envs
from emu.envs.workers.pool import Pool

pool = Pool(envs.make("host_envs:{name}", **{args}), 2, 2)
for worker in range(2):
    pool.ask("train", worker, np.array([worker]), np.array([13]))
    pool.answer("train", worker)
for worker in range(2):  # leave them busy
    pool.ask("train", worker, np.array([worker]), np.array([-1]))
print(*(worker.handle.process.pid for worker in pool.workers), flush=True)
{then}
"""


def supervise(tmp_path, then, name="HostCounting", args=None):
    """A supervisor in a process of its own, and the numbers of its workers."""
    script = SUPERVISOR.format(name=name, args=args or {}, then=then)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_no_worker_outlives_a_killed_supervisor(tmp_path, number):
    args = {"kind": "hang", "folder": str(tmp_path), "at": 1, "times": 2}  # inside a step that never ends
    process, workers = supervise(tmp_path, "time.sleep(1000)", "Trouble", args)
    assert len(workers) == 2 and all(map(alive, workers))
    process.send_signal(number)
    process.wait(30)
    assert all_gone(workers)


@pytest.mark.parametrize("how", ["setsid", "daemon", "stopped", "fork"])
@pytest.mark.parametrize("when", ["make", "step"])
def test_no_program_outlives_a_killed_supervisor(tmp_path, how, when):
    """Also those of the environment that the supervisor itself made, to read its specification."""
    args = {"folder": str(tmp_path), "how": how, "when": when}
    process, guardians = supervise(tmp_path, "time.sleep(1000)", "Runaway", args)
    workers = [worker_of(guardian) for guardian in guardians]
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < (3 if when == "make" else 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    programs = [int(path.name) for path in tmp_path.iterdir()]
    assert all(map(alive, programs))
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    process.kill()
    process.wait(30)
    assert all_gone([*programs, *workers, *guardians])


@pytest.mark.parametrize("then", ["raise SystemExit(1)", "1 / 0", "import os; os.abort()"])
def test_no_worker_outlives_a_supervisor_that_ends_without_closing(tmp_path, then):
    process, workers = supervise(tmp_path, then)
    assert process.wait(30) != 0
    assert all_gone(workers)


def test_nothing_is_left_in_shared_memory_or_open():
    def resources():
        return set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = resources()
    pool = Pool(envs.make("host_envs:HostCounting"), 2, 2)
    assert exchange(pool, [1], worker=0)
    assert resources()[0] == before[0]  # the shared memory has no name to begin with
    pool.close()
    del pool  # its arrays are the last to hold the memory
    assert resources() == before


def test_an_environment_that_workers_cannot_make_is_refused():
    with pytest.raises(EnvError, match="was not made by"):
        Pool(HostCounting(), 1, 1)

    class Local(HostCounting):
        pass

    envs.register("local", Local, "cannot be imported from elsewhere")
    with pytest.raises(EnvError, match="move it to the top level of a module"):
        Pool(envs.make("local"), 1, 1)


@given(st.tuples(*[st.integers(1, 9)] * 4), st.integers(1, 5))
def test_shared_arrays_do_not_overlap(sizes, copies):
    n, a, o, s = sizes
    spec = EnvSpec("any", "1", n, a, o, s, 1, 0, False, (0.0, 1.0))
    memory = make_memory(spec, copies)
    arrays, mirror = open_arrays(memory, spec, copies), open_arrays(memory, spec, copies)
    os.close(memory)
    for number, array in enumerate(arrays):
        array[...] = number % 2 if array.dtype == bool else number
    for number, array in enumerate(mirror):
        assert (array == (number % 2 if array.dtype == bool else number)).all()
    assert arrays.obs.shape == (copies, n, o) and arrays.avail.shape == (copies, n, a)


def test_every_worker_is_in_one_group():
    for count in range(1, 9):
        groups = groups_of(count)
        assert sorted(itertools.chain(*groups)) == list(range(count)) and len(groups) == min(2, count)
