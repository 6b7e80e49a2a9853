"""The replay against a plain list, and how batches are padded."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ConfigError
from emu.replay.episodes import Replay, bucket_lengths, longest_first, stack
from toys import CountingEnv, make_episode, same_episode

SPEC = CountingEnv().spec
LONGEST = SPEC.step_bytes * (SPEC.episode_limit + 1)
lengths = st.lists(st.integers(1, SPEC.episode_limit), max_size=40)


def oracle(episodes, capacity, max_bytes):
    """First in, first out, in the most obvious way: drop from the front until the newest fits."""
    kept = []
    for episode in episodes:
        kept.append(episode)
        while len(kept) > capacity or sum(e.nbytes for e in kept) > max_bytes:
            kept.pop(0)
    return kept


@given(lengths, st.integers(1, 12), st.integers(LONGEST, 6 * LONGEST))
def test_ring_keeps_what_a_plain_list_keeps(lengths, capacity, max_bytes):
    replay, episodes = Replay(SPEC, capacity, max_bytes), []
    for number, length in enumerate(lengths):
        episodes.append(make_episode(SPEC, length, number))
        replay.add(episodes[-1:])
        assert replay.nbytes <= max_bytes and len(replay) <= capacity
    expected = oracle(episodes, capacity, max_bytes)
    held = replay.since(0)
    assert len(held) == len(expected)
    assert all(a is b for a, b in zip(held, expected, strict=True))
    assert replay.nbytes == sum(e.nbytes for e in held)
    assert (replay.added, replay.first) == (len(lengths), len(lengths) - len(held))


@given(st.integers(0, 30))
def test_since_gives_the_tail_from_a_number_on(number):
    replay = Replay(SPEC, 8, 10**6)
    episodes = [make_episode(SPEC, 2, n) for n in range(20)]
    replay.add(episodes)
    assert [float(e.reward[0]) for e in replay.since(number)] == [float(n) for n in range(max(12, number), 20)]


def test_bytes_of_an_episode_are_what_the_bound_is_reckoned_with():
    longest = make_episode(SPEC, SPEC.episode_limit)
    assert longest.nbytes <= LONGEST < longest.nbytes + 2 * SPEC.step_bytes


def test_a_bound_below_one_episode_is_refused():
    with pytest.raises(ConfigError, match=r"Raise replay.gigabytes"):
        Replay(SPEC, 10, LONGEST - 1)


@pytest.mark.parametrize(
    ("limit", "count", "expected"),
    [(12, 4, (3, 6, 9, 12)), (30, 4, (8, 15, 23, 30)), (1, 4, (1,)), (3, 4, (1, 2, 3)), (7, 1, (7,))],
)
def test_buckets_are_spread_up_to_the_limit(limit, count, expected):
    assert bucket_lengths(limit, count) == expected


@given(st.integers(1, 500), st.integers(1, 16))
def test_every_length_has_a_bucket(limit, count):
    buckets = bucket_lengths(limit, count)
    assert len(buckets) <= count and buckets[-1] == limit and buckets[0] >= 1


def test_batch_length_is_the_smallest_bucket_that_holds_the_longest():
    replay = Replay(SPEC, 8, 10**6, buckets=3)  # 3, 5, 7
    assert [replay.length_for([make_episode(SPEC, n)]) for n in range(1, 8)] == [3, 3, 3, 5, 5, 7, 7]
    assert replay.length_for([make_episode(SPEC, 1), make_episode(SPEC, 4)]) == 5


def test_batches_are_padded_with_zeros_and_open_actions():
    replay = Replay(SPEC, 8, 10**6)
    episodes = [make_episode(SPEC, 2, 5), make_episode(SPEC, 4, 6)]
    batch = replay.batch(episodes, 5)
    assert batch.obs.shape == (2, 6, 2, SPEC.obs_dim) and batch.action.shape == (2, 5, 2)
    for row, episode in enumerate(episodes):
        steps = episode.length
        for name in ("obs", "state", "avail"):
            np.testing.assert_array_equal(getattr(batch, name)[row, : steps + 1], getattr(episode, name))
        for name in ("action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(batch, name)[row, :steps], getattr(episode, name))
            assert not getattr(batch, name)[row, steps:].any()
        assert batch.filled[row].tolist() == [t < steps for t in range(5)]
        assert batch.avail[row, steps + 1 :].all()
        assert batch.time[row].tolist() == [0, 1, 2, 3, 4]
        assert not batch.obs[row, steps + 1 :].any() and not batch.state[row, steps + 1 :].any()


def test_log_probabilities_are_batched_where_episodes_have_them():
    replay = Replay(SPEC, 8, 10**6)
    assert replay.batch([make_episode(SPEC, 2)], 3).log_prob is None
    episodes = [make_episode(SPEC, 2, 5, log_prob=True), make_episode(SPEC, 3, 6, log_prob=True)]
    batches = stack([replay.batch(episodes, 3)] * 2)
    assert batches.log_prob.shape == (2, 2, 3, SPEC.n_agents) and not batches.log_prob[:, 0, 2].any()
    np.testing.assert_array_equal(batches.log_prob[1, 0, :2], episodes[0].log_prob)
    np.testing.assert_array_equal(batches.log_prob[1, 1], episodes[1].log_prob)


def test_what_is_taken_is_the_oldest_and_is_gone():
    replay = filled_replay(10)
    assert numbers(replay.take(4)) == [0, 1, 2, 3] and numbers(replay.take(3)) == [4, 5, 6]
    assert (len(replay), replay.first, replay.added) == (3, 7, 10)
    assert replay.nbytes == sum(episode.nbytes for episode in replay.since(0))


def test_stack_puts_batches_along_a_new_axis():
    replay = Replay(SPEC, 8, 10**6)
    batches = [replay.batch([make_episode(SPEC, 2, n)], 3) for n in range(2)]
    stacked = stack(batches)
    assert stacked.obs.shape == (2, 1, 4, 2, SPEC.obs_dim)
    np.testing.assert_array_equal(stacked.reward[1], batches[1].reward)


@pytest.mark.parametrize(("lengths", "calls"), [((5, 5, 5), [3]), ((5, 7, 5), [1, 1, 1])])
def test_a_batch_is_not_padded_because_of_its_neighbours(monkeypatch, lengths, calls):
    replay = Replay(SPEC, 20, 10**6)
    replay.add(make_episode(SPEC, 2 + n % 2, n) for n in range(20))
    remaining = iter(lengths)
    monkeypatch.setattr(replay, "length_for", lambda group: next(remaining))
    drawn = replay.draw(4, 3, 10, 3)
    assert [len(batches.reward) for batches in drawn] == calls
    rewards = [batches.reward[u, :, 0].tolist() for batches in drawn for u in range(len(batches.reward))]
    samples = [longest_first(replay.sample(4, 3, 10 + k)) for k in range(3)]
    assert rewards == [[float(episode.reward[0]) for episode in sample] for sample in samples]


def test_a_batch_has_its_longest_episodes_first_on_every_device():
    episodes = [make_episode(SPEC, length) for length in (3, 7, 1, 6, 2, 7)]
    assert [episode.length for episode in longest_first(episodes)] == [7, 7, 6, 3, 2, 1]
    assert [episode.length for episode in longest_first(episodes, 2)] == [7, 6, 2, 7, 3, 1]
    replay = Replay(SPEC, 8, 10**6, shares=2)
    assert replay.batches([episodes])[0].filled[0].sum(axis=-1).tolist() == [7, 6, 2, 7, 3, 1]


def filled_replay(count=200):
    replay = Replay(SPEC, count, 10**7)
    replay.add(make_episode(SPEC, 1, n) for n in range(count))
    return replay


def numbers(episodes):
    return [int(e.reward[0]) for e in episodes]


def test_sampling_is_a_pure_function_of_seed_and_update():
    first, second = filled_replay(), filled_replay()
    assert numbers(first.sample(8, 3, 5)) == numbers(second.sample(8, 3, 5)) == numbers(first.sample(8, 3, 5))
    assert numbers(first.sample(8, 3, 6)) != numbers(first.sample(8, 3, 5)) != numbers(first.sample(8, 4, 5))


def test_a_sample_holds_no_episode_twice():
    assert sorted(numbers(filled_replay(16).sample(16, 0, 0))) == list(range(16))


def test_samples_of_neighbouring_updates_are_independent():
    replay, updates, size = filled_replay(), 400, 8
    samples = [set(numbers(replay.sample(size, 0, update))) for update in range(updates)]
    shared = np.mean([len(a & b) for a, b in itertools.pairwise(samples)])
    assert shared == pytest.approx(size * size / len(replay), abs=0.1)  # 0.32 by chance; sd of the mean 0.03


def test_samples_reach_every_episode_alike():
    replay = filled_replay(20)
    counts = np.bincount([n for update in range(1000) for n in numbers(replay.sample(4, 1, update))], minlength=20)
    assert counts.min() > 140 and counts.max() < 260  # 200 each; five standard deviations are 63


def test_restore_brings_back_numbers_and_order():
    replay = Replay(SPEC, 5, 10**6)
    replay.add(make_episode(SPEC, 3, n) for n in range(9))
    other = Replay(SPEC, 5, 10**6)
    other.restore(replay.since(0), replay.added)
    assert (other.added, other.first, other.nbytes) == (9, 4, replay.nbytes)
    assert all(same_episode(a, b) for a, b in zip(replay.since(0), other.since(0), strict=True))
