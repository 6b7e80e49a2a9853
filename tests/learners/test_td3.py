"""TD3 against an oracle and against cases worked out by hand."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.config import Config, replace
from emu.devices import Devices
from emu.envs import EnvSpec
from emu.errors import ConfigError
from emu.learners.build import build_learner, build_terms
from emu.learners.td3 import Networks, TD3Learner
from emu.learners.terms.base import Context
from emu.learners.terms.episodic import EpisodicIncentive
from emu.memory import Recall
from emu.types import Batch

from . import td3_oracle
from .cases import filled, learner_of, stacked
from .oracles import as_float64

OBS, A, B, GAMMA, RATE = 2, 2, 6, 0.9, 0.01
SPEC = EnvSpec("moving", "1", 1, 1, OBS, OBS, 9, OBS, True, (-9.0, 9.0), action_dim=A, state_is_obs=True)
SETTINGS = {
    "learner.kind": "td3",
    "learner.gamma": GAMMA,
    "learner.learning_rate": RATE,
    "learner.batch_size": B,
    "td3.hidden": 3,
    "td3.soft_update": 0.25,
    "td3.smoothing": 0.6,
}


def settings(**changes) -> Config:
    return replace(Config(), SETTINGS | {key.replace("__", "."): value for key, value in changes.items()})


def transitions(seed: int = 0) -> Batch:
    """Steps of which the second terminates and the third is truncated."""
    rng = np.random.default_rng(seed)
    obs, ends = rng.normal(size=(B, 2, 1, OBS)).astype(np.float32), np.arange(B)[:, None]
    return Batch(
        obs=obs,
        state=obs[:, :, 0],
        avail=np.ones((B, 2, 1, 1), bool),
        action=rng.uniform(-1, 1, (B, 1, 1, A)).astype(np.float32),
        reward=rng.normal(size=(B, 1)).astype(np.float32),
        terminated=ends == 1,
        truncated=ends == 2,
        filled=np.ones((B, 1), bool),
        time=ends.astype(np.int32),
    )


def steps_of(batch):
    """The same, a step at a time."""
    return [
        types.SimpleNamespace(
            obs=batch.obs[row, 0, 0],
            next_obs=batch.obs[row, 1, 0],
            action=batch.action[row, 0, 0],
            reward=float(batch.reward[row, 0]),
            terminated=bool(batch.terminated[row, 0]),
        )
        for row in range(B)
    ]


@pytest.fixture(scope="module")
def learner():
    return learner_of(settings(), kind=TD3Learner, spec=SPEC)


def started(learner, seed=0):
    state = filled(jax.eval_shape(learner.init, jax.random.PRNGKey(0)), seed)
    return state._replace(key=np.array([3, 4], np.uint32))


def noises_of(learner, state, update):
    """The noise that each device draws for its rows of an update."""
    share = B // learner.shards.size
    keys = [jax.random.fold_in(jax.random.fold_in(state.key, update), device) for device in range(learner.shards.size)]
    return np.concatenate([jax.random.normal(key, (1, share, A))[0] for key in keys])


def after(learner, state, *batches):
    put = learner.shards.replicate(jax.device_get(state))
    state, metrics = learner.update(put, learner.shards.put(stacked(*batches), axis=1), None, np.int32(0))
    return jax.device_get((state, metrics))


def adam(params, grads, moments, count):
    """PyTorch's Adam: new parameters and moments."""
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

    def moved(p, m, v):
        return p - RATE * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)

    return jax.tree.map(moved, params, first, second), (first, second)


def close(actual, expected, atol=2e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), actual, expected)


