"""The whole update against a slow oracle, and its promises: padding, ends of episodes, target copies, devices, traces."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.learners.base import Term
from emu.learners.value import Carry
from nets import oracles as mixers

from . import cases, oracles
from .cases import A, B, N, O, assert_trees_close, plain_learner, started, updated


def sum_of_values(mixer, chosen, greedy, actions, state):
    return chosen.sum()


def qmix_value(mixer, chosen, greedy, actions, state):
    return mixers.qmix(mixers.qmix_layers(mixer), chosen, np.asarray(state, np.float64))


def qplex_value(mixer, chosen, greedy, actions, state):
    layers = mixers.qplex_layers(mixer, N)
    state = np.asarray(state, np.float64)
    return mixers.qplex(layers, chosen, greedy, np.eye(A)[actions], state, unit_dim=cases.SPEC.unit_dim)[0]


def oracle_update(params, target, square, batch, mix, c):
    """One update in NumPy: parameters, running squares and the loss before the step."""
    eps = oracles.episodes(batch)
    targets = [oracles.td_targets(params, target, mix, ep, c.gamma, c.double_q) for ep in eps]
    loss = functools.partial(oracles.td_loss, targets=targets, mix=mix, eps=eps)
    value = loss(params)
    grads = oracles.clip(oracles.gradient(loss, params), c.max_grad_norm)
    params, square = oracles.rmsprop(params, grads, square, c.learning_rate, c.rmsprop_decay, c.rmsprop_eps)
    return params, square, value


@pytest.mark.parametrize(
    ("kind", "mix", "changes"),
    [
        ("vdn", sum_of_values, {"learner__max_grad_norm": 0.05}),
        ("vdn", sum_of_values, {"learner__double_q": False}),
        ("qmix", qmix_value, {}),
    ],
)
def test_two_updates_are_those_of_the_oracle(kind, mix, changes):
    learner = plain_learner(kind, **changes)
    state = started(learner)
    target = oracles.as_float64(state.target)
    # The target differs from the network from the start, so that mixing them up would show.
    target = jax.tree.map(lambda x: x + 0.3 * np.random.default_rng(x.size).normal(size=x.shape), target)
    state = state._replace(target=learner.shards.replicate(jax.tree.map(np.float32, target)))
    params = oracles.as_float64(state.params)
    square = oracles.zeros(params)
    for update in range(2):
        batch = cases.batch(seed=update, padding=9.0)
        params, square, loss = oracle_update(params, target, square, batch, mix, learner.config)
        state, metrics = updated(learner, state, batch)
        np.testing.assert_allclose(metrics["td_loss"][0], loss, rtol=1e-4)
        assert_trees_close(state.params, params, rtol=0, atol=3e-5)  # a step is up to 10 · learning rate = 5e-3
    assert_trees_close(state.target, target)


def test_loss_of_qplex_is_the_oracles_with_its_regulariser_apart():
    learner = plain_learner("qplex")
    state, batch = started(learner), cases.batch(padding=9.0)
    params = oracles.as_float64(state.params)
    eps = oracles.episodes(batch)
    targets = [oracles.td_targets(params, params, qplex_value, ep, 0.99) for ep in eps]
    _, metrics = updated(learner, state, batch)
    np.testing.assert_allclose(metrics["td_loss"][0], oracles.td_loss(params, targets, qplex_value, eps), rtol=1e-4)
    np.testing.assert_allclose(metrics["target"][0], np.mean(sum(targets, [])), rtol=1e-4)
    assert metrics["loss"][0] > metrics["td_loss"][0]


def test_padding_changes_nothing():
    learner = plain_learner("qmix")
    state = started(learner)
    clean, dirty = (updated(learner, state, cases.batch(padding=p)) for p in (0.0, 123.0))
    assert_trees_close(dirty, clean, rtol=0, atol=0)


def test_a_longer_padding_changes_nothing():
    learner = plain_learner("qmix")
    state, batch = started(learner), cases.batch()
    longer = type(batch)(*(np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2)) for x in batch))
    assert_trees_close(updated(learner, state, longer), updated(learner, state, batch), rtol=1e-4)


def test_a_truncated_end_bootstraps_and_a_terminated_one_does_not():
    learner = plain_learner("vdn")
    state, batch = started(learner), cases.batch()
    ends = batch.terminated | batch.truncated
    params = oracles.as_float64(state.params)
    for name, changed in (
        ("terminated", batch._replace(terminated=ends, truncated=~ends & False)),
        ("truncated", batch._replace(terminated=~ends & False, truncated=ends)),
    ):
        eps = oracles.episodes(changed)
        targets = [oracles.td_targets(params, params, sum_of_values, ep, 0.99) for ep in eps]
        _, metrics = updated(learner, state, changed)
        np.testing.assert_allclose(metrics["target"][0], np.mean(sum(targets, [])), rtol=1e-4, err_msg=name)


def test_an_unavailable_action_is_never_bootstrapped_from():
    learner = plain_learner("vdn")
    state, batch = started(learner), cases.batch()
    head = state.params["agent"]["params"]["head"]["bias"].at[A - 1].set(1e4)  # the last action looks splendid
    raise_head = lambda params: {**params, "agent": {"params": {**params["agent"]["params"], "head": {  # noqa: E731
        "kernel": params["agent"]["params"]["head"]["kernel"], "bias": head}}}}
    state = state._replace(params=raise_head(state.params), target=raise_head(state.target))
    state = learner.shards.replicate(state)
    avail = batch.avail.copy()
    avail[..., 0], avail[..., A - 1] = True, False
    _, metrics = updated(learner, state, batch._replace(avail=avail))
    assert abs(metrics["target"][0]) < 100


def test_the_target_network_is_copied_every_interval():
    learner = plain_learner("vdn", learner__target_interval=2, learner__updates_per_episode=2)
    state = started(learner)
    first = state.params
    for update in range(1, 9):
        before, (state, _) = state.target, updated(learner, state, cases.batch(update))
        assert_trees_close(state.target, state.params if update % 4 == 0 else before, rtol=0, atol=0)
        assert update != 3 or jax.tree.all(jax.tree.map(np.array_equal, state.target, first))


def test_several_updates_in_one_call_are_the_updates_one_by_one():
    learner = plain_learner("vdn")
    state = started(learner)
    batches = [cases.batch(seed) for seed in range(2)]
    together, metrics = updated(learner, state, *batches)
    for update, batch in enumerate(batches):
        state, single = updated(learner, state, batch)
        np.testing.assert_allclose(metrics["td_loss"][update], single["td_loss"][0], rtol=1e-5)
    assert_trees_close(together, state)


def test_the_update_is_compiled_once_per_batch_length():
    learner = cases.learner_of(cases.config())
    state = started(learner)
    for seed in range(3):
        state, _ = learner.update(state, learner.shards.put(cases.stacked(cases.batch(seed)), axis=1), None, np.int32(seed))
    assert learner.update._cache_size() == 1
    longer = learner.shards.put(cases.stacked(cases.batch(length=6)), axis=1)
    for _ in range(2):
        state, _ = learner.update(state, longer, None, np.int32(9))
    assert learner.update._cache_size() == 2


class Meddler(Term):
    """Builds a reward and a bonus out of the learner's own values, or gives the same numbers as constants."""

    name = "meddler"

    def __init__(self, reward=None, bonus=None):
        self.constants = reward, bonus

    def reward(self, state, context):
        return context.q[:-1].sum(axis=(-2, -1)) if self.constants[0] is None else jnp.asarray(self.constants[0])

    def target(self, state, context, next_value):
        return next_value**2 if self.constants[1] is None else jnp.asarray(self.constants[1])


