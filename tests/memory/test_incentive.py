"""The terms a learner takes from the memory: by hand, in numpy and JAX, and Theorems 1 and 2 of the paper."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.memory import (
    Recall,
    elliptical_bonus,
    episodic_control_loss,
    episodic_control_reward,
    episodic_incentive,
)

GAMMA = 0.9


def recall_of(found: Any, best: Any, ratio: Any, desirable: Any, xp: Any = np) -> Recall:
    best = xp.asarray(best, xp.float32)
    return Recall(
        xp.asarray(found, bool), best, xp.asarray(ratio, xp.float32), xp.asarray(desirable, bool), best[..., None]
    )


@pytest.mark.parametrize("xp", [np, jnp])
def test_incentive_by_hand(xp: Any) -> None:
    #             plain   lower H   not found  terminal  undesirable
    recall = recall_of([1, 1, 0, 1, 1], [10, 1, 10, 10, 10], [0.5, 1, 1, 1, 0], [1, 1, 1, 1, 0], xp)
    value, terminated = xp.full(5, 4.0, dtype=xp.float32), xp.asarray([0, 0, 0, 1, 0], dtype=bool)
    incentive = episodic_incentive(recall, value, terminated, GAMMA)
    np.testing.assert_allclose(incentive, [0.9 * 0.5 * 6, 0, 0, 0, 0], rtol=1e-6)
    optimistic = episodic_incentive(recall, value, terminated, GAMMA, optimistic=True)
    np.testing.assert_allclose(optimistic, [0.9 * 6, 0, 0, 0, 0], rtol=1e-6)
    assert incentive.dtype == np.float32
    if xp is jnp:
        jitted = jax.jit(lambda *a: episodic_incentive(*a, GAMMA))(recall, value, terminated)
        np.testing.assert_allclose(jitted, incentive, rtol=1e-6)


def transitions(count: int = 200) -> tuple[Recall, dict[str, jax.Array]]:
    rng = np.random.default_rng(0)
    recall = recall_of(rng.random(count) < 0.7, rng.normal(size=count), rng.random(count), rng.random(count) < 0.5, jnp)
    arrays = {name: jnp.asarray(rng.normal(size=count), jnp.float32) for name in ("reward", "next_value")}
    arrays["terminated"] = jnp.asarray(rng.random(count) < 0.1)
    arrays["features"] = jnp.asarray(rng.normal(size=(count, 6)), jnp.float32)
    return recall, arrays


def target_of(arrays: dict[str, jax.Array]) -> jax.Array:
    return arrays["reward"] + GAMMA * jnp.where(arrays["terminated"], 0.0, arrays["next_value"])


def test_theorem_1_the_reward_form_has_the_gradient_of_the_episodic_control_loss() -> None:
    recall, arrays = transitions()
    theta = jnp.asarray(np.random.default_rng(1).normal(size=6), jnp.float32)

    def q(theta: jax.Array) -> jax.Array:
        return jnp.tanh(arrays["features"] @ theta)

    def with_loss(theta: jax.Array) -> jax.Array:
        value = q(theta)
        control = episodic_control_loss(recall, arrays["reward"], value, arrays["terminated"], GAMMA)
        return jnp.sum((target_of(arrays) - value) ** 2 + control)

    def with_reward(theta: jax.Array) -> jax.Array:
        value = q(theta)
        constant = jax.lax.stop_gradient(value)
        extra = episodic_control_reward(recall, arrays["reward"], constant, arrays["terminated"], GAMMA)
        return jnp.sum((target_of(arrays) + extra - value) ** 2)

    np.testing.assert_allclose(jax.grad(with_loss)(theta), jax.grad(with_reward)(theta), rtol=1e-4)


def test_theorem_2_with_an_optimal_policy_the_gradient_is_that_of_the_true_value() -> None:
    """H → V*, every visit desirable: the target with r^p is r + γ V*(s'), whatever the target network says."""
    recall, arrays = transitions()
    true_value = arrays["next_value"] + jnp.abs(recall.best_return)  # the network underestimates
    optimal = Recall(jnp.ones(200, bool), true_value, jnp.ones(200), jnp.ones(200, bool), recall.embedding)
    theta = jnp.asarray(np.random.default_rng(1).normal(size=6), jnp.float32)

    def gradient(target: jax.Array) -> jax.Array:
        return jax.grad(lambda theta: jnp.sum((target - jnp.tanh(arrays["features"] @ theta)) ** 2))(theta)

    incentive = episodic_incentive(optimal, arrays["next_value"], arrays["terminated"], GAMMA)
    best = arrays["reward"] + GAMMA * jnp.where(arrays["terminated"], 0.0, true_value)
    np.testing.assert_allclose(target_of(arrays) + incentive, best, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient(target_of(arrays) + incentive), gradient(best), rtol=1e-3)
    nothing_left = episodic_incentive(optimal, true_value, arrays["terminated"], GAMMA)
    assert not np.any(nothing_left)  # an exact network gets no incentive: the Bellman target is kept


def test_theorem_2_the_incentive_converges_as_the_policy_does() -> None:
    """The share of desirable visits goes to one, and with it the target to the optimal one."""
    gaps = []
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        recall = recall_of([1], [5.0], [share], [1])
        incentive = episodic_incentive(recall, np.array([2.0], np.float32), np.zeros(1, bool), GAMMA)
        gaps.append(abs(float(incentive[0]) - GAMMA * 3.0))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-6


def rank_one_bonus(x: np.ndarray, mask: np.ndarray, ridge: float) -> np.ndarray:
    """The paper's recursion: bonus from C⁻¹ so far, then C⁻¹ ← C⁻¹ − u uᵀ / (1 + b)."""
    bonus = np.zeros(mask.shape)
    for e in range(len(x)):
        inverse = np.eye(x.shape[2]) / ridge
        for t in range(x.shape[1]):
            if mask[e, t]:
                u = inverse @ x[e, t]
                bonus[e, t] = x[e, t] @ u
                inverse -= np.outer(u, u) / (1 + bonus[e, t])
    return bonus


@pytest.mark.parametrize("dim", [1, 4, 8])
def test_elliptical_bonus_equals_the_rank_one_recursion(dim: int) -> None:
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(3, 40, dim)) * 2
    mask = np.arange(40) < np.array([[40], [17], [1]])
    expected = rank_one_bonus(x, mask, 0.1)
    np.testing.assert_allclose(elliptical_bonus(x, mask, 0.1), expected, rtol=1e-8)
    single = jax.jit(elliptical_bonus)(jnp.asarray(x, jnp.float32), jnp.asarray(mask), 0.1)
    np.testing.assert_allclose(single, expected, rtol=5e-3, atol=1e-4)
    assert not np.any(np.asarray(single)[~mask])


def test_control_loss_ignores_what_is_not_found_and_bootstraps_nothing_at_the_end() -> None:
    recall = recall_of([1, 0, 1], [10, 10, 10], [1, 1, 1], [0, 0, 0])
    reward, value = np.ones(3, np.float32), np.full(3, 4.0, np.float32)
    loss = episodic_control_loss(recall, reward, value, np.array([False, False, True]), GAMMA, weight=0.1)
    np.testing.assert_allclose(loss, [0.1 * (1 + 9 - 4) ** 2, 0, 0.1 * (1 - 4) ** 2], rtol=1e-6)