def test_two_updates_are_the_oracles_step_by_step(learner):
    start, batches = started(learner), [transitions(1), transitions(2)]
    assert learner.shards.size == 2
    state, metrics = after(learner, start, *batches)
    critic, target = as_float64(start.params.critic), as_float64(start.target)
    zeros = jax.tree.map(np.zeros_like, critic)
    moments = (zeros, zeros)
    for update, batch in enumerate(batches):
        steps, noises = steps_of(batch), noises_of(learner, start, update)
        ys = td3_oracle.targets(target, steps, noises, learner.td3, GAMMA)
        loss = td3_oracle.critic_loss(critic, steps, ys)
        assert metrics["td_loss"][update] == pytest.approx(loss, rel=1e-4)
        assert metrics["target"][update] == pytest.approx(np.mean(ys), rel=1e-4)
        grads = td3_oracle.gradient(lambda c, steps=steps, ys=ys: td3_oracle.critic_loss(c, steps, ys), critic)
        critic, moments = adam(critic, grads, moments, update + 1)
    close(state.params.critic, critic)
    # every second update the policy, too, by the critics as they are now; then the targets follow both
    actor, steps = as_float64(start.params.actor), steps_of(batches[1])
    grads = td3_oracle.gradient(lambda a: td3_oracle.actor_loss(a, critic, steps), actor)
    zeros = jax.tree.map(np.zeros_like, actor)
    moved, _ = adam(actor, grads, (zeros, zeros), 1)
    close(state.params.actor, moved)
    close(state.target, jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, target, Networks(moved, critic)))
    assert state.policy_value == pytest.approx(-td3_oracle.actor_loss(actor, critic, steps), rel=1e-4)


def test_policy_and_targets_wait_for_their_turn(learner):
    start = started(learner)
    once, _ = after(learner, start, transitions(1))
    close(once.params.actor, start.params.actor, atol=0)
    close(once.target, start.target, atol=0)
    twice, _ = after(learner, once, transitions(2))
    both, _ = after(learner, start, transitions(1), transitions(2))
    close(twice, both, atol=1e-6)


# Targets by hand, on one device and without the rest of the update


def constant(shapes, first, second, action=0.0):
    """Networks that say the same whatever they see."""
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    for name, value in (("first", first), ("second", second)):
        zeros.critic["params"][name]["Linear_2"]["bias"][:] = value
    zeros.actor["params"]["Trunk_0"]["Linear_2"]["bias"][:] = np.arctanh(action)
    return zeros


def context_of(batch, recall=None):
    batch = jax.tree.map(lambda x: jnp.asarray(x).swapaxes(0, 1), batch)
    mask = batch.filled.astype(jnp.float32)
    return Context(batch, recall, mask, mask.sum(), np.int32(0))


def target_of(learner, networks, context):
    state = types.SimpleNamespace(target=networks, terms=((),) * len(learner.terms))
    views = learner.terms.prepare(state.terms, context)
    y, parts = learner._target(state, context, views, jax.random.PRNGKey(0))
    return np.asarray(y)[0], parts


def shapes(learner):
    return jax.eval_shape(learner.init, jax.random.PRNGKey(0)).target


def test_the_smaller_twin_is_bootstrapped_from_except_where_the_task_ended(learner):
    batch = transitions()
    for first, second in ((2.0, 5.0), (5.0, 2.0)):
        y, _ = target_of(learner, constant(shapes(learner), first, second), context_of(batch))
        added = y - batch.reward[:, 0]
        np.testing.assert_allclose(added, [1.8, 0, 1.8, 1.8, 1.8, 1.8], atol=1e-6)  # 0.9 · 2; truncated counts, too


