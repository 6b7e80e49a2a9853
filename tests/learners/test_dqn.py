"""DQN against NumPy: one network, one step at a time; and what acting and sampling see of the same pictures."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.config import Config, replace
from emu.devices import Devices
from emu.envs import EnvSpec
from emu.errors import ConfigError
from emu.learners.build import build_learner, build_terms
from emu.learners.dqn import DQNLearner
from emu.memory import Recall
from emu.nets.qnets import PictureQ
from emu.replay.episodes import stack
from emu.replay.steps import Transitions
from emu.types import Batch
from toys import make_episode

OBS, A, B, GAMMA = 3, 4, 6, 0.9
SPEC = EnvSpec("one", "1", 1, A, OBS, OBS, 9, OBS, True, (-9.0, 9.0), state_is_obs=True)
SETTINGS = {
    "learner.kind": "dqn",
    "learner.gamma": GAMMA,
    "learner.batch_size": B,
    "dqn.target_interval": 2,
    "learner.learning_rate": 0.01,
    "learner.max_grad_norm": 0.05,  # so small that it always clips
    "dqn.hidden": 5,
    "dqn.huber": 0.7,
    "replay.unit": "steps",
}


def settings(**changes) -> Config:
    return replace(Config(), SETTINGS | {key.replace("__", "."): value for key, value in changes.items()})


@functools.cache
def learner_of(double_q: bool, use: str = "none") -> DQNLearner:
    config = settings(learner__double_q=double_q, memory__use=use)
    return DQNLearner(config, SPEC, Devices.of(), build_terms(config, SPEC))


def transitions(seed: int = 0) -> Batch:
    """Steps of which the second terminates and the third is truncated; some actions are not available."""
    rng = np.random.default_rng(seed)
    obs, rows = rng.normal(size=(B, 2, 1, OBS)).astype(np.float32), np.arange(B)[:, None]
    avail = rng.random((B, 2, 1, A)) < 0.6
    avail[..., 0] = True
    return Batch(
        obs=obs,
        state=obs[:, :, 0],
        avail=avail,
        action=rng.integers(0, A, (B, 1, 1)).astype(np.int32),
        reward=(3 * rng.normal(size=(B, 1))).astype(np.float32),  # large ones, so that both parts of the loss count
        terminated=rows == 1,
        truncated=rows == 2,
        filled=np.ones((B, 1), bool),
        time=rows.astype(np.int32),
    )


def recall_of(seed: int = 5) -> Recall:
    rng = np.random.default_rng(seed)
    found = np.array([1, 1, 1, 0, 1, 0], bool)[:, None]
    best, ratio = rng.uniform(1, 4, (B, 1)), rng.uniform(0.2, 1, (B, 1))
    half = np.where(found, [best, ratio], 0).astype(np.float32)
    return Recall(found, half[0], half[1], found & (ratio > 0.5), np.zeros((B, 1, 4), np.float32))


def network(params, x):
    """Two hidden layers in float64."""
    for name in ("Linear_0", "Linear_1", "Linear_2"):
        layer = jax.tree.map(lambda a: np.asarray(a, np.float64), params["params"][name])
        x = x @ layer["kernel"] + layer["bias"]
        x = np.maximum(x, 0) if name != "Linear_2" else x
    return x


def oracle(params, target_params, batch, double_q, recall=None):
    """Targets, loss and mean bonus, a step at a time."""
    targets, losses, bonuses, taken = [], [], [], []
    for row in range(B):
        q = network(params, batch.obs[row, 0, 0])[batch.action[row, 0, 0]]
        after = network(target_params, batch.obs[row, 1, 0])
        chooser = network(params, batch.obs[row, 1, 0]) if double_q else after
        allowed = [a for a in range(A) if batch.avail[row, 1, 0, a]]
        value = after[max(allowed, key=lambda a: chooser[a])]
        bonus = 0.0
        if recall is not None and recall.found[row, 0] and not batch.terminated[row, 0]:
            bonus = GAMMA * recall.ratio[row, 0] * max(0.0, recall.best_return[row, 0] - value)
        y = batch.reward[row, 0] + (0.0 if batch.terminated[row, 0] else GAMMA * value) + bonus
        error = abs(q - y)
        losses.append(0.5 * error**2 if error <= 0.7 else 0.7 * (error - 0.35))
        targets.append(y)
        bonuses.append(bonus)
        taken.append(q)
    return {
        "target": np.mean(targets),
        "td_loss": np.mean(losses),
        "incentive_bonus": np.mean(bonuses),
        "q_taken": np.mean(taken),
        "td_error_abs": np.mean(np.abs(np.array(taken) - np.array(targets))),
    }


def opposite(params):
    """A network that values every action the other way round."""
    layers = jax.tree.map(jnp.copy, params["params"])
    return {"params": layers | {"Linear_2": jax.tree.map(jnp.negative, layers["Linear_2"])}}


def two_updates(double_q, use="none"):
    """A fresh learner whose target differs from it, and what two updates in one call made of it."""
    learner = learner_of(double_q, use)
    state = learner.init(jax.random.PRNGKey(0))
    state = state._replace(target=opposite(state.params))
    before = jax.tree.map(np.array, state)  # copies: the update takes the state over
    recall = recall_of() if use == "incentive" else None
    inputs = stack([transitions(0), transitions(1)]), jax.tree.map(lambda x: np.stack([x, x]), recall)
    state, metrics = learner.update(learner.shards.replicate(state), *learner.shards.put(inputs, axis=1), np.int32(0))
    return before, jax.device_get(state), jax.device_get(metrics), recall


@pytest.mark.parametrize("double_q", [False, True])
def test_the_update_reports_the_oracles_targets_and_huber_loss(double_q):
    before, _, metrics, _ = two_updates(double_q)
    expected = oracle(before.params, before.target, transitions(0), double_q)
    for name in ("target", "td_loss", "q_taken", "td_error_abs"):
        np.testing.assert_allclose(metrics[name][0], expected[name], rtol=2e-5)


def test_double_q_chooses_with_one_network_and_values_with_the_other():
    params = learner_of(True).init(jax.random.PRNGKey(0)).params
    single, double = (oracle(params, opposite(params), transitions(0), double)["target"] for double in (False, True))
    assert double < single - 0.1  # so the test above would notice


def test_the_incentive_is_part_of_the_target():
    before, _, metrics, recall = two_updates(False, "incentive")
    expected = oracle(before.params, before.target, transitions(0), False, recall)
    assert expected["incentive_bonus"] > 0.1
    for name in ("target", "incentive_bonus", "td_loss"):
        np.testing.assert_allclose(metrics[name][0], expected[name], rtol=2e-5)
    np.testing.assert_allclose(metrics["incentive_hit_rate"][0], 4 / 6, rtol=1e-6)


def test_the_step_goes_down_the_oracles_gradient_clipped():
    """A finite difference of the oracle's loss along every weight of the last layer, through one step of Adam."""
    before, learner, batch = two_updates(False)[0], learner_of(False), transitions(0)
    state, _ = learner.update(
        learner.shards.replicate(jax.tree.map(jnp.asarray, before)),
        *learner.shards.put((stack([batch]), None), axis=1),
        np.int32(0),
    )
    change = np.asarray(state.params["params"]["Linear_2"]["bias"]) - before.params["params"]["Linear_2"]["bias"]
    gradient = np.zeros(A)
    targets = before.target
    for a in range(A):
        for sign in (1, -1):
            moved = jax.tree.map(np.array, before.params)
            moved["params"]["Linear_2"]["bias"][a] += sign * 1e-3
            gradient[a] += sign * oracle(moved, targets, batch, False)["td_loss"] / 2e-3
    moving = np.abs(gradient) > 1e-4
    assert moving.any()
    np.testing.assert_allclose(change[moving], -0.01 * np.sign(gradient[moving]), rtol=1e-3)  # Adam's first step


