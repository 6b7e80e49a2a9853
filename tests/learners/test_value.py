"""The whole update against a slow oracle, and its promises: padding, ends of episodes, copies, devices, traces."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.errors import ConfigError
from emu.learners.build import build_terms
from emu.learners.terms.base import Term, ValueContext
from emu.learners.value import Carry
from nets import oracles as mixers

from . import cases, oracles
from .cases import OBS, A, B, N, assert_trees_close, plain_learner, started, updated
from .oracles import sum_of_values


def value_of_each_agent(mixer, chosen, greedy, actions, state):
    """Independent Q-learning: no value of the team at all."""
    return chosen


def qmix_value(mixer, chosen, greedy, actions, state):
    return mixers.qmix(mixers.qmix_layers(mixer), chosen, np.asarray(state, np.float64))


def qplex_value(mixer, chosen, greedy, actions, state):
    layers = mixers.qplex_layers(mixer, N)
    state = np.asarray(state, np.float64)
    return mixers.qplex(layers, chosen, greedy, np.eye(A)[actions], state, unit_dim=cases.SPEC.unit_dim)[0]


def oracle_update(params, target, square, batch, mix, c):
    """One update in NumPy: parameters, running squares and the loss before the step."""
    eps = oracles.episodes(batch)
    values = [oracles.bootstrap_values(params, target, mix, ep, c.double_q) for ep in eps]
    targets = [oracles.lambda_targets(v, ep, c.gamma, c.td_lambda) for v, ep in zip(values, eps, strict=True)]
    loss = functools.partial(oracles.td_loss, targets=targets, mix=mix, eps=eps)
    value = loss(params)
    grads = oracles.clip(oracles.gradient(loss, params), c.max_grad_norm)
    params, square = oracles.rmsprop(params, grads, square, c.learning_rate, c.rmsprop_decay, c.rmsprop_eps)
    return params, square, value


@pytest.mark.parametrize(
    ("kind", "mix", "changes"),
    [
        ("vdn", sum_of_values, {}),
        ("vdn", sum_of_values, {"learner__double_q": False}),
        ("vdn", sum_of_values, {"learner__td_lambda": 0.7}),
        ("qmix", qmix_value, {}),
        ("none", value_of_each_agent, {}),
        ("none", value_of_each_agent, {"learner__td_lambda": 0.7}),
    ],
)
def test_two_updates_are_those_of_the_oracle(kind, mix, changes):
    learner = plain_learner(kind, **changes)
    state = started(learner)
    params, target = oracles.as_float64((state.params, state.target))
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
    params, target = oracles.as_float64((state.params, state.target))
    eps = oracles.episodes(batch)
    values = [oracles.bootstrap_values(params, target, qplex_value, ep) for ep in eps]
    targets = [oracles.td_targets(v, ep, 0.99) for v, ep in zip(values, eps, strict=True)]
    _, metrics = updated(learner, state, batch)
    np.testing.assert_allclose(metrics["td_loss"][0], oracles.td_loss(params, targets, qplex_value, eps), rtol=1e-4)
    np.testing.assert_allclose(metrics["target"][0], np.mean(np.concatenate(targets)), rtol=1e-4)
    assert metrics["loss"][0] > metrics["td_loss"][0]


def test_padding_changes_nothing():
    learner = plain_learner("qmix")
    state = started(learner)
    clean, dirty = (updated(learner, state, cases.batch(padding=p)) for p in (0.0, 123.0))
    assert_trees_close(dirty, clean, rtol=0, atol=0)


def test_a_longer_padding_changes_nothing():
    learner = plain_learner("vdn")
    state, batch = started(learner), cases.batch()
    longer = type(batch)(*(np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2)) for x in batch))
    assert_trees_close(updated(learner, state, longer), updated(learner, state, batch), rtol=1e-4)


def test_a_truncated_end_bootstraps_and_a_terminated_one_does_not():
    learner = plain_learner("vdn")
    state, batch = started(learner), cases.batch()
    ends = batch.terminated | batch.truncated
    params, target = oracles.as_float64((state.params, state.target))
    for name, changed in (
        ("terminated", batch._replace(terminated=ends, truncated=~ends & False)),
        ("truncated", batch._replace(terminated=~ends & False, truncated=ends)),
    ):
        eps = oracles.episodes(changed)
        values = [oracles.bootstrap_values(params, target, sum_of_values, ep) for ep in eps]
        targets = [oracles.td_targets(v, ep, 0.99) for v, ep in zip(values, eps, strict=True)]
        _, metrics = updated(learner, state, changed)
        np.testing.assert_allclose(metrics["target"][0], np.mean(np.concatenate(targets)), rtol=1e-4, err_msg=name)


def test_an_unavailable_action_is_never_bootstrapped_from():
    learner = plain_learner("vdn")
    batch = cases.batch()
    avail = batch.avail.copy()
    avail[..., 0], avail[..., A - 1] = True, False

    def praised(path, leaf):  # the last action looks splendid
        return leaf.at[A - 1].set(1e4) if "'head']['bias']" in jax.tree_util.keystr(path) else leaf

    state = jax.tree_util.tree_map_with_path(praised, started(learner))
    _, metrics = updated(learner, learner.shards.replicate(state), batch._replace(avail=avail))
    assert abs(metrics["target"][0]) < 100


def test_the_target_network_is_copied_every_interval():
    learner = plain_learner("vdn")  # every 2 episodes, 2 updates each
    state = started(learner)
    for update in range(1, 9):
        before, (state, _) = state.target, updated(learner, state, cases.batch(update))
        assert_trees_close(state.target, state.params if update % 4 == 0 else before, rtol=0, atol=0)


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
    learner = plain_learner("vdn")
    state = started(learner)
    for length in (cases.T, cases.T + 2):
        compiled = []
        for seed in range(3):
            batches = learner.shards.put(cases.stacked(cases.batch(seed, length=length)), axis=1)
            state, _ = learner.update(state, batches, None, np.int32(seed))
            compiled.append(learner.update._cache_size())
        assert len(set(compiled)) == 1


class Meddler(Term):
    """Builds a reward and a bonus out of the learner's own values, or takes the same numbers from the recall."""

    name = "meddler"
    context = ValueContext

    def reward(self, state, context):
        constant, reward, _ = context.recall
        return jnp.where(constant, reward, context.q[:-1].sum(axis=(-2, -1)))

    def target(self, state, context, next_value):
        constant, _, bonus = context.recall
        return jnp.where(constant, bonus, next_value**2)


