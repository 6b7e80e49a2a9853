"""The standalone pieces of a TD update, by hand-computed numbers and PyTorch's formulas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.learners.td import clip_by_torch_norm, epsilon_greedy, lambda_target, masked, pick, td_target, torch_rmsprop

from . import oracles

quick = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)
greedy_choice = jax.jit(epsilon_greedy)
ROWS, ACTIONS = 6, 5


def some_q(seed):
    rng = np.random.default_rng(seed)
    avail = rng.random((ROWS, ACTIONS)) < 0.5
    avail[np.arange(ROWS), rng.integers(ACTIONS, size=ROWS)] = True
    return rng.normal(size=(ROWS, ACTIONS)).astype(np.float32), avail


def test_td_target_bootstraps_unless_terminated():
    target = td_target(jnp.array([1.0, 1.0]), jnp.array([False, True]), jnp.array([4.0, 4.0]), 0.5)
    np.testing.assert_allclose(target, [3.0, 1.0])


def test_an_infinite_value_behind_a_terminal_step_does_no_harm():
    target = td_target(jnp.array([1.0]), jnp.array([True]), jnp.array([jnp.inf]), 0.5)
    np.testing.assert_allclose(target, [1.0])


def test_the_lambda_target_by_hand():
    one_step, reward = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[3.0], [8.0], [99.0]])
    goes_on = jnp.array([[True], [True], [False]])
    # from the end: 4; half of 2 and of 8 + 4 / 2 = 10; half of 1 and of 3 + 6 / 2 = 6
    np.testing.assert_allclose(lambda_target(one_step, reward, goes_on, 0.5, 0.5), [[3.5], [6.0], [4.0]])
    np.testing.assert_allclose(lambda_target(one_step, reward, goes_on, 0.5, 0.0), one_step)


@quick
@given(seeds, st.floats(0, 1))
def test_targets_that_are_right_already_stay(seed, decay):
    """y_t = r_t + γ H_t+1 with the true H, as EMU's incentive makes it: looking ahead must not add anything."""
    rewards = np.random.default_rng(seed).normal(size=(6, 1))
    right = np.zeros((7, 1))
    for t in range(5, -1, -1):
        right[t] = rewards[t] + 0.9 * right[t + 1]
    goes_on = np.arange(6)[:, None] < 5
    np.testing.assert_allclose(lambda_target(right[:-1], rewards, goes_on, 0.9, decay), right[:-1], atol=1e-5)


def test_pick_takes_the_value_of_the_action():
    q = jnp.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_allclose(pick(q, jnp.array([[0, 2], [1, 1]])), [[0, 5], [7, 10]])


def test_an_unavailable_action_is_never_the_largest():
    q = jnp.array([-50.0, 99.0, -60.0])
    assert masked(q, jnp.array([True, False, True])).argmax() == 0


@quick
@given(seeds, st.floats(0, 1))
def test_every_choice_is_available(seed, epsilon):
    q, avail = some_q(seed)
    action = greedy_choice(q, avail, epsilon, jax.random.PRNGKey(seed))
    assert avail[np.arange(ROWS), action].all()


@quick
@given(seeds)
def test_without_exploration_the_choice_is_the_best_available(seed):
    q, avail = some_q(seed)
    action = greedy_choice(q, avail, 0.0, jax.random.PRNGKey(seed))
    assert list(action) == [oracles.best_available(row, free) for row, free in zip(q, avail, strict=True)]


def test_exploration_is_uniform_over_the_available_actions_and_keeps_the_rest_greedy():
    draws, epsilon = 40_000, 0.6
    q = np.broadcast_to(np.float32([3.0, 9.0, 1.0, 2.0]), (draws, 4))
    avail = np.broadcast_to([True, False, True, True], (draws, 4))
    action = greedy_choice(q, avail, epsilon, jax.random.PRNGKey(3))
    frequency = np.bincount(action, minlength=4) / draws
    expected = np.array([1 - epsilon + epsilon / 3, 0, epsilon / 3, epsilon / 3])
    np.testing.assert_allclose(frequency, expected, atol=4 * np.sqrt(0.25 / draws))


def test_agents_explore_independently():
    draws = 20_000
    q = np.broadcast_to(np.float32([1.0, 0.0]), (draws, 2, 2))
    action = np.asarray(greedy_choice(q, np.ones_like(q, bool), 1.0, jax.random.PRNGKey(0)))
    assert abs(np.corrcoef(action.T)[0, 1]) < 4 / np.sqrt(draws)


def test_clip_scales_large_gradients_and_leaves_small_ones_alone():
    clip = clip_by_torch_norm(10.0)
    large, small = {"a": jnp.array([30.0, 40.0])}, {"a": jnp.array([3.0, 4.0])}
    np.testing.assert_allclose(clip.update(large, clip.init(large))[0]["a"], [6.0, 8.0], rtol=1e-6)
    np.testing.assert_allclose(clip.update(small, clip.init(small))[0]["a"], [3.0, 4.0])


@quick
@given(seeds, st.sampled_from([0.1, 10.0]))
def test_rmsprop_takes_pytorchs_steps(seed, max_norm):
    rng = np.random.default_rng(seed)
    tree = lambda: {"a": rng.normal(size=3), "b": rng.normal(size=(2, 2)) * 1e-4}  # noqa: E731
    expected, square = tree(), oracles.zeros(tree())
    optimiser = torch_rmsprop(5e-4, 0.99, 1e-5, max_norm)
    params = jax.tree.map(jnp.float32, expected)
    state = optimiser.init(params)
    for _ in range(3):
        grads = tree()
        expected, square = oracles.rmsprop(expected, oracles.clip(grads, max_norm), square, 5e-4, 0.99, 1e-5)
        steps, state = optimiser.update(jax.tree.map(jnp.float32, grads), state, params)
        params = optax.apply_updates(params, steps)
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-5, atol=1e-7)
