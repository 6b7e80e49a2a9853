"""Greedy episodes of compiled environments: exactly one per copy, the same for the same seed and number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.devices import Devices
from emu.errors import EnvError
from emu.play import compiled
from emu.play.compiled import CompiledEvaluator, play_scripted_copies
from emu.seeds import evaluation_episodes, recorded_episode, scripted_keys
from toys import ACTIONS, CountingEnv, CountingLearner, length_of


def evaluator(episodes=6, env=None, devices=0):
    return CompiledEvaluator(env or CountingEnv(), CountingLearner(), episodes, Devices.of(devices))


def test_every_copy_plays_exactly_one_episode():
    result = evaluator().evaluate(CountingLearner().init(None), seed=3, number=2)
    assert len(result.total) == 6
    for total, won, length in zip(*result[:3], strict=True):
        # the return of an episode named n with T steps is T n + 0.125 T (T - 1) / 2
        name = (total - 0.125 * length * (length - 1) / 2) / length
        assert name == int(name) and length == length_of(int(name)) and bool(won) == bool(int(name) % 2)


def test_the_same_seed_and_number_give_the_same_evaluation():
    policy, one = CountingLearner().init(None), evaluator()
    first, again = one.evaluate(policy, 1, 0), evaluator().evaluate(policy, 1, 0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, number in ((1, 1), (2, 0)):
        assert not np.array_equal(first.total, one.evaluate(policy, seed, number).total)


@pytest.mark.parametrize("episodes", [1, 3, 5])
def test_any_number_of_episodes_fits_any_number_of_devices(episodes):
    policy = CountingLearner().init(None)
    two = evaluator(episodes).evaluate(policy, 0, 0)
    one = evaluator(episodes, devices=1).evaluate(policy, 0, 0)
    assert len(two.total) == episodes and np.array_equal(one.total, two.total)


def test_all_evaluations_are_one_compiled_program():
    traces = []

    class Watched(CountingEnv):
        def step(self, state, action, key):
            traces.append(1)
            return super().step(state, action, key)

    one, policy = evaluator(env=Watched()), CountingLearner().init(None)
    one.evaluate(policy, 0, 0)
    after_one = len(traces)
    for number in range(1, 4):
        one.evaluate(policy, 0, number)
    assert after_one > 0 and len(traces) == after_one


def test_many_episodes_are_played_in_parts_and_stay_the_same(monkeypatch):
    policy, seeds = CountingLearner().init(None), evaluation_episodes(0, 0, 10)
    whole = evaluator().play(policy, seeds, states=True)
    monkeypatch.setattr(compiled, "AT_ONCE", 4)
    parts = evaluator().play(policy, seeds, states=True)
    assert len(parts) == 10
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a.states, b.states)
        np.testing.assert_array_equal(a.reward, b.reward)


def test_epsilon_is_zero():
    seen = []

    class Watching(CountingLearner):
        def act(self, policy, carry, obs, avail, epsilon, key):
            jax.debug.callback(lambda e: seen.append(float(e)), epsilon)
            return super().act(policy, carry, obs, avail, epsilon, key)

    CompiledEvaluator(CountingEnv(), Watching(), 2, Devices.of(1)).evaluate({"unused": np.zeros(1)}, 0, 0)
    jax.effects_barrier()
    assert seen and set(seen) == {0.0}


def test_an_episode_longer_than_its_limit_is_explained_not_waited_for():
    with pytest.raises(EnvError, match=r"goes on after spec.episode_limit = 2"):
        evaluator(8, CountingEnv(limit=2)).evaluate(CountingLearner().init(None), 0, 0)


def test_states_and_frames_are_those_of_the_episode_and_of_nothing_after_it():
    """Short episodes stop while long ones go on; what followed their end must not show."""
    policy = CountingLearner().init(None)
    episodes = evaluator(8).play(policy, evaluation_episodes(0, 0, 8), states=True, frames=True)
    assert len({episode.length for episode in episodes}) > 2
    for episode in episodes:
        name, times = int(episode.frames[0].name), np.arange(episode.length + 1)
        assert episode.length == length_of(name) and len(episode.frames) == episode.length + 1
        np.testing.assert_array_equal(episode.states[:, 0], name)
        np.testing.assert_array_equal(episode.states[:, 1], times)
        np.testing.assert_array_equal([frame.time for frame in episode.frames], times)
        np.testing.assert_array_equal(episode.reward, name + 0.125 * times[:-1])
        assert episode.total == pytest.approx(episode.reward.sum())


def test_what_is_kept_does_not_change_the_episode():
    policy, one = CountingLearner().init(None), evaluator(1)
    bare, full = (one.play(policy, recorded_episode(3), keep, keep)[0] for keep in (False, True))
    assert bare.states is None and bare.frames is None
    np.testing.assert_array_equal(bare.reward, full.reward)


def test_a_scripted_player_sees_states_and_keys_of_its_own_and_the_last_state_is_counted():
    class Counted(CountingEnv):
        def final_counts(self, state):
            return {"clock": state.time, "second_choice": state.action[1]}

    def player(env, state, key):
        return jnp.stack([state.time % ACTIONS, jax.random.randint(key, (), 0, ACTIONS)]).astype(jnp.int32)

    episodes = play_scripted_copies(Counted(), player, scripted_keys(0, 12), frames=True)
    choices = set()
    for episode in episodes:
        actions = np.array([frame.action for frame in episode.frames[1:]])
        np.testing.assert_array_equal(actions[:, 0], np.arange(episode.length) % ACTIONS)
        choices.update(actions[:, 1].tolist())
        assert episode.final == {"clock": episode.length, "second_choice": actions[-1, 1]}
    assert choices == {0, 1, 2}
