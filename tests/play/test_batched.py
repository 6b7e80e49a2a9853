"""Environments that step many copies at once: episodes against plain play, no boundary crossed, exact resumption."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.devices import Devices
from emu.envs import EnvSpec, View
from emu.envs.check import check_env
from emu.envs.protocols import VectorEnv
from emu.errors import CheckpointError
from emu.play.batched import ActingCopies, BatchedEvaluator, BatchedRollout
from emu.seeds import evaluation_episodes, snapshot_episode
from emu.types import Outcome
from toys import same_episode

LIMIT, ACTIONS = 9, 3


class Dice:
    """One copy: what it shows depends on its seed and on every action so far."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.length = int(self.rng.integers(1, LIMIT + 1))
        self.time, self.sum = 0, int(self.rng.integers(1, 200))

    def show(self):
        return np.array([self.sum % 251, self.time], np.uint8)

    def step(self, action):
        self.time += 1
        self.sum += 7 * int(action) + int(self.rng.integers(5))
        over = self.time >= self.length
        return float(self.sum % 3), over and self.length % 2 == 1, over and self.length % 2 == 0


class DiceCopies:
    def __init__(self, copies):
        self.dice = [Dice(0) for _ in range(copies)]

    def reset(self, begins, seeds):
        for copy, seed in zip(np.flatnonzero(begins), seeds, strict=True):
            self.dice[copy] = Dice(int(seed))
        return self.show()

    def step(self, action):
        outcomes = [dice.step(a) for dice, a in zip(self.dice, action[:, 0], strict=True)]
        reward, terminated, truncated = (np.array(column) for column in zip(*outcomes, strict=True))
        return self.show(), Outcome(reward.astype(np.float32), terminated, truncated, np.zeros(len(reward), bool))

    def show(self):
        return np.stack([dice.show() for dice in self.dice])[:, None]

    def close(self):
        pass


class DiceEnv(VectorEnv):
    """States are computed from whole episodes: half of what was seen."""

    spec = EnvSpec(
        "dice", "1", 1, ACTIONS, 2, 2, LIMIT, 2, False, (0.0, 99.0), obs_type="uint8", state_type="float16", stack=3
    )

    def open(self, copies, threads):
        return DiceCopies(copies)

    def states(self, obs):
        return (obs[:, 0] / 2).astype(np.float16)

    def reset(self, seed):
        self.one = Dice(seed)
        return self.view()

    def step(self, action):
        outcome = self.one.step(action[0])
        return self.view(), Outcome(*outcome, False)

    def view(self):
        obs = self.one.show()[None]
        return View(obs, self.states(obs[None])[0], np.ones((1, ACTIONS), bool))


class Habit:
    """A learner that acts by what it has seen in this episode: the sum of all pictures so far."""

    on_policy = False

    def initial_carry(self, copies):
        return jnp.zeros(copies, jnp.int32)

    def act(self, policy, carry, obs, avail, explore, key):
        seen = carry + obs[:, 0, 0].astype(jnp.int32) + 1
        return (seen % ACTIONS)[:, None], seen

    def log_prob(self, carry):
        return None


def rollout(copies=4, chunk=5):
    devices = Devices(tuple(jax.devices()[:1]))
    return BatchedRollout(ActingCopies(DiceEnv(), Habit(), copies, 1, devices), chunk, devices)


def collect(player, state, chunks):
    episodes, steps = [], 0
    for _ in range(chunks):
        state, more, count = player.collect({}, state, 0.0)
        episodes, steps = episodes + more, steps + count
    return state, episodes, steps


def played(episode):
    """The same episode by one plain die, found by the first picture and length, with the actions taken."""
    for seed in collected_seeds:
        dice = Dice(seed)
        if np.array_equal(dice.show(), episode.obs[0, 0]) and dice.length == episode.length:
            shown, outcomes = [dice.show()], []
            for action in episode.action[:, 0]:
                outcomes.append(dice.step(action))
                shown.append(dice.show())
            if np.array_equal(np.stack(shown), episode.obs[:, 0]):
                return outcomes
    raise AssertionError("no seed that was given plays this episode")


collected_seeds: list[int] = []


@pytest.fixture
def seeds(monkeypatch):
    collected_seeds.clear()
    original = DiceCopies.reset

    def reset(self, begins, seeds):
        collected_seeds.extend(int(seed) for seed in seeds)
        return original(self, begins, seeds)

    monkeypatch.setattr(DiceCopies, "reset", reset)
    return collected_seeds