def test_the_incentive_makes_up_for_what_the_critics_do_not_know_yet():
    learner = TD3Learner(settings(), SPEC, Devices.of(1), [EpisodicIncentive(GAMMA)])
    recall = Recall(
        found=np.array([[True, True, True, True, False, True]]),
        best_return=np.array([[6.0, 6, 6, 1, 6, 6]], np.float32),
        ratio=np.array([[0.5, 1, 1, 1, 1, 0]], np.float32),
        desirable=np.ones((1, B), bool),
        embedding=np.zeros((1, B, 4), np.float32),
    )
    batch, recall = transitions(), jax.tree.map(jnp.asarray, recall)
    y, parts = target_of(learner, constant(shapes(learner), 2.0, 5.0), context_of(batch, recall))
    # 0.9 · ratio · (6 - 2): half trusted, terminal, fully trusted, known to be worse, unknown, never desirable
    bonus = [1.8, 0.0, 3.6, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(y - batch.reward[:, 0] - [1.8, 0, 1.8, 1.8, 1.8, 1.8], bonus, atol=1e-6)
    assert parts["incentive_bonus"] == pytest.approx(np.mean(bonus))


def test_noise_on_the_targets_action_is_clipped_and_so_is_the_action():
    learner = TD3Learner(settings(td3__smoothing=1e3, td3__smoothing_clip=0.5), SPEC, Devices.of(1))
    networks = constant(shapes(learner), 0.0, 0.0, action=0.8)
    for name in ("first", "second"):  # Q is the first number of the action: relu(a + 9) - 9
        critic = networks.critic["params"][name]
        for layer, row in (("Linear_0", OBS), ("Linear_1", 0), ("Linear_2", 0)):
            critic[layer]["kernel"][row, 0] = 1
        critic["Linear_0"]["bias"][0], critic["Linear_2"]["bias"][:] = 9, -9
    rows = jax.tree.map(lambda x: np.concatenate([x] * 20), transitions()._replace(terminated=np.zeros((B, 1), bool)))
    y, _ = target_of(learner, networks, context_of(rows))
    values = ((y - rows.reward[:, 0]) / GAMMA).round(4)
    assert set(values) == {np.float32(0.3), np.float32(1.0)}  # 0.8 - 0.5, and 0.8 + 0.5 cut to 1


# Acting


def test_acting_is_greedy_noisy_or_random(learner):
    policy = constant(shapes(learner), 0, 0, action=0.5).actor
    obs, avail = np.zeros((4_000, 1, OBS), np.float32), np.ones((4_000, 1, 1), bool)

    def acts(epsilon):
        action, carry = learner.act(policy, (), obs, avail, jnp.float32(epsilon), jax.random.PRNGKey(1))
        assert action.shape == (4_000, 1, A) and action.dtype == np.float32 and carry == ()
        return np.asarray(action)

    assert np.allclose(acts(0.0), 0.5)
    noisy = acts(0.1)
    assert noisy.mean() == pytest.approx(0.5, abs=0.01) and noisy.std() == pytest.approx(0.1, abs=0.005)
    wild, random = acts(0.9), acts(1.0)
    assert wild.max() == 1 and wild.min() == -1
    counts, _ = np.histogram(random, bins=8, range=(-1, 1))
    assert counts.min() > 850 and counts.max() < 1150  # 1000 each


# What cannot be learned is refused


def test_a_learner_that_does_not_fit_the_task_is_refused():
    team = EnvSpec("team", "1", 2, 3, 2, 2, 9, 1, True, (0.0, 1.0))
    with pytest.raises(ConfigError, match="is for one agent with continuous actions; 'team' has 2 with discrete"):
        build_learner(settings(), team, Devices.of(1))
    with pytest.raises(ConfigError, match="is for teams with discrete actions; 'moving' has 1 with continuous ones"):
        build_learner(Config(), SPEC, Devices.of(1))
    with pytest.raises(ConfigError, match=r"switch off curiosity\."):
        build_learner(settings(curiosity__scale=0.1, memory__use="incentive"), SPEC, Devices.of(1))


def test_the_memory_is_a_term_of_td3_as_of_any_other_learner():
    config = settings(memory__use="incentive")
    assert [term.name for term in build_learner(config, SPEC, Devices.of(1)).terms] == ["incentive"]
    assert [term.name for term in build_terms(config, SPEC)] == ["incentive"]
