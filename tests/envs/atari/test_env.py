"""Atari through ale-py's vector environment: boundaries, seeds, features, whole runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.config.presets import preset
from emu.devices import Devices
from emu.envs.atari.features.weights import WeightsError
from emu.envs.check import check_env
from emu.errors import EnvError
from emu.play.batched import ActingCopies, BatchedEvaluator, BatchedRollout
from emu.run.metrics import read_rows
from emu.training.loop import Trainer
from emu.training.session import resume, train
from toys import silent

pytest.importorskip("ale_py", reason="ale-py is not installed: pip install 'emu-marl[atari]'")


LIMIT = 165  # some games end before, some do not


class Busy:
    """Acts by what it sees and how long it has played, so that copies part ways."""

    on_policy = False

    def initial_carry(self, copies):
        return jnp.zeros(copies, jnp.int32)

    def act(self, policy, carry, obs, avail, epsilon, key):
        mixed = (obs[:, 0].astype(jnp.uint32).sum(axis=-1) + carry.astype(jnp.uint32)) * jnp.uint32(2654435761)
        return (mixed >> 30).astype(jnp.int32)[:, None], carry + 1

    def log_prob(self, carry):
        return None


@pytest.fixture(scope="module")
def env():
    return envs.make("atari/breakout", episode_limit=LIMIT)


@pytest.fixture(scope="module")
def episodes(env):
    devices = Devices(tuple(jax.devices()[:1]))
    rollout = BatchedRollout(ActingCopies(env, Busy(), 3, 1, devices), 25, devices)
    state, found = rollout.init(jax.random.PRNGKey(0)), []
    for _ in range(16):
        state, more, _ = rollout.collect({}, state, 0.0)
        found += more
    return found


def test_the_specification_says_pictures(env):
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_dim, spec.picture, spec.stack) == (1, 4, 84 * 84, (84, 84), 4)
    assert spec.step_fields["obs"][1] == "uint8" and spec.state_is_obs
    assert envs.make("atari/alien").spec.n_actions == 18


def plays_from(env, seed, episode):
    """Whether a single game with this seed shows and answers the same, all the way."""
    if not np.array_equal(env.reset(seed).obs, episode.obs[0]):
        return False
    for t in range(episode.length):
        view, outcome = env.step(episode.action[t])
        flags = float(outcome.reward), bool(outcome.terminated), bool(outcome.truncated)
        if flags != (episode.reward[t], episode.terminated[t], episode.truncated[t]):
            return False
        if not np.array_equal(view.obs, episode.obs[t + 1]):
            return False
    return True


def test_every_episode_is_what_a_single_game_plays_from_its_first_picture_on(env, episodes):
    """No picture, reward or flag comes from another episode: a plain copy that is told the same actions agrees."""
    from emu.seeds import seed_of

    key = np.asarray(jax.random.PRNGKey(0), np.uint32)
    seeds = [seed_of(*key, copy, number) for number in range(1, 4) for copy in range(3)]
    assert len(episodes) >= 4 and {bool(e.terminated[-1]) for e in episodes} == {False, True}
    for episode in episodes:
        assert any(plays_from(env, seed, episode) for seed in seeds)  # several seeds may idle for as long
        assert episode.terminated.sum() + episode.truncated.sum() == 1


def test_the_time_limit_truncates_and_nothing_else(episodes):
    for episode in episodes:
        assert episode.truncated[-1] == (episode.length == LIMIT and not episode.terminated[-1])


def test_rewards_are_the_games_own():
    """A brick of the upper rows counts 4 or 7: returns are not clipped. Alien's first dots count 10."""
    env, rng = envs.make("atari/alien"), np.random.default_rng(0)
    env.reset(0)
    rewards = {float(env.step(rng.integers(0, 18, 1))[1].reward) for _ in range(150)}
    assert max(rewards) >= 10


def test_the_environment_keeps_the_contract(env):
    check_env(env, episodes=1)


