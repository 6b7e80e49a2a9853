"""The replay of single steps against a plain list of episodes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.config import Config, replace
from emu.envs import EnvSpec
from emu.errors import ConfigError
from emu.replay.steps import Transitions
from emu.types import SEEN
from toys import CountingEnv, make_episode, same_episode

DISCRETE = CountingEnv().spec
CONTINUOUS = EnvSpec("moving", "1", 1, 1, 3, 3, 7, 0, False, (-1.0, 1.0), action_dim=2, state_is_obs=True)
LIMIT = DISCRETE.episode_limit
lengths = st.lists(st.integers(1, LIMIT), min_size=1, max_size=40)
specs = st.sampled_from([DISCRETE, CONTINUOUS])


def kept_of(episodes, slots):
    """First in, first out, in the most obvious way: an episode takes a slot more than it has steps."""
    kept = []
    for episode in episodes:
        kept.append(episode)
        while sum(e.length + 1 for e in kept) > slots:
            kept.pop(0)
    return kept


def filled(spec, lengths, slots=10**3):
    replay = Transitions(spec, slots, 10**9)
    episodes = [make_episode(spec, length, number) for number, length in enumerate(lengths)]
    replay.add(episodes)
    return replay, episodes


@given(specs, lengths, st.integers(LIMIT + 1, 40))
def test_the_ring_keeps_the_steps_that_a_plain_list_keeps(spec, lengths, slots):
    replay, episodes = filled(spec, lengths, slots)
    kept = kept_of(episodes, slots)
    assert (len(replay), replay.steps) == (len(kept), sum(e.length for e in kept))
    assert replay.nbytes == sum(e.length + 1 for e in kept) * replay.slot_bytes <= replay.most_bytes
    assert (replay.added, replay.first) == (len(episodes), len(episodes) - len(kept))
    batch = replay.gather(np.arange(replay.steps)[:, None])
    rows = [(episode, t) for episode in kept for t in range(episode.length)]
    for row, (episode, t) in enumerate(rows):
        for name in SEEN:
            np.testing.assert_array_equal(getattr(batch, name)[row, 0], getattr(episode, name)[t : t + 2])
        for name in ("action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(batch, name)[row, 0, 0], getattr(episode, name)[t])
        assert batch.time[row].tolist() == [[t]]
    assert batch.filled.all() and batch.filled.shape == (replay.steps, 1, 1)
    assert all(same_episode(a, b) for a, b in zip(replay.since(0), kept, strict=True))


@given(lengths, st.integers(0, 45))
def test_since_gives_the_tail_from_a_number_on(lengths, number):
    replay, episodes = filled(DISCRETE, lengths, 60)
    expected = episodes[max(number, replay.first) :]
    assert all(same_episode(a, b) for a, b in zip(replay.since(number), expected, strict=True))


@given(specs, lengths, lengths)
def test_a_restored_ring_draws_and_forgets_like_the_old_one(spec, before, after):
    replay, _ = filled(spec, before, 30)
    other = Transitions(spec, 30, 10**9)
    other.restore(replay.since(0), replay.added)
    more = [make_episode(spec, length, 100 + number) for number, length in enumerate(after)]
    for ring in (replay, other):
        ring.add(more)
    assert (other.added, other.first, other.steps, other.nbytes) == (
        replay.added,
        replay.first,
        replay.steps,
        replay.nbytes,
    )
    for one, two in zip(replay.draw(5, 1, 2, 3)[0], other.draw(5, 1, 2, 3)[0], strict=True):
        np.testing.assert_array_equal(one, two)


def names(batches):
    """Which steps were drawn: rewards tell episode and time."""
    return batches.reward[..., 0].tolist()


def test_what_is_drawn_depends_on_seed_and_update_alone():
    replay, _ = filled(DISCRETE, [5] * 30)
    (three,) = replay.draw(8, 3, 5, 3)
    assert three.obs.shape == (3, 8, 2, 2, DISCRETE.obs_dim) and three.action.shape == (3, 8, 1, 2)
    assert names(three) == [names(replay.draw(8, 3, 5 + k, 1)[0])[0] for k in range(3)]
    assert names(three)[0] != names(three)[1] and names(three)[0] != names(replay.draw(8, 4, 5, 1)[0])[0]


def test_long_episodes_are_drawn_from_more_often_every_step_alike():
    replay, _ = filled(DISCRETE, [1, 2, 7])
    (batches,) = replay.draw(100, 0, 0, 100)
    drawn, counts = np.unique(batches.reward, return_counts=True)
    assert len(drawn) == 10 and counts.min() > 850 and counts.max() < 1150  # 1000 each; five deviations are 150


def test_a_state_that_is_the_observation_is_kept_once():
    twice = dataclasses.replace(CONTINUOUS, state_is_obs=False)
    one, two = Transitions(CONTINUOUS, 100, 10**9), Transitions(twice, 100, 10**9)
    assert two.slot_bytes - one.slot_bytes == 4 * CONTINUOUS.state_dim


@pytest.mark.parametrize(("steps", "max_bytes"), [(LIMIT, 10**9), (10**6, 600)])
def test_bounds_below_one_episode_are_refused(steps, max_bytes):
    with pytest.raises(ConfigError, match=r"Raise replay.steps"):
        Transitions(DISCRETE, steps, max_bytes)


def test_bytes_bound_the_steps():
    replay = Transitions(DISCRETE, 10**9, 10**5)
    assert replay.slots == 10**5 // replay.slot_bytes and replay.most_bytes <= 10**5


def test_a_batch_larger_than_the_replay_is_refused():
    with pytest.raises(ConfigError, match=r"exceeds replay.steps \(20\)"):
        replace(Config(), {"replay.unit": "steps", "replay.steps": 20})


@given(lengths, st.integers(LIMIT + 1, 40), st.integers(2, 4))
def test_stacks_never_reach_into_another_episode(lengths, slots, stack):
    """Against the obvious way: zeros in front of the episode, then a window on it."""
    spec = dataclasses.replace(CONTINUOUS, stack=stack)
    replay, episodes = filled(spec, lengths, slots)
    batch = replay.gather(np.arange(replay.steps))
    row = 0
    for episode in kept_of(episodes, slots):
        padded = np.concatenate([np.zeros((stack - 1, 1, spec.obs_dim), np.float32), episode.obs])
        for t in range(episode.length):
            for k in (0, 1):
                window = padded[t + k : t + k + stack, 0].reshape(-1)
                np.testing.assert_array_equal(batch.obs[row, k, 0], window)
                np.testing.assert_array_equal(batch.state[row, k], episode.state[t + k])
            row += 1
    assert row == replay.steps and batch.obs.shape[-1] == stack * spec.obs_dim


def test_pictures_are_kept_once_as_bytes_and_features_in_half_precision():
    shape = {"obs_dim": 6, "state_dim": 4, "obs_type": "uint8", "state_type": "float16", "stack": 4}
    spec = dataclasses.replace(CONTINUOUS, action_dim=0, n_actions=2, state_is_obs=False, **shape)
    replay = Transitions(spec, 100, 10**9)
    assert replay.slot_bytes == 6 + 2 * 4 + 2 + 4 + 4 + 1 + 1 + 12  # obs, state, avail, action, reward, flags, its own
    episode = make_episode(spec, 5)._replace(obs=np.arange(36, dtype=np.uint8).reshape(6, 1, 6))
    replay.add([episode])
    batch = replay.gather(np.array([3]))
    assert batch.obs.dtype == np.uint8 and batch.state.dtype == np.float16
    np.testing.assert_array_equal(batch.obs[0, 0, 0], np.arange(24))  # four pictures, oldest first
    assert replay.nbytes == 6 * replay.slot_bytes
