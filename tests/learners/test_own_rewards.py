"""Rewards of the agents' own: IQL and IPPO against their oracles, the way through worker processes, and refusals."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env
from emu.errors import ConfigError, EnvError
from emu.learners.mappo import MappoLearner
from emu.play.build import play_scripted
from emu.replay.episodes import Replay
from emu.run.metrics import read_rows
from emu.training.loop import Trainer
from emu.training.session import train
from toys import silent, tiny_config

from . import cases, oracles, ppo_oracles
from .cases import N, assert_trees_close, updated
from .test_mappo import EPOCHS
from .test_mappo import oracle_update as ppo_update
from .test_mappo import started as ppo_started
from .test_value import oracle_update, value_of_each_agent

SPEC = dataclasses.replace(cases.SPEC, own_rewards=True)
ENV = "host_envs:OwnRewards"


def batch(seed, shared=False):
    """A batch in which every agent has another reward, or (`shared`) the same in the shape of their own."""
    made = cases.batch(seed=seed, padding=9.0)
    other = made.reward if shared else np.random.default_rng(seed + 9).normal(size=made.reward.shape)
    return made._replace(reward=np.stack([made.reward, other], axis=-1).astype(np.float32))


@functools.cache
def iql(td_lambda):
    return cases.learner_of(cases.config(mixer__kind="none", learner__td_lambda=td_lambda), spec=SPEC)


@functools.cache
def ippo():
    ppo = {"ppo__epochs": EPOCHS, "ppo__entropy": 0.1, "ppo__huber": 0.7, "ppo__critic": "own"}
    config = cases.config(learner__kind="mappo", rollout__epsilon_end=1.0, **ppo)
    return cases.learner_of(config, kind=MappoLearner, spec=SPEC)


@pytest.mark.parametrize("td_lambda", [0.0, 0.7])
def test_two_updates_of_iql_are_those_of_the_oracle(td_lambda):
    learner = iql(td_lambda)
    state = cases.started(learner)
    params, target = oracles.as_float64((state.params, state.target))
    square = oracles.zeros(params)
    for update in range(2):
        made = batch(update)
        params, square, loss = oracle_update(params, target, square, made, value_of_each_agent, learner.config)
        state, metrics = updated(learner, state, made)
        np.testing.assert_allclose(metrics["td_loss"][0], loss, rtol=1e-4)
        assert_trees_close(state.params, params, rtol=0, atol=3e-5)


def test_two_updates_of_ippo_are_those_of_the_oracle():
    learner = ippo()
    state, seen = ppo_started(learner), []
    params = oracles.as_float64(jax.device_get(state.params))
    moments = {name: [oracles.zeros(part), oracles.zeros(part)] for name, part in params.items()}
    for update in range(2):
        made, first = batch(update), 1 + update * EPOCHS
        params, moments, seen, expected = ppo_update(params, moments, seen, made, learner.config, learner.ppo, first)
        state, metrics = updated(learner, state, made)
        for name, value in expected.items():
            np.testing.assert_allclose(metrics[name][0], value, rtol=1e-3, atol=1e-5, err_msg=name)
        assert_trees_close(state.params, params, rtol=0, atol=3e-5)
        np.testing.assert_allclose(state.scale, ppo_oracles.scale_of(seen), rtol=1e-4)


def test_own_rewards_that_are_equal_are_the_reward_of_all():
    own, shared = iql(0.0), cases.plain_learner("none")
    of_own, _ = updated(own, cases.started(own), batch(0, shared=True))
    of_all, _ = updated(shared, cases.started(shared), cases.batch(seed=0, padding=9.0))
    assert_trees_close(of_own.params, of_all.params, rtol=0, atol=1e-6)


def test_an_environment_with_own_rewards_keeps_its_contract_and_its_return_is_their_sum():
    env = envs.make(ENV)
    check_env(env)
    (episode,), (plain,) = (play_scripted(envs.make(name), "random", 1) for name in (ENV, "host_envs:HostCounting"))
    assert episode.total == pytest.approx(3 * plain.total)
    np.testing.assert_allclose(episode.reward, 3 * plain.reward)
    env.spec = dataclasses.replace(env.spec, own_rewards=False)
    with pytest.raises(EnvError, match=r"reward of shape \(2,\); expected one number"):
        check_env(env)


@pytest.mark.parametrize("algo", ["iql", "ippo"])
def test_own_rewards_reach_the_learner_through_workers_and_evaluations_add_them_up(tmp_path, algo, monkeypatch):
    heard, keep = [], Replay.add
    monkeypatch.setattr(Replay, "add", lambda self, episodes: heard.extend(episodes) or keep(self, episodes))
    train(tiny_config(algo, env=ENV, steps=200, **{"eval.interval": 100}), tmp_path, silent())
    assert heard
    for episode in heard:
        assert episode.reward.shape == (episode.length, N)
        np.testing.assert_array_equal(episode.reward[:, 1], 2 * episode.reward[:, 0])
    tested = [row["test_return"] for row in read_rows(tmp_path) if "test_return" in row]
    assert tested and all(0 < value < 3 * (13 + 0.125 * 6) * 7 for value in tested)  # 13: the largest name


@pytest.mark.parametrize(
    ("algo", "changes"), [("qmix", {}), ("vdn", {}), ("mappo", {}), ("iql", {"memory.use": "incentive"})]
)
def test_who_cannot_use_own_rewards_is_told_who_can(tmp_path, algo, changes):
    with pytest.raises(ConfigError, match="only agents that learn by themselves can use: iql and ippo"):
        Trainer(tiny_config(algo, env=ENV, **changes), tmp_path, silent())