def test_rewards_and_bonuses_of_terms_are_constants_to_the_gradient():
    config, batch = cases.config(), cases.batch()
    meddling = cases.learner_of(config, [Meddler()], devices=1)
    state = started(meddling)
    context = cases.context_of(batch, meddling.agent, state.params["agent"])
    q, best = context.q, jnp.where(context.batch.avail[1:], context.q[1:], -jnp.inf).max(axis=-1).sum(axis=-1)
    constant = cases.learner_of(config, [Meddler(q[:-1].sum(axis=(-2, -1)), best**2)], devices=1)
    expected, _ = updated(constant, state, batch)
    actual, _ = updated(meddling, state, batch)
    assert_trees_close(actual.params, expected.params, atol=1e-5)


def test_acting_remembers_its_last_action_and_obeys_availability():
    learner = plain_learner("vdn")
    state = started(learner)
    carry = learner.initial_carry(3)
    assert isinstance(carry, Carry) and not carry.last_action.any()
    obs = np.random.default_rng(0).normal(size=(3, N, O)).astype(np.float32)
    avail = np.zeros((3, N, A), bool)
    avail[..., 1] = True
    action, after = learner.act(learner.policy(state), carry, obs, avail, 1.0, jax.random.PRNGKey(0))
    assert (action == 1).all()
    np.testing.assert_array_equal(after.last_action, jax.nn.one_hot(action, A))
    expected = oracles.agent_q(oracles.as_float64(state.params["agent"]), obs[:1], np.zeros((0, N), int), A)[1]
    np.testing.assert_allclose(after.hidden[:1], expected, rtol=1e-4, atol=1e-5)


def test_the_batch_is_divided_over_both_devices():
    assert plain_learner("vdn").shards.size == 2 and B % 2 == 0
