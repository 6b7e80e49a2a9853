"""CDS against the slow oracle: the predictors' minibatches, their target copies, the parts of the reward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.config import DiversityConfig
from emu.learners.terms.diversity import OwnHeadPenalty, diversity_scale, policy_divergence, random_order

from . import cases, oracles
from .cases import A, B, N, T, assert_trees_close, learner_with_every_term, started, updated

quick = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)
divergence = jax.jit(policy_divergence, static_argnums=1)


def diversity_of(learner, state):
    return cases.term(learner, state, "diversity")[1]


def test_the_rewards_are_those_of_the_oracle_step_by_step():
    learner, batch = learner_with_every_term(), cases.batch(padding=9.0)
    state = jax.device_get(started(learner))
    term, own = cases.term(learner, state, "diversity")
    agent = state.params["agent"]
    rewards = jax.jit(lambda s, p, b: term.reward(s, cases.context_of(b, learner.agent, p)))(own, agent, batch)
    predictors, agent = oracles.as_float64((own.target, agent))
    for row, ep in enumerate(oracles.episodes(batch)):
        expected = oracles.diversity_rewards(predictors, agent, ep, 0.3, 0.5, 1.0)
        np.testing.assert_allclose(rewards[: len(expected), row], expected, rtol=1e-4)


def test_one_pass_over_the_real_rows_is_that_of_the_oracle():
    """Three minibatches of 20 rows, Adam with a clipped gradient for each predictor."""
    learner, batch = learner_with_every_term(), cases.batch(padding=9.0)
    state = started(learner)
    before = oracles.as_float64(diversity_of(learner, state))
    agent = oracles.as_float64(state.params["agent"])
    hidden = [oracles.agent_q(agent, ep.obs, ep.action, A)[1] for ep in oracles.episodes(batch)]

    def row(place):
        t, episode, i = np.unravel_index(place, (T, B, N))
        return oracles.diversity_row(oracles.episode(batch, episode), hidden[episode], t, i)

    real = np.repeat(batch.filled.T[..., None], N, axis=-1).reshape(-1)
    _, key = jax.random.split(jnp.asarray(diversity_of(learner, state).key))
    order = np.asarray(random_order(real, key))[: real.sum()]
    minibatches = [[row(place) for place in order[start : start + 8]] for start in (0, 8, 16)]
    state, metrics = updated(learner, state, batch, recall=[cases.recall()])
    for name, knows_agent in (("own", True), ("anyone", False)):
        params, losses = before.predictors[name], []
        moments = oracles.zeros(params), oracles.zeros(params)
        for step, rows in enumerate(minibatches, start=1):

            def loss(p, rows=rows, knows_agent=knows_agent):
                return np.mean([oracles.prediction_error(p, row, knows_agent) for row in rows])

            losses.append(loss(params))
            grads = oracles.clip(oracles.gradient(loss, params), 1.0)
            params, *moments = oracles.adam(params, grads, *moments, step, 1e-3)
        np.testing.assert_allclose(metrics[f"diversity_{name}_predictor_loss"][0], np.mean(losses), rtol=1e-4)
        assert_trees_close(diversity_of(learner, state).predictors[name], params, rtol=0, atol=3e-5)


def test_the_target_copies_are_renewed_with_the_target_network():
    learner = learner_with_every_term()
    state = started(learner)
    for update in range(1, 5):
        before = diversity_of(learner, state)
        state, _ = updated(learner, state, cases.batch(update), recall=[cases.recall(update)])
        after = diversity_of(learner, state)
        assert_trees_close(after.target, after.predictors if update == 4 else before.target, rtol=0, atol=0)


def test_every_update_shuffles_anew():
    learner = learner_with_every_term()
    state = started(learner)
    keys = [diversity_of(learner, state).key]
    for _ in range(2):
        state, _ = updated(learner, state, cases.batch(), recall=[cases.recall()])
        keys.append(diversity_of(learner, state).key)
    assert len({tuple(np.asarray(key)) for key in keys}) == 3


@quick
@given(seeds)
def test_the_random_order_holds_every_real_row_once_before_all_padding(seed):
    real = np.random.default_rng(seed).random(12) < 0.5
    order = np.asarray(random_order(real, jax.random.PRNGKey(seed)))
    assert set(order[: real.sum()]) == set(np.flatnonzero(real)) and set(order) == set(range(12))


@quick
@given(seeds, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_divergence_is_the_kl_of_an_agent_from_the_team(seed, beta1):
    q = np.random.default_rng(seed).normal(size=(N, A)).astype(np.float32)
    team = np.mean([oracles.softmax(row) for row in q.astype(np.float64)], axis=0)
    own = [oracles.softmax(beta1 * row) for row in q.astype(np.float64)]
    expected = [(pi * np.log(pi / team)).sum() for pi in own]
    actual = divergence(q, beta1)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    assert (np.asarray(actual) > -1e-6).all()


def test_agents_alike_do_not_diverge_and_opposites_do_by_log_two():
    np.testing.assert_allclose(divergence(np.float32([[1, 2, 3]] * 2), 1.0), 0, atol=1e-6)
    np.testing.assert_allclose(divergence(np.float32([[500, 0, 0], [0, 500, 0]]), 1.0), np.log(2), rtol=1e-5)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.1), (1_000_000, 0.1), (1_100_000, 0.05), (1_300_000, 0.0)])
def test_the_scale_is_annealed_after_a_million_steps(step, expected):
    corridor = DiversityConfig(beta=0.1, anneal_after=1_000_000, anneal_rate=5.0)
    np.testing.assert_allclose(diversity_scale(corridor, np.int32(step)), expected, atol=1e-7)


def test_the_scale_stays_without_annealing():
    np.testing.assert_allclose(diversity_scale(DiversityConfig(beta=0.07), np.int32(9_000_000)), 0.07)


def test_the_penalty_on_own_heads_moves_them_and_the_gru_but_not_the_shared_head():
    learner, batch = learner_with_every_term(), cases.batch()
    params = jax.device_get(started(learner).params["agent"])

    @jax.jit
    @jax.grad
    def gradient(params):
        return OwnHeadPenalty(0.1).loss((), cases.context_of(batch, learner.agent, params), jnp.zeros(()))

    size = {name: max(np.abs(x).max() for x in jax.tree.leaves(g)) for name, g in gradient(params)["params"].items()}
    assert size.pop("head") == 0
    assert min(size.values()) > 0 and {"own_kernel", "own_bias", "recurrent_kernel"} <= set(size)