def test_rewards_and_bonuses_of_terms_are_constants_to_the_gradient():
    learner, batch = cases.learner_of(cases.config(), [Meddler(cases.config(), cases.SPEC, None)]), cases.batch()
    state = started(learner)
    params, target = oracles.as_float64((state.params, state.target))
    reward, bonus = np.zeros((B, cases.T), np.float32), np.zeros((B, cases.T), np.float32)
    for row, ep in enumerate(oracles.episodes(batch)):
        steps = len(ep.reward)
        reward[row, :steps] = oracles.agent_q(params["agent"], ep.obs, ep.action, A)[0][:-1].sum(axis=(1, 2))
        bonus[row, :steps] = np.square(oracles.bootstrap_values(params, target, sum_of_values, ep))
    given = [(np.full((B, cases.T), constant), reward, bonus) for constant in (False, True)]
    (own, own_metrics), (constant, metrics) = (updated(learner, state, batch, recall=[r]) for r in given)
    assert_trees_close(own.params, constant.params, atol=1e-5)
    np.testing.assert_allclose(own_metrics["meddler_reward"], metrics["meddler_reward"], rtol=1e-4)
    np.testing.assert_allclose(own_metrics["meddler_bonus"], metrics["meddler_bonus"], rtol=1e-4)


@pytest.mark.parametrize("td_lambda", [0.0, 0.6])
def test_an_update_with_every_term_is_the_oracles(td_lambda):
    """Each reward, bonus and loss counts once, and its gradient goes where it should and nowhere else."""
    learner = cases.learner_with_every_term(td_lambda=td_lambda)
    state, batch, recall, c = started(learner), cases.batch(padding=9.0), cases.recall(), learner.config
    params, target, terms = oracles.as_float64((state.params, state.target, state.terms))
    eps = oracles.episodes(batch)
    recalls = [type(recall)(*(x[row, : len(ep.reward)] for x in recall)) for row, ep in enumerate(eps)]
    curiosity, diversity = terms[0], terms[2]
    expected: dict[str, list] = {}
    targets = []
    for ep, known in zip(eps, recalls, strict=True):
        values = oracles.bootstrap_values(params, target, sum_of_values, ep)
        parts = {
            "curiosity_reward": np.multiply(
                0.2, oracles.curiosity_errors(curiosity.predictor, curiosity.slow, ep, factor=3.0)
            ),
            "diversity_reward": oracles.diversity_rewards(diversity.target, params["agent"], ep, 0.3, 0.5, 1.0),
            "elliptical_reward": np.multiply(0.1, oracles.elliptical_bonuses(known.embedding, 0.1)),
            "incentive_bonus": oracles.incentives(known, values, ep, c.gamma),
        }
        one_step = sum(map(np.asarray, parts.values())) + oracles.td_targets(values, ep, c.gamma)
        rewards = ep.reward + sum(np.asarray(part) for name, part in parts.items() if name.endswith("_reward"))
        targets.append(oracles.blended(one_step, rewards, c.gamma, td_lambda))
        for name, part in parts.items():
            expected.setdefault(name, []).extend(part)

    def loss_parts(params):
        parts = {"td_loss": oracles.td_loss(params, targets, sum_of_values, eps)}
        own = [oracles.agent_q(params["agent"], ep.obs, ep.action, A)[2][:-1] for ep in eps]
        parts["own_heads_loss"] = 0.1 * np.abs(np.concatenate(own)).mean()
        control = [
            oracles.control_losses(known, oracles.taken_values(params, sum_of_values, ep), ep, c.gamma, 0.1)
            for known, ep in zip(recalls, eps, strict=True)
        ]
        return parts | {"control_loss": np.mean(np.concatenate(control))}

    grads = oracles.gradient(lambda p: sum(loss_parts(p).values()), params)
    clipped = oracles.clip(grads, c.max_grad_norm)
    moved, _ = oracles.rmsprop(params, clipped, oracles.zeros(params), c.learning_rate, c.rmsprop_decay, c.rmsprop_eps)
    state, metrics = updated(learner, state, batch, recall=[recall])
    for name, part in {**expected, **loss_parts(params)}.items():
        np.testing.assert_allclose(metrics[name][0], np.mean(part), rtol=1e-3, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(metrics["grad_norm"][0], oracles.norm(grads), rtol=1e-3)
    assert_trees_close(state.params, moved, rtol=0, atol=5e-5)


def test_one_device_and_two_agree_on_every_term():
    """Three updates deep, so that what the terms own has moved as well."""
    results = []
    for devices in (1, 2):
        learner = cases.learner_with_every_term(devices)
        assert learner.shards.size == devices
        state = started(learner)
        for seed in range(3):
            state, metrics = updated(learner, state, cases.batch(seed), recall=[cases.recall(seed)])
        results.append(jax.device_get((state, metrics)))
    assert_trees_close(results[1], results[0], rtol=1e-3, atol=3e-5)


def test_acting_remembers_its_last_action_and_obeys_availability():
    learner = plain_learner("vdn")
    state = started(learner)
    carry = learner.initial_carry(3)
    assert isinstance(carry, Carry) and not carry.last_action.any()
    obs = np.random.default_rng(0).normal(size=(3, N, OBS)).astype(np.float32)
    avail = np.zeros((3, N, A), bool)
    avail[..., 1] = True
    action, after = jax.jit(learner.act)(learner.policy(state), carry, obs, avail, 1.0, jax.random.PRNGKey(0))
    assert (action == 1).all()
    np.testing.assert_array_equal(after.last_action, jax.nn.one_hot(action, A))
    expected = oracles.agent_q(oracles.as_float64(state.params["agent"]), obs[:1], np.zeros((0, N), int), A)[1]
    np.testing.assert_allclose(after.hidden[:1], expected, rtol=1e-4, atol=1e-5)


def test_the_batch_is_divided_over_both_devices():
    """Each device gets half of the episodes and a whole copy of the parameters."""
    learner = plain_learner("vdn")
    batches = jax.tree.map(lambda field: np.asarray(field)[None], cases.batch())
    put = learner.shards.put(batches, axis=1)
    for meant, field in zip(jax.tree.leaves(batches), jax.tree.leaves(put), strict=True):
        halves = {shard.device.id: np.asarray(shard.data) for shard in field.addressable_shards}
        assert len(halves) == 2
        for half, part in zip(np.split(meant, 2, axis=1), halves.values(), strict=True):
            np.testing.assert_array_equal(part, half)
    for leaf in jax.tree.leaves(learner.shards.replicate(started(learner).params)):
        assert [shard.data.shape for shard in leaf.addressable_shards] == [leaf.shape] * 2


def test_terms_add_to_the_value_of_every_agent_that_learns_by_itself():
    c = cases.config(mixer__kind="none", memory__use="incentive")
    learner, batch, recall = cases.learner_of(c, build_terms(c, cases.SPEC)), cases.batch(), cases.recall()
    state = started(learner)
    params, target = oracles.as_float64((state.params, state.target))
    targets, bonuses = [], []
    for row, ep in enumerate(oracles.episodes(batch)):
        values = np.array(oracles.bootstrap_values(params, target, value_of_each_agent, ep))  # (T, N)
        known = type(recall)(*(x[row, : len(ep.reward)] for x in recall))
        bonus = np.stack([oracles.incentives(known, values[:, agent], ep, c.learner.gamma) for agent in range(N)], -1)
        targets.append(np.array(oracles.td_targets(values, ep, c.learner.gamma)) + bonus)
        bonuses.append(bonus)
    _, metrics = updated(learner, state, batch, recall=[recall])
    assert np.mean(np.concatenate(bonuses)) > 0.001
    np.testing.assert_allclose(metrics["incentive_bonus"][0], np.mean(np.concatenate(bonuses)), rtol=1e-4)
    np.testing.assert_allclose(metrics["target"][0], np.mean(np.concatenate(targets)), rtol=1e-4)
    loss = oracles.td_loss(params, targets, value_of_each_agent, oracles.episodes(batch))
    np.testing.assert_allclose(metrics["td_loss"][0], loss, rtol=1e-4)


def test_separate_agents_that_learn_by_themselves_do_not_touch_each_other():
    c = cases.config(mixer__kind="none", agent__share_parameters=False, learner__max_grad_norm=1e6)
    learner, batch = cases.learner_of(c), cases.batch()
    other = batch._replace(obs=batch.obs.copy())
    other.obs[:, :, 1] += 1.0  # what the second agent sees
    after = [updated(learner, started(learner), b)[0].params["agent"]["params"]["agents"] for b in (batch, other)]
    for agent, same in ((0, True), (1, False)):
        pair = [jax.tree.leaves(jax.tree.map(lambda x, i=agent: np.asarray(x)[i], params)) for params in after]
        assert all(np.array_equal(a, b) for a, b in zip(*pair, strict=True)) == same


class Crooked(Term):
    """A term whose answers have the wrong shape."""

    name = "crooked"

    def __init__(self, method):
        self.method = method

    def reward(self, state, context):
        return jnp.zeros((*context.mask.shape, N)) if self.method == "reward" else 0.0

    def loss(self, state, context, q_tot):
        return q_tot if self.method == "loss" else 0.0


@pytest.mark.parametrize(("method", "advice"), [("reward", "time, then episodes"), ("loss", "context.mean")])
def test_a_term_of_the_wrong_shape_is_named(method, advice):
    learner = cases.learner_of(cases.config(mixer__kind="vdn"), [Crooked(method)])
    with pytest.raises(ConfigError, match=rf"The {method} of term 'crooked' has shape .*{advice}"):
        updated(learner, started(learner), cases.batch())
