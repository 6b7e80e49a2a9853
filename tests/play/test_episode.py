"""One way to play: every kind of environment plays the same greedy episode, whoever asks for it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from emu import envs
from emu.config import RolloutConfig
from emu.devices import Devices
from emu.envs.protocols import VectorEnv
from emu.errors import EnvError
from emu.play.batched import ActingCopies, BatchedEvaluator
from emu.play.build import play_scripted, recorder
from emu.play.compiled import CompiledEvaluator
from emu.play.episode import Evaluation, InProcessEvaluator, PlayedEpisode, play_one, summary_of
from emu.play.gif import save_gif
from emu.play.worker_groups import Workers
from emu.play.workers import WorkerEvaluator
from emu.run.snapshots import read_snapshot
from emu.seeds import EpisodeSeeds, evaluation_episodes, recorded_episode, snapshot_episode
from emu.training.snapshots import SnapshotWriter
from emu.types import Outcome
from host_envs import LIMIT, NAMES, HostCounting
from toys import ACTIONS, CountingEnv, CountingLearner, CountState

SEEDS = [3, 20, 8, 13, 40]  # names of five different lengths and both endings


@dataclasses.dataclass(frozen=True)
class Compiled(CountingEnv):
    """Plays the episodes of `HostCounting`; a key names one by its last word, however often it has been split."""

    def reset(self, key):
        return CountState(jax.random.randint(key, (), 0, NAMES), jnp.int32(0), jnp.full(2, -1, jnp.int32))

    def draw(self, state):
        return np.full((2, 2, 3), state.time, np.uint8)


class Python(HostCounting):
    def snapshot(self):
        return SimpleNamespace(name=self.name, time=self.time)

    def draw(self, state):
        return np.full((2, 2, 3), state.time, np.uint8)


class Vector(VectorEnv):
    """Copies of the Python environment, stepped together."""

    def __init__(self):
        self.one = Python()
        self.spec, self.reset, self.step, self.snapshot, self.draw = (
            getattr(self.one, name) for name in ("spec", "reset", "step", "snapshot", "draw")
        )

    reset = step = None  # the instance has those of its single copy

    def open(self, copies, threads):
        return VectorCopies(copies)

    def states(self, obs):
        """An observation shows the last action of its agent only; the other's is in the other's observation."""
        return np.stack([obs[:, 0, 0], obs[:, 0, 1], obs[:, 0, 2], obs[:, 1, 2]], axis=1)


class VectorCopies:
    def __init__(self, copies):
        self.envs = [HostCounting() for _ in range(copies)]

    def reset(self, begins, seeds):
        for copy, seed in zip(np.flatnonzero(begins), seeds, strict=True):
            self.envs[copy].reset(int(seed))
        return self._obs()

    def step(self, action):
        outcomes = [env.step(row)[1] for env, row in zip(self.envs, action, strict=True)]
        return self._obs(), Outcome(*(np.array(column) for column in zip(*outcomes, strict=True)))

    def _obs(self):
        return np.stack([env.view().obs for env in self.envs])


def by_hand(name):
    """The greedy episode of that name, written down: the learner takes action t % ACTIONS in step t."""
    length = 1 + name % LIMIT
    action = [-1, *(t % ACTIONS for t in range(length))]
    states = np.array([[name, t, action[t], action[t]] for t in range(length + 1)], np.float32)
    reward = np.array([name + 0.125 * t for t in range(length)], np.float32)
    return PlayedEpisode(reward, float(reward.sum()), name % 2 == 1, states)


def require_same(played, expected):
    np.testing.assert_array_equal(played.reward, expected.reward)
    np.testing.assert_array_equal(played.states, expected.states)
    assert played.won == expected.won and played.length == expected.length
    assert played.total == pytest.approx(expected.total)


def given(numbers):
    """Seeds that are just these, for every kind; a compiled environment gets keys from which it draws those names."""
    names = [number % NAMES for number in numbers]
    return EpisodeSeeds(len(numbers), lambda: keys_for(names), lambda: numbers, lambda copies: numbers)


def keys_for(names):
    keys = jax.vmap(jax.random.PRNGKey)(jnp.arange(400))
    begins = jax.vmap(lambda key: jax.random.randint(jax.random.split(key)[0], (), 0, NAMES))(keys)
    return jnp.stack([keys[int(np.flatnonzero(np.asarray(begins) == name)[0])] for name in names])


@pytest.fixture(scope="module")
def evaluators():
    """One for each kind of environment."""
    learner, one = CountingLearner(), Devices.of(1)
    workers = Workers(envs.make("host_envs:HostCounting"), learner, one, RolloutConfig(workers=2), 0, 3)
    count = len(SEEDS)
    yield {
        "compiled": CompiledEvaluator(Compiled(), learner, count, Devices.of()),
        "in process": InProcessEvaluator(Python(), learner, count),
        "workers": WorkerEvaluator(workers, count),
        "batched": BatchedEvaluator(ActingCopies(Vector(), learner, count, 1, one)),
    }
    workers.close()


KINDS = ["compiled", "in process", "workers", "batched"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_environment_plays_the_episodes_written_down_by_hand(evaluators, kind):
    episodes = evaluators[kind].play({}, given(SEEDS), states=True)
    assert len(episodes) == len(SEEDS)
    for seed, episode in zip(SEEDS, episodes, strict=True):
        require_same(episode, by_hand(seed % NAMES))
    assert {episode.won for episode in episodes} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_is_made_of_the_same_episodes(evaluators, kind):
    evaluator = evaluators[kind]
    result = evaluator.evaluate({}, 7, 2)
    episodes = evaluator.play({}, evaluation_episodes(7, 2, len(SEEDS)), states=True)
    for row, episode in enumerate(episodes):
        expected = by_hand(int(episode.states[0, 0]))
        require_same(episode, expected)
        assert (result.total[row], result.won[row]) == (np.float32(expected.total), expected.won)
        assert result.length[row] == expected.length


class Listener:
    """Stands for the memory that a snapshot reads from: it knows nothing, and notes what it is asked."""

    radius = 1.0
    state_dim = 4

    def __len__(self):
        return 1

    def states(self, ids):
        return np.zeros((len(ids), 4), np.float32)

    def export(self, ids):
        names = ("best_return", "desirable", "visits", "desirable_visits", "t")
        return {"key": np.zeros((len(ids), 2), np.float32), **{name: np.zeros(len(ids)) for name in names}}

    def peek(self, states, times):
        zeros = np.zeros(len(states))
        return SimpleNamespace(found=zeros, best_return=zeros, desirable=zeros), np.zeros((len(states), 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_shows_the_same_episode(evaluators, kind, tmp_path):
    shot = read_snapshot(SnapshotWriter(tmp_path, evaluators[kind], seed=5).take(120, {}, Listener()))
    expected = by_hand(int(shot.episode.state[0, 0]))
    np.testing.assert_array_equal(shot.episode.state, expected.states)
    np.testing.assert_array_equal(shot.episode.total, np.cumsum([0, *expected.reward]))
    assert shot.won == expected.won
    (again,) = evaluators[kind].play({}, snapshot_episode(5, 120), states=True)
    np.testing.assert_array_equal(again.states, expected.states)


@pytest.mark.parametrize("env", [Compiled(), Python(), Vector()], ids=lambda env: type(env).__name__)
def test_a_gif_shows_the_same_episode(env, tmp_path):
    play = recorder(env, CountingLearner(), {}, states=True)
    names = set()
    for seed in range(3):
        episode = play(seed)
        names.add(int(episode.frames[0].name))
        require_same(episode, by_hand(int(episode.frames[0].name)))
        assert [int(frame.time) for frame in episode.frames] == list(range(episode.length + 1))
    assert len(names) > 1
    episode = max(map(play, range(8)), key=lambda one: one.length)
    with Image.open(save_gif(env, episode.frames, tmp_path / "team.gif")) as gif:
        assert gif.n_frames == episode.length + 1 > 2


def test_a_python_environment_begins_a_recording_with_the_seed_itself():
    (episode,) = InProcessEvaluator(Python(), CountingLearner()).play({}, recorded_episode(5), frames=True)
    assert {frame.name for frame in episode.frames} == {5} and episode.states is None


def test_a_python_environment_without_pictures_is_refused_only_if_they_are_wanted():
    with pytest.raises(EnvError, match=r"needs `snapshot\(\)` and `draw\(state\)`"):
        recorder(HostCounting(), CountingLearner(), {})(0)
    require_same(recorder(HostCounting(), CountingLearner(), {}, states=True, frames=False)(5), by_hand(5))


def test_an_episode_beyond_its_limit_is_explained():
    with pytest.raises(EnvError, match=r"goes on after spec.episode_limit = 3 steps"):
        play_one(HostCounting(limit=3), lambda view: np.zeros(2, np.int32), 5)


def test_an_evaluation_sums_up_means_over_episodes():
    episodes = [PlayedEpisode(np.zeros(4), 1.0, True), PlayedEpisode(np.zeros(8), 3.0, False)]
    expected = {"test_win_rate": 0.5, "test_return": 2.0, "test_return_std": 1.0, "test_length": 6.0}
    assert Evaluation.of(episodes).summary() == expected
    assert Evaluation.of(episodes, replaced_seeds=2).summary() == {**expected, "test_replaced_seeds": 2}


def test_a_summary_of_scripted_episodes_counts_lengths_returns_wins_and_last_states():
    episodes = [
        PlayedEpisode(np.zeros(4), 1.0, True, final={"left": 2.0}),
        PlayedEpisode(np.zeros(8), 3.0, False, final={"left": 4.0}),
    ]
    assert summary_of(episodes) == {
        "episodes": 2,
        "length_mean": 6.0,
        "length_std": 2.0,
        "return_mean": 2.0,
        "return_std": 1.0,
        "left_mean": 3.0,
        "left_std": 1.0,
        "win_rate": 0.5,
    }


@pytest.mark.parametrize("env", [Compiled(), Python(), Vector()], ids=lambda env: type(env).__name__)
def test_scripted_episodes_depend_on_the_seed_only(env):
    first, again, other = (play_scripted(env, "random", 6, seed, frames=True) for seed in (1, 1, 2))

    def told(episodes):
        return [(int(e.frames[0].name), e.length, e.total, e.won) for e in episodes]

    assert told(first) == told(again) != told(other)
    for name, length, total, won in told(first):
        expected = by_hand(name)  # its rewards do not depend on the actions
        assert (length, won) == (expected.length, expected.won) and total == pytest.approx(expected.total)