@pytest.mark.parametrize(("copies", "chunk"), [(4, 5), (1, 1), (3, 16)])
def test_every_episode_is_what_a_plain_copy_plays_from_its_seed(seeds, copies, chunk):
    player = rollout(copies, chunk)
    _, episodes, steps = collect(player, player.init(jax.random.PRNGKey(1)), 200 // chunk)
    assert len(episodes) >= 20
    for episode in episodes:
        reward, terminated, truncated = zip(*played(episode), strict=True)
        np.testing.assert_array_equal(episode.reward, reward)
        np.testing.assert_array_equal(episode.terminated, terminated)
        np.testing.assert_array_equal(episode.truncated, truncated)
        ends = episode.terminated | episode.truncated
        assert ends[-1] and not ends[:-1].any()
        habit = (np.cumsum(episode.obs[:-1, 0, 0].astype(int) + 1)) % ACTIONS  # begins anew in every episode
        np.testing.assert_array_equal(episode.action[:, 0], habit)
        assert episode.obs.dtype == np.uint8 and episode.avail.all()
        np.testing.assert_array_equal(episode.state, (episode.obs[:, 0] / 2).astype(np.float16))
    assert len({episode.obs.tobytes() for episode in episodes}) > len(episodes) // 2
    unfinished = copies * chunk * (200 // chunk) - sum(episode.length + 1 for episode in episodes)
    assert steps == sum(episode.length for episode in episodes) + unfinished


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_resumed_rollout_goes_on_as_if_it_had_never_stopped(stop):
    whole = rollout()
    _, expected, _ = collect(whole, whole.init(jax.random.PRNGKey(2)), 12)
    first, second = rollout(), rollout()
    state, before, _ = collect(first, first.init(jax.random.PRNGKey(2)), stop)
    saved = {name: np.array(array) for name, array in first.save().items()}
    second.init(jax.random.PRNGKey(3))
    second.load(saved)
    _, after, _ = collect(second, jax.device_get(state), 12 - stop)
    assert len(before + after) == len(expected) > 10
    assert all(same_episode(a, b) for a, b in zip(before + after, expected, strict=True))


def test_games_that_play_differently_after_a_stop_are_refused(monkeypatch):
    first, second = rollout(), rollout()
    state, _, _ = collect(first, first.init(jax.random.PRNGKey(2)), 3)
    second.load(first.save())
    monkeypatch.setattr(Dice, "show", lambda self: np.array([self.sum % 7, self.time], np.uint8))
    with pytest.raises(CheckpointError, match="another version"):
        second.collect({}, state, 0.0)


def test_an_evaluation_depends_on_seed_and_number_alone_and_counts_each_episode_once():
    devices = Devices(tuple(jax.devices()[:1]))
    evaluator = BatchedEvaluator(ActingCopies(DiceEnv(), Habit(), 6, 1, devices), 0.0)
    first, again, other = (evaluator.evaluate({}, 5, number) for number in (0, 0, 1))
    np.testing.assert_array_equal(first.total, again.total)
    assert not np.array_equal(first.total, other.total)
    assert (first.length >= 1).all() and not first.won.any()


def test_only_the_episodes_asked_for_are_played_to_their_end():
    """A snapshot's single episode in six copies: what one plain die plays, with the same habit."""
    devices = Devices(tuple(jax.devices()[:1]))
    evaluator = BatchedEvaluator(ActingCopies(DiceEnv(), Habit(), 6, 1, devices))
    seeds = snapshot_episode(3, 70)
    (episode,) = evaluator.play({}, seeds, states=True)
    dice, seen, rewards, shown = Dice(seeds.rows(6)[0]), 0, [], []
    for _ in range(dice.length):
        shown.append(dice.show())
        seen += int(dice.show()[0]) + 1
        rewards.append(dice.step(seen % ACTIONS)[0])
    np.testing.assert_array_equal(episode.reward, rewards)
    np.testing.assert_array_equal(episode.states, np.stack([*shown, dice.show()]) / 2)
    assert episode.states.dtype == np.float32 and episode.total == sum(rewards)


def test_more_episodes_than_copies_are_played_in_parts():
    """Fifteen in six copies: the same as in fifteen, one after the other."""
    devices = Devices(tuple(jax.devices()[:1]))
    seeds = evaluation_episodes(4, 2, 15)
    few, many = (BatchedEvaluator(ActingCopies(DiceEnv(), Habit(), n, 1, devices), 0.0, 15) for n in (6, 15))
    parts, whole = few.play({}, seeds, states=True), many.play({}, seeds, states=True)
    assert len(parts) == few.episodes == 15
    for a, b in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(a.reward, b.reward)
        np.testing.assert_array_equal(a.states, b.states)
    np.testing.assert_array_equal(few.evaluate({}, 4, 2).total, many.evaluate({}, 4, 2).total)


def test_the_toy_itself_keeps_the_contract():
    check_env(DiceEnv())
