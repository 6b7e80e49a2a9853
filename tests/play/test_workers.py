"""Playing in worker processes: the same episodes as the compiled rollout's, in the same order every time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.config import RolloutConfig
from emu.devices import Devices
from emu.errors import EnvError
from emu.play.compiled import Rollout
from emu.play.worker_groups import Workers
from emu.play.workers import WorkerEvaluator, WorkerRollout
from emu.seeds import another_try, evaluation_episodes, seed_of
from host_envs import LIMIT, NAMES
from processes_alive import all_gone
from toys import CountingEnv, CountingLearner, CountState, collected, same_episode

COPIES = 4


@dataclasses.dataclass(frozen=True)
class FewNames(CountingEnv):
    """The compiled twin of `HostCounting`: the same few episodes."""

    def reset(self, key):
        return CountState(jax.random.randint(key, (), 0, NAMES), jnp.int32(0), jnp.full(2, -1, jnp.int32))


@pytest.fixture
def make_workers():
    """Makes workers that are closed after the test."""
    made = []

    def make(name="host_envs:HostCounting", args=None, copies=COPIES, evaluated=3, warn=lambda message: None, **config):
        config = RolloutConfig(**{"workers": 2, **config})
        learner, env = CountingLearner(), envs.make(name, **(args or {}))
        made.append(Workers(env, learner, Devices.of(), config, copies, evaluated, warn))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


def collect(workers, chunks=12, chunk=5, seed=0):
    rollout = WorkerRollout(workers, chunk, Devices.of())
    return *collected(rollout, workers.learner, chunks, seed), rollout


def compiled(chunks=60):
    learner = CountingLearner()
    rollout = Rollout(FewNames(), learner, COPIES, 5, Devices.of())
    state, episodes = rollout.init(jax.random.PRNGKey(0)), []
    for _ in range(chunks):
        state, ended, _ = rollout.collect(learner.init(None), state, 0.0)
        episodes += ended
    return {int(episode.state[0, 0]): episode for episode in episodes}


def trouble(kind, folder, **args):
    return {"name": "host_envs:Trouble", "args": {"kind": kind, "folder": str(folder), **args}}


def test_episodes_equal_those_of_the_compiled_twin(make_workers):
    """Every field, every slot: alignment, the agents' memory between steps, both kinds of ending, the last view."""
    twin = compiled()
    episodes, steps, rollout = collect(make_workers(), chunks=40)
    assert {int(episode.state[0, 0]) for episode in episodes} == set(twin) == set(range(NAMES))
    for episode in episodes:
        assert same_episode(episode, twin[int(episode.state[0, 0])])
    unfinished = len(rollout.stream) * rollout.chunk * COPIES - int(rollout.begun.sum())
    assert sum(e.length for e in episodes) + len(episodes) + unfinished == 40 * 5 * COPIES
    assert steps == 40 * 5 * COPIES - len(episodes)
    assert rollout.stats() == {"worker_failures": 0, "dropped_episodes": 0}


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_seed_gives_the_same_episodes_in_the_same_order(make_workers, workers):
    """Also with another number of workers as far as each copy's own episodes go."""
    first, again = (collect(make_workers(workers=workers))[0] for _ in range(2))
    assert len(first) == len(again) > 20
    assert all(same_episode(a, b) for a, b in zip(first, again, strict=True))
    names = [int(episode.state[0, 0]) for episode in first]
    assert sorted(names) == sorted(int(e.state[0, 0]) for e in collect(make_workers(workers=2))[0])
    assert names != [int(e.state[0, 0]) for e in collect(make_workers(workers=workers), seed=1)[0]]


@pytest.mark.parametrize("kind", ["die", "hang", "raise"])
def test_a_failure_drops_the_workers_unfinished_episodes_and_nothing_else(make_workers, tmp_path, kind):
    twin, warnings = compiled(), []
    timeout = 3.0 if kind == "hang" else 60.0
    workers = make_workers(**trouble(kind, tmp_path, at=20), timeout=timeout, warn=warnings.append)
    episodes, steps, rollout = collect(workers, chunks=30)
    assert all(same_episode(episode, twin[int(episode.state[0, 0])]) for episode in episodes)
    stats = rollout.stats()
    assert stats["worker_failures"] == len(warnings) == 1
    assert 1 <= stats["dropped_episodes"] <= 2  # one worker of two runs two of the four copies
    assert len(episodes) > 60 and steps > 450  # the others went on, and so did the new one


def test_an_episode_that_was_over_when_its_worker_failed_is_kept(make_workers, tmp_path):
    """The second episode cannot be started; the first is complete all the same, and the third follows it."""
    workers = make_workers(**trouble("reset", tmp_path), copies=1, workers=1)
    rollout = WorkerRollout(workers, 40, Devices.of())
    state = rollout.init(jax.random.PRNGKey(0))
    episodes = rollout.collect({}, state, 0.0)[1]
    names = [seed_of(*state.key, 0, number) % NAMES for number in range(40)]
    del names[1]
    assert [int(episode.state[0, 0]) for episode in episodes] == names[: len(episodes)] and len(episodes) > 3
    assert rollout.stats() == {"worker_failures": 1, "dropped_episodes": 0}