def test_the_target_becomes_a_copy_every_so_many_updates():
    before, after, _, _ = two_updates(False)
    jax.tree.map(np.testing.assert_array_equal, after.target, after.params)
    learner = learner_of(False)
    once, _ = learner.update(
        learner.shards.replicate(jax.tree.map(jnp.asarray, before)),
        *learner.shards.put((stack([transitions(0)]), None), axis=1),
        np.int32(0),
    )
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(once.target), before.target)


def test_acting_sees_the_same_stacks_as_learning():
    spec = EnvSpec("two", "1", 1, A, 2, 2, 9, 2, True, (-9.0, 9.0), state_is_obs=True, stack=3)
    learner = DQNLearner(settings(), spec, Devices(tuple(jax.devices()[:1])), [])
    replay, episode = Transitions(spec, 50, 10**9), make_episode(spec, 6)
    replay.add([episode])
    stacks = replay.gather(np.arange(6)).obs[:, 0]
    seen = []
    learner.net = type("Net", (), {"apply": lambda self, policy, shown: seen.append(shown) or jnp.zeros((1, 1, A))})()
    carry = learner.initial_carry(1)
    for t in range(6):
        _, carry = learner.act({}, carry, episode.obs[None, t], np.ones((1, 1, A), bool), 0.0, jax.random.PRNGKey(0))
    np.testing.assert_array_equal(np.concatenate(seen), stacks)


def test_the_picture_network_is_the_papers():
    net = PictureQ(4, (84, 84), 4)
    shapes = jax.eval_shape(net.init, jax.random.PRNGKey(0), jnp.zeros((1, 4 * 84 * 84), jnp.uint8))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 1_686_180  # Mnih et al.'s with four actions
    assert jax.eval_shape(net.apply, shapes, jnp.zeros((2, 5, 4 * 84 * 84), jnp.uint8)).shape == (2, 5, 4)


def test_channels_are_time_and_rows_are_rows():
    """A picture's layout survives: a small convolution by hand on a stack of two."""
    net = PictureQ(2, (36, 36), 2, hidden=3)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (1, 2, 36, 36)).astype(np.uint8)
    shapes = jax.eval_shape(net.init, jax.random.PRNGKey(0), pictures.reshape(1, -1))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)

    @jax.jit
    def first_layer(params, obs):
        inner = net.apply(params, obs, capture_intermediates=True)[1]["intermediates"]
        return inner["Conv_0"]["__call__"][0]

    first = np.asarray(first_layer(params, pictures.reshape(1, -1)))  # (1, 8, 8, 32)
    kernel, bias = (np.asarray(params["params"]["Conv_0"][part]) for part in ("kernel", "bias"))
    window = pictures[0, :, 4:12, 8:16].transpose(1, 2, 0) / 255
    np.testing.assert_allclose(first[0, 1, 2], np.tensordot(window, kernel, 3) + bias, rtol=1e-4, atol=1e-4)


def test_what_dqn_is_not_for_is_refused():
    with pytest.raises(ConfigError, match="one agent"):
        DQNLearner(settings(), EnvSpec("team", "1", 2, A, 2, 2, 9, 1, True, (0.0, 1.0)), Devices.of())
    with pytest.raises(ConfigError, match="curiosity"):
        build_learner(settings(curiosity__scale=0.1), SPEC, Devices.of())
