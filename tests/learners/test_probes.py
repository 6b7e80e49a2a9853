"""Every learner finds the known values of the probe environments, and acts by them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.config import Config, replace
from emu.learners.dqn import DQNLearner
from emu.learners.mappo import MappoLearner
from emu.learners.td import pick
from emu.learners.td3 import TD3Learner
from emu.learners.terms.base import time_major
from emu.learners.value import ValueLearner

from . import cases
from .probes import Probe, play

COPIES = 32
SETTINGS = {
    "agent.hidden": 16,
    "mixer.embed": 8,
    "mixer.hyper_hidden": 8,
    "dqn.hidden": 16,
    "td3.hidden": 32,
    "td3.soft_update": 0.05,
    "ppo.epochs": 4,
    "learner.gamma": Probe("constant").gamma,
    "learner.batch_size": COPIES,
    "learner.learning_rate": 0.01,
    "learner.target_interval": 10,
    "dqn.target_interval": 10,
}
KINDS = {"value": ValueLearner, "mappo": MappoLearner, "td3": TD3Learner, "dqn": DQNLearner}


def learner_for(env: Probe, kind: str, mixer: str):
    changes = {"learner.kind": kind, "mixer.kind": mixer, "rollout.epsilon_end": 1.0}
    if kind in ("td3", "dqn"):
        changes["replay.unit"] = "steps"
    return cases.learner_of(replace(Config(), SETTINGS | changes), (), 1, KINDS[kind], env.spec)


def learned(env: Probe, learner, updates: int, per_call: int):
    """The state after so many updates on fresh episodes, whose actions are random unless the learner is on policy."""

    @jax.jit
    def collect(policy, key):
        return jax.vmap(lambda k: play(env, learner, policy, 1.0, COPIES, k)[0])(jax.random.split(key, per_call))

    state = learner.shards.replicate(jax.jit(learner.init)(jax.random.PRNGKey(0)))
    for call in range(updates // per_call):
        batches = collect(learner.policy(state), jax.random.fold_in(jax.random.PRNGKey(1), call))
        state, _ = learner.update(state, learner.shards.put(batches, axis=1), None, np.int32(0))
    return state


def values_of(learner, state, batch):
    """(T, B): Q of the actions taken; of a learner of policies V."""
    batch = time_major(batch)
    if isinstance(learner, ValueLearner):
        q = learner._unroll(state.params["agent"], *learner._inputs(batch))[0][:-1]
        return learner._mix(
            state.params["mixer"], q, batch.avail[:-1], batch.action, batch.state[:-1], batch.filled
        ).q_tot
    if isinstance(learner, MappoLearner):
        lengths = jnp.full(COPIES, len(batch.reward))
        return state.scale.natural(learner._values(state.params["critic"], batch.state[:-1], lengths))
    if isinstance(learner, DQNLearner):
        return pick(learner.net.apply(state.params, batch.obs[:-1, :, 0]), batch.action[..., 0])
    return learner.critic.apply(state.params.critic, batch.obs[:-1, :, 0], batch.action[:, :, 0])[..., 0]


def check(env: Probe, kind: str, mixer: str = "vdn", updates: int = 400):
    """Values are 1, 0.5 or minus that: an error of 0.2 mixes none of them up."""
    learner = learner_for(env, kind, mixer)
    state = learned(env, learner, updates, per_call=40 if kind in ("value", "td3") else 1)
    last = env.length - 1

    @jax.jit
    def seen(state):
        policy, key = learner.policy(state), jax.random.PRNGKey(2)
        random, sign = play(env, learner, policy, 1.0, COPIES, key)
        greedy = play(env, learner, policy, 0.0, COPIES, key)[0]
        return random, values_of(learner, state, random), greedy.reward[:, -1], sign

    random, values, greedy, sign = jax.device_get(seen(state))
    if kind == "mappo":
        expected = np.stack([env.best(sign, time) for time in range(env.length)])
    else:
        expected = env.values(time_major(random), sign)
    np.testing.assert_allclose(values, expected, atol=0.2)
    np.testing.assert_allclose(greedy, env.best(sign, last), atol=0.2)


PROBES = ("constant", "ahead", "action")


@pytest.mark.parametrize("kind", PROBES)
def test_a_team_finds_the_values(kind):
    check(Probe(kind, agents=2), "value", "vdn")


@pytest.mark.parametrize("mixer", ["qmix", "qplex"])
def test_a_team_finds_the_values_through_a_mixing_network(mixer):
    check(Probe("ahead", agents=2), "value", mixer)


@pytest.mark.parametrize("kind", PROBES)
def test_dqn_finds_the_values(kind):
    check(Probe(kind), "dqn")


@pytest.mark.parametrize("kind", PROBES)
def test_td3_finds_the_values(kind):
    check(Probe(kind, continuous=True), "td3")


@pytest.mark.parametrize("kind", PROBES)
def test_mappo_finds_the_values(kind):
    check(Probe(kind, agents=2), "mappo", updates=60)


def test_a_recurrent_team_remembers_the_first_observation():
    check(Probe("memory"), "value", "none")


def test_a_recurrent_policy_remembers_the_first_observation():
    check(Probe("memory"), "mappo", updates=80)


def test_dqn_remembers_what_its_stack_shows():
    check(Probe("memory", stack=2), "dqn")


def test_without_memory_the_hidden_sign_cannot_be_known():
    with pytest.raises(AssertionError, match="Mismatched elements"):
        check(Probe("memory"), "dqn")