@pytest.mark.parametrize("field", ["obs", "state", "reward", "avail"])
def test_what_is_not_sound_stops_the_run_and_is_named(make_workers, tmp_path, field):
    workers = make_workers(**trouble(field, tmp_path))
    complaint = "without any available action" if field == "avail" else f"NaN or infinity in {field} "
    with pytest.raises(EnvError, match=complaint):
        collect(workers)


def test_too_many_failures_stop_the_run_with_the_traceback(make_workers, tmp_path):
    workers = make_workers(**trouble("raise", tmp_path, at=1, times=99), max_failures=2)
    with pytest.raises(EnvError, match="the ball is lost"):
        collect(workers)
    pids = [worker.handle.process.pid for worker in workers.pool.workers]
    workers.close()
    assert all_gone(pids)


def test_an_episode_beyond_the_limit_stops_the_run(make_workers):
    with pytest.raises(EnvError, match=r"goes on after spec\.episode_limit = 3 steps"):
        collect(make_workers(args={"limit": 3}))
    with pytest.raises(EnvError, match=r"goes on after spec\.episode_limit = 3 steps"):
        WorkerEvaluator(make_workers(args={"limit": 3}), 30).evaluate({}, 0, 0)


def test_resumed_it_begins_new_episodes_that_it_has_not_begun_before(make_workers):
    first = make_workers()
    _, _, rollout = collect(first, chunks=4)
    arrays, stored = rollout.save(), jax.device_get(rollout.latest)
    second = WorkerRollout(make_workers(), 5, Devices.of())
    second.init(jax.random.PRNGKey(0))
    second.load(arrays)
    state, policy = second.shards.put(stored), first.learner.init(None)
    begun = np.array(stored.episodes)
    state, ended, _ = second.collect(policy, state, 0.0)
    assert (np.asarray(state.episodes) > begun).all()
    assert all(episode.obs[0, 0, 1] == 0 for episode in ended)  # whole episodes, from their first step


def test_evaluations_depend_on_seed_and_number_only(make_workers):
    """Rewards name + 0.125 t over 1 + name % 7 steps; odd names are won."""
    workers = make_workers()
    evaluator = WorkerEvaluator(workers, 11)
    first, again, other = (evaluator.evaluate({}, 3, number) for number in (0, 0, 1))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.total, other.total)
    names = [next(n for n in range(NAMES) if _total(n) == total) for total in first.total]
    np.testing.assert_array_equal(first.length, [1 + n % LIMIT for n in names])
    np.testing.assert_array_equal(first.won, [n % 2 == 1 for n in names])


def _total(name):
    return sum(name + 0.125 * t for t in range(1 + name % LIMIT))


def test_evaluating_in_the_middle_leaves_training_episodes_alone(make_workers):
    straight = collect(make_workers(), chunks=6)[0]
    workers = make_workers()
    rollout, evaluator = WorkerRollout(workers, 5, Devices.of()), WorkerEvaluator(workers, 5)
    state, episodes = rollout.init(jax.random.PRNGKey(0)), []
    for number in range(6):
        evaluator.evaluate({}, 0, number)
        state, ended, _ = rollout.collect(workers.learner.init(None), state, 0.0)
        episodes += ended
    assert all(same_episode(a, b) for a, b in zip(episodes, straight, strict=True))


def test_an_evaluation_episode_lost_with_its_worker_is_played_again(make_workers, tmp_path):
    workers = make_workers(**trouble("die", tmp_path, at=9), copies=0)
    calm = WorkerEvaluator(make_workers(copies=0), 12).evaluate({}, 3, 0)
    result = WorkerEvaluator(workers, 12).evaluate({}, 3, 0)
    assert workers.pool.failures == 1
    for a, b in zip(result, calm, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_evaluation_seed_that_always_fails_is_replaced_counted_and_costs_no_other_episode(make_workers):
    """Episodes that shared a worker with it keep their own seeds."""
    seeds, bad, warnings = evaluation_episodes(3, 0, 9).numbers(), 4, []
    calm = WorkerEvaluator(make_workers(copies=0, evaluated=6), 9).evaluate({}, 3, 0)
    args = {"seeds": [seeds[bad]]}
    workers = make_workers("host_envs:BadSeeds", args, copies=0, evaluated=6, max_failures=3, warn=warnings.append)
    evaluator = WorkerEvaluator(workers, 9)
    result = evaluator.evaluate({}, 3, 0)
    others = np.arange(9) != bad
    np.testing.assert_array_equal(result.total[others], calm.total[others])
    assert result.total[bad] == np.float32(_total(another_try(seeds[bad]) % NAMES))
    assert result.replaced_seeds == 1 and result.summary()["test_replaced_seeds"] == 1
    assert workers.pool.failures == 2 and f"fails with seed {seeds[bad]}" in warnings[-1]
    assert "test_replaced_seeds" not in calm.summary()
    assert evaluator.evaluate({}, 3, 1).replaced_seeds == 0  # those of this evaluation, not of all so far


def test_acting_compiles_once_per_size_of_a_group(make_workers):
    workers = make_workers(copies=5, workers=2)  # groups of three and of two
    collect(workers, chunks=5)
    assert workers.act._cache_size() == 2
