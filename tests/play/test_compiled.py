"""Collecting: every slot of every episode is checked against what the counting environment says it should hold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.devices import Devices
from emu.errors import EnvError
from emu.play.acting import choose
from emu.play.compiled import Rollout, begin_again
from emu.types import Outcome
from toys import ACTIONS, CountingEnv, CountingLearner, collected, length_of, same_episode

COPIES = 4


def collect(env=None, chunk=5, chunks=12, devices=0, seed=0, learner=None):
    """The episodes of some chunks, in order, and the steps taken."""
    learner = learner or CountingLearner()
    rollout = Rollout(env or CountingEnv(), learner, COPIES, chunk, Devices.of(devices))
    return *collected(rollout, learner, chunks, seed), rollout


@given(st.integers(1, 40).flatmap(lambda copies: st.lists(st.booleans(), min_size=copies, max_size=copies)))
@settings(deadline=None, max_examples=40)
def test_ended_episodes_begin_again_as_if_all_had_and_the_others_go_on(ended):
    env, ended = CountingEnv(), jnp.array(ended)
    before, keys = (jax.random.split(jax.random.key(seed), len(ended)) for seed in (1, 2))
    states = jax.vmap(env.reset)(before)
    expected = choose(ended, jax.vmap(env.reset)(keys), states)
    found = jax.jit(lambda *args: begin_again(env, *args))(states, ended, keys)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_every_episode_holds_exactly_its_own_slots():
    episodes, _, _ = collect(chunk=5, chunks=24)
    assert len(episodes) > 40
    for episode in episodes:
        name = int(episode.state[0, 0])
        steps = int(length_of(name))
        assert episode.length == steps
        times = np.arange(steps + 1)
        np.testing.assert_array_equal(episode.state[:, 0], name)
        np.testing.assert_array_equal(episode.state[:, 1], times)
        np.testing.assert_array_equal(episode.obs[..., 0], name)
        np.testing.assert_array_equal(episode.obs[..., 1], times[:, None].repeat(2, 1))
        np.testing.assert_array_equal(episode.obs[..., 3], [[0, 1]] * (steps + 1))
        np.testing.assert_array_equal(episode.reward, name + 0.125 * times[:-1])
        assert episode.avail.shape == (steps + 1, 2, ACTIONS)


def test_the_next_observation_shows_the_action_before_it():
    episodes, _, _ = collect()
    for episode in episodes:
        np.testing.assert_array_equal(episode.obs[1:, :, 2], episode.action)
        np.testing.assert_array_equal(episode.state[1:, 2:], episode.action)
        assert (episode.obs[0, :, 2] == -1).all()


def test_every_action_keeps_its_log_probability():
    for episode in collect()[0]:
        times = np.arange(1, episode.length + 1)
        np.testing.assert_array_equal(episode.log_prob, np.stack([-times, -times - 0.5], axis=-1))
        assert episode.log_prob.dtype == np.float32


def test_hidden_state_starts_anew_with_every_episode():
    episodes, _, _ = collect()
    for episode in episodes:
        np.testing.assert_array_equal(episode.action[:, 0], np.arange(episode.length) % ACTIONS)


def test_terminated_and_truncated_stay_apart():
    episodes, _, _ = collect(chunks=24)
    kinds = set()
    for episode in episodes:
        odd = bool(episode.state[0, 0] % 2)
        ends = np.arange(episode.length) == episode.length - 1
        np.testing.assert_array_equal(episode.terminated, ends & odd)
        np.testing.assert_array_equal(episode.truncated, ends & (not odd))
        assert bool(episode.won) == odd
        kinds.add(odd)
    assert kinds == {True, False}


def test_no_episode_comes_twice_and_none_is_lost():
    episodes, steps, rollout = collect(chunks=40)
    names = [int(episode.state[0, 0]) for episode in episodes]
    assert len(set(names)) == len(names)  # names are drawn out of 60,000; the seed has no repetition
    unfinished = len(rollout.stream) * rollout.chunk * COPIES - int(rollout.begun.sum())
    shown_last = len(episodes)
    assert sum(e.length for e in episodes) + shown_last + unfinished == 40 * 5 * COPIES
    assert steps == 40 * 5 * COPIES - shown_last


@pytest.mark.parametrize("chunk", [1, 2, 3, 8, 20])
def test_episodes_do_not_depend_on_the_chunk(chunk):
    reference, _, _ = collect(chunk=120, chunks=1)
    episodes, _, _ = collect(chunk=chunk, chunks=120 // chunk)
    order = sorted(range(len(reference)), key=lambda i: float(reference[i].state[0, 0]))
    other = sorted(range(len(episodes)), key=lambda i: float(episodes[i].state[0, 0]))
    assert len(order) == len(other)
    for i, j in zip(order, other, strict=True):
        assert same_episode(reference[i], episodes[j])


def test_environments_and_their_keys_do_not_depend_on_the_number_of_devices():
    one, _, _ = collect(devices=1)
    two, _, _ = collect(devices=2)
    assert all(same_episode(a, b) for a, b in zip(one, two, strict=True))


def test_the_stream_keeps_only_what_unfinished_episodes_need():
    _, _, rollout = collect(chunk=2, chunks=200)
    assert len(rollout.stream) <= -(-(CountingEnv().limit + 1) // 2) + 1


def test_saved_in_the_middle_it_goes_on_as_if_nothing_had_happened():
    learner = CountingLearner()
    policy = learner.init(None)
    straight, _, _ = collect(chunk=3, chunks=20)

    first = Rollout(CountingEnv(), learner, COPIES, 3, Devices.of())
    state = first.init(jax.random.PRNGKey(0))
    episodes = []
    for _ in range(7):
        state, ended, _ = first.collect(policy, state, 0.0)
        episodes += ended
    arrays, stored = first.save(), jax.device_get(state)
    second = Rollout(CountingEnv(), learner, COPIES, 3, Devices.of())
    second.init(jax.random.PRNGKey(99))
    second.load(arrays)
    state = second.shards.put(stored)
    for _ in range(13):
        state, ended, _ = second.collect(policy, state, 0.0)
        episodes += ended
    assert len(episodes) == len(straight)
    assert all(same_episode(a, b) for a, b in zip(episodes, straight, strict=True))


def test_many_chunks_are_one_compiled_program():
    traces = []

    class Watched(CountingEnv):
        def step(self, state, action, key):
            traces.append(1)
            return super().step(state, action, key)

    _, _, rollout = collect(env=Watched(), chunks=2)
    after_two = len(traces)
    state = rollout.init(jax.random.PRNGKey(1))
    for epsilon in np.linspace(1, 0, 30):
        state, _, _ = rollout.collect({"unused": jnp.zeros(1)}, state, float(epsilon))
    assert len(traces) == after_two and rollout._run._cache_size() == 1


def test_an_environment_with_an_empty_leaf_is_compiled_once_too():
    class WithNothing(CountingEnv):
        def reset(self, key):
            return super().reset(key), jnp.zeros((2, 0))

        def step(self, state, action, key):
            following, outcome = super().step(state[0], action, key)
            return (following, state[1]), outcome

        def observe(self, state):
            return super().observe(state[0])

        def avail(self, state):
            return super().avail(state[0])

        def state(self, state):
            return super().state(state[0])

    _, _, rollout = collect(env=WithNothing(), chunks=5)
    assert rollout._run._cache_size() == 1


class Broken(CountingEnv):
    """Fine until time 3."""

    def _spoil(self, state, value, spoilt):
        return jnp.where(state.time >= 3, spoilt, value)


class NanObservation(Broken):
    def observe(self, state):
        return self._spoil(state, super().observe(state), jnp.nan)


class InfiniteState(Broken):
    def state(self, state):
        return self._spoil(state, super().state(state), jnp.inf)


class NanReward(Broken):
    def step(self, state, action, key):
        following, outcome = super().step(state, action, key)
        return following, outcome._replace(reward=self._spoil(state, outcome.reward, jnp.nan))


class NoAction(Broken):
    def avail(self, state):
        return self._spoil(state, super().avail(state), False)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (NanObservation(), "NaN or infinity in obs"),
        (InfiniteState(), "NaN or infinity in state"),
        (NanReward(), "NaN or infinity in reward"),
        (NoAction(), "without any available action"),
    ],
)
def test_a_broken_environment_stops_the_run_with_an_explanation(env, message):
    with pytest.raises(EnvError, match=message) as error:
        collect(env=env, chunks=20)
    assert "emu check" in str(error.value)


@dataclasses.dataclass(frozen=True)
class Endless(CountingEnv):
    limit: int = 4

    def step(self, state, action, key):
        following, outcome = super().step(state, action, key)
        never = jnp.zeros((), bool)
        return following, Outcome(outcome.reward, never, never, never)


@pytest.mark.parametrize("chunk", [2, 50])
def test_an_episode_without_end_is_explained(chunk):
    with pytest.raises(EnvError, match=r"goes on after spec.episode_limit = 4"):
        collect(env=Endless(), chunk=chunk)


@pytest.mark.parametrize("chunk", [2, 50])
def test_an_episode_longer_than_its_limit_is_explained(chunk):
    with pytest.raises(EnvError, match=r"goes on after spec.episode_limit = 5"):
        collect(env=CountingEnv(limit=5), chunk=chunk, chunks=40)  # its episodes have up to 7 steps
