"""Testing a team: exactly one episode per copy, greedy, the same for the same seed and number."""

import jax
import numpy as np
import pytest

from emu.devices import Devices
from emu.errors import EnvError
from emu.play import evaluate
from emu.play.evaluate import Evaluator
from toys import CountingEnv, CountingLearner, length_of


def evaluator(episodes=6, env=None, devices=0):
    return Evaluator(env or CountingEnv(), CountingLearner(), episodes, Devices.of(devices))


def test_every_copy_plays_exactly_one_episode():
    result = evaluator().test(CountingLearner().init(None), seed=3, number=2)
    assert len(result.total) == 6
    for total, won, length in zip(*result, strict=True):
        # the return of an episode named n with T steps is T n + 0.125 T (T - 1) / 2
        name = (total - 0.125 * length * (length - 1) / 2) / length
        assert name == int(name) and length == length_of(int(name)) and bool(won) == bool(int(name) % 2)


def test_the_same_seed_and_number_give_the_same_test():
    policy, one = CountingLearner().init(None), evaluator()
    first, again = one.test(policy, 1, 0), evaluator().test(policy, 1, 0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, number in ((1, 1), (2, 0)):
        assert not np.array_equal(first.total, one.test(policy, seed, number).total)


@pytest.mark.parametrize("episodes", [1, 3, 5])
def test_any_number_of_episodes_fits_any_number_of_devices(episodes):
    policy = CountingLearner().init(None)
    two = evaluator(episodes).test(policy, 0, 0)
    one = evaluator(episodes, devices=1).test(policy, 0, 0)
    assert len(two.total) == episodes and np.array_equal(one.total, two.total)


def test_all_tests_are_one_compiled_program():
    one, policy = evaluator(), CountingLearner().init(None)
    for number in range(4):
        one.test(policy, 0, number)
    assert one._run._cache_size() == 1


def test_epsilon_is_zero():
    seen = []

    class Watching(CountingLearner):
        def act(self, policy, carry, obs, avail, explore, key):
            jax.debug.callback(lambda e: seen.append(float(e)), explore)
            return super().act(policy, carry, obs, avail, explore, key)

    Evaluator(CountingEnv(), Watching(), 2, Devices.of(1)).test({"unused": np.zeros(1)}, 0, 0)
    jax.effects_barrier()
    assert seen and set(seen) == {0.0}


def test_an_episode_longer_than_its_limit_is_explained_not_waited_for():
    with pytest.raises(EnvError, match=r"goes on after spec.episode_limit = 2"):
        evaluator(8, CountingEnv(limit=2)).test(CountingLearner().init(None), 0, 0)


def test_summary_is_means_over_episodes():
    result = evaluate.TestResult(np.array([1.0, 3.0], np.float32), np.array([True, False]), np.array([4, 8]))
    assert result.summary() == {
        "test_win_rate": 0.5,
        "test_return": 2.0,
        "test_return_std": 1.0,
        "test_length": 6.0,
    }