def test_features_are_the_state_and_random_ones_are_asked_for():
    env = envs.make("atari/breakout", features="random", cut="stem", pool=1)
    assert env.spec.state_dim == 64 and env.spec.step_fields["state"][1] == "float16" and not env.spec.state_is_obs
    view = env.reset(3)
    np.testing.assert_array_equal(view.state, env.states(view.obs[None])[0])
    later, _ = env.step(np.array([2]))
    assert view.state.dtype == np.float16 and not np.array_equal(view.state, later.state)


def test_without_a_weights_file_pretrained_features_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(WeightsError, match=r"resnet18\.safetensors"):
        train(preset("emu_dqn", "atari/breakout"), tmp_path / "run", silent())
    assert not (tmp_path / "run").exists()


def test_an_unknown_argument_is_an_error_with_a_suggestion():
    with pytest.raises(EnvError, match="features"):
        envs.make("atari/breakout", feature="random")


SMALL = {
    "steps": 320,
    "log_interval": 100,
    "tensorboard": False,
    "devices": 1,
    "rollout.envs": 2,
    "rollout.chunk": 20,
    "rollout.random_steps": 100,
    "rollout.epsilon_steps": 100,
    "learner.batch_size": 4,
    "learner.updates_per_episode": 2,
    "dqn.hidden": 8,
    "replay.steps": 600,
    "memory.capacity": 500,
    "memory.return_threshold": 1.0,
    "memory.radius": 0.1,
    "memory.snapshot_interval": 200,
    "memory.embedder.interval": 100,
    "memory.embedder.samples": 64,
    "memory.embedder.batch_size": 32,
    "eval.interval": 200,
    "eval.episodes": 2,
    "checkpoint.interval": 100,
}
ARGS = {"features": "random", "cut": "stem", "pool": 1, "episode_limit": 60}


class Crash(Exception):
    pass


def test_crashed_and_resumed_an_atari_run_writes_what_it_would_have_written(tmp_path, monkeypatch):
    """EMU on pixels from end to end: features, memory, snapshots, tests, and games played again after a crash."""
    config = preset("emu_dqn", "atari/breakout", **SMALL, env_args=ARGS)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config, whole, silent())
    original = Trainer.learn
    start = lambda: train(config, broken, silent())  # noqa: E731
    for crash_at in (150, 260):

        def learn(self, crash_at=crash_at):
            original(self)
            if self.counters.step >= crash_at:
                raise Crash

        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(Trainer, "learn", learn)
            start()
        start = lambda: resume(broken, None, silent())  # noqa: E731
    start()
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    rows = read_rows(whole)
    last = {name: value for row in rows for name, value in row.items()}
    assert last["updates"] > 4 and last["memory_size"] > 50 and last["replay_bytes"] > 0 and last["rollout_bytes"] > 0
    assert last["incentive_hit_rate"] > 0 and len(list((whole / "snapshots").glob("*.npz"))) == 2


def test_clipped_rewards_are_learned_from_and_whole_ones_are_reported(tmp_path):
    config = preset("dqn", "atari/alien", **SMALL | {"steps": 200}, env_args={"episode_limit": 60})
    trainer = Trainer(config, tmp_path, silent())
    trainer.open_writer()
    while trainer.counters.episodes < 2:
        trainer.remember(trainer.collect())
    rewards = np.concatenate([episode.reward for episode in trainer.replay.since(0)])
    assert rewards.max() == 1.0 and trainer.means.take()["train_return"] >= 10
    trainer.writer.close()


def test_a_test_plays_whole_episodes_with_its_own_seeds(env):
    evaluator = BatchedEvaluator(ActingCopies(env, Busy(), 2, 1, Devices(tuple(jax.devices()[:1]))), 0.0)
    first, again = evaluator.evaluate({}, 0, 1), evaluator.evaluate({}, 0, 1)
    np.testing.assert_array_equal(first.total, again.total)
    assert (first.length <= LIMIT).all() and (first.length > 20).all()
