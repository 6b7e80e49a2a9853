"""EMC's curiosity against the slow oracle: the second agent, its copies, the predictor, the reward's schedule."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from emu.config import CuriosityConfig
from emu.learners.terms.curiosity import curiosity_scale, distance

from . import cases, oracles
from .cases import assert_trees_close, learner_with_every_term, started, updated


def curiosity_of(learner, state):
    return cases.term(learner, state, "curiosity")[1]


def extrinsic_targets(agent, target, eps, gamma):
    """VDN's, on the environment's reward alone."""
    own, copy = {"agent": agent, "mixer": {}}, {"agent": target, "mixer": {}}
    values = [oracles.bootstrap_values(own, copy, oracles.sum_of_values, ep) for ep in eps]
    return [oracles.td_targets(v, ep, gamma) for v, ep in zip(values, eps, strict=True)]


def test_two_updates_of_all_four_networks_are_those_of_the_oracle():
    learner = learner_with_every_term()
    state, c = started(learner), learner.config
    now = oracles.as_float64(curiosity_of(learner, state))
    agent, target, slow, predictor = now.agent, now.target, now.slow, now.predictor
    square, first, second = oracles.zeros(agent), oracles.zeros(agent), oracles.zeros(agent)
    for update in range(2):
        batch = cases.batch(seed=update, padding=9.0)
        eps = oracles.episodes(batch)
        targets = extrinsic_targets(agent, target, eps, c.gamma)

        def td_loss(params, targets=targets, eps=eps):
            return oracles.td_loss({"agent": params, "mixer": {}}, targets, oracles.sum_of_values, eps)

        def prediction_loss(params, slow=slow, eps=eps):
            return np.mean(np.concatenate([oracles.curiosity_errors(params, slow, ep, 3.0) for ep in eps]))

        losses = td_loss(agent), prediction_loss(predictor)
        grads = oracles.clip(oracles.gradient(td_loss, agent), c.max_grad_norm)
        agent, square = oracles.rmsprop(agent, grads, square, c.learning_rate, c.rmsprop_decay, c.rmsprop_eps)
        grads = oracles.clip(oracles.gradient(prediction_loss, predictor), c.max_grad_norm)
        predictor, first, second = oracles.adam(predictor, grads, first, second, update + 1, 5e-4)
        slow = jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, slow, agent)

        state, metrics = updated(learner, state, batch, recall=[cases.recall(update)])
        np.testing.assert_allclose(metrics["curiosity_td_loss"][0], losses[0], rtol=1e-4)
        np.testing.assert_allclose(metrics["curiosity_prediction_loss"][0], losses[1], rtol=1e-4)
        np.testing.assert_allclose(metrics["curiosity_reward"][0], 0.2 * losses[1], rtol=1e-4)
    after = curiosity_of(learner, state)
    expected = dict(agent=agent, target=target, slow=slow, predictor=predictor)
    for name, params in expected.items():
        assert_trees_close(getattr(after, name), params, rtol=0, atol=3e-5)


def test_its_target_copy_is_renewed_with_the_learners():
    learner = learner_with_every_term()
    state = started(learner)
    for update in range(1, 5):
        before = curiosity_of(learner, state)
        state, _ = updated(learner, state, cases.batch(update), recall=[cases.recall(update)])
        after = curiosity_of(learner, state)
        assert_trees_close(after.target, after.agent if update == 4 else before.target, rtol=0, atol=0)


def test_what_is_seen_again_and_again_grows_dull():
    learner, batch = learner_with_every_term(), cases.batch()
    state = started(learner)
    losses = []
    for _ in range(60):
        state, metrics = updated(learner, state, batch, recall=[cases.recall()])
        losses.append(float(metrics["curiosity_prediction_loss"][0]))
    assert losses[-1] < 0.98 * losses[0]


def test_intrinsic_rewards_do_not_reach_the_second_agent():
    """Another memory gives other bonuses, to the learner only."""
    learner, batch = learner_with_every_term(), cases.batch()
    state = started(learner)
    one, other = (updated(learner, state, batch, recall=[cases.recall(seed)])[0] for seed in (0, 1))
    assert_trees_close(curiosity_of(learner, one), curiosity_of(learner, other), rtol=0, atol=0)
    assert not np.allclose(*(s.params["agent"]["params"]["head"]["bias"] for s in (one, other)), atol=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (199_999, 0.1), (200_000, 0.08), (400_000, 0.064), (9_000_000, 0.01)]
)
def test_the_scale_falls_in_steps_to_its_floor(step, expected):
    corridor = CuriosityConfig(scale=0.1, decay=0.8, decay_interval=200_000, floor=0.01)
    np.testing.assert_allclose(curiosity_scale(corridor, np.int32(step)), expected, rtol=1e-5)


def test_the_schedule_goes_by_environment_steps():
    learner = learner_with_every_term()  # x 0.9 every 100 steps
    rewards = [
        updated(learner, started(learner), cases.batch(), recall=[cases.recall()], step=step)[1]["curiosity_reward"][0]
        for step in (0, 250)
    ]
    np.testing.assert_allclose(rewards[1], 0.81 * rewards[0], rtol=1e-4)


def test_the_distance_of_equals_has_no_gradient_and_no_nan():
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(jax.grad(lambda a: distance(a, x).sum())(x), 0)
    np.testing.assert_allclose(distance(x, np.float32([[1, 1, 1], [4, 5, 1]])), [0, 5], atol=1e-5)


def test_copies_start_equal_and_the_predictor_apart(monkeypatch):
    term = learner_with_every_term().terms[0]
    shapes = jax.eval_shape(functools.partial(term._new_network, jax.random.PRNGKey(0)))
    monkeypatch.setattr(term, "_new_network", lambda key: cases.filled(shapes, int(key[1])))
    state = term.init(jax.random.PRNGKey(5))
    assert_trees_close((state.target, state.slow), (state.agent, state.agent), rtol=0, atol=0)
    assert not np.array_equal(*(p["params"]["head"]["kernel"] for p in (state.agent, state.predictor)))
