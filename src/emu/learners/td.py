"""The pieces of a TD update that stand alone: targets, masked choices, PyTorch's RMSprop.

Names carry time: `_t` is the step an action was taken in, `_tp1` the one after it.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import optax

from emu.types import Array

UNAVAILABLE = -1e7  # finite, so that a masked maximum never makes a NaN


def masked(q: Array, avail: Array) -> Array:
    """Q with unavailable actions pushed out of every maximum; both (..., A)."""
    chex.assert_equal_shape([q, avail])
    return jnp.where(avail, q, UNAVAILABLE)


def pick(q: Array, action: Array) -> Array:
    """Q of the given actions: (..., A), (...) -> (...). A product with one-hots is cheaper than a gather, both ways."""
    chex.assert_shape(action, q.shape[:-1])
    return (q * jax.nn.one_hot(action, q.shape[-1], dtype=q.dtype)).sum(axis=-1)


def td_target(reward_t: Array, terminated_t: Array, value_tp1: Array, gamma: float) -> Array:
    """r_t + γ (1 - terminated_t) V(s_t+1). A truncated step bootstraps like any other."""
    chex.assert_equal_shape([reward_t, terminated_t, value_tp1])
    return reward_t + gamma * jnp.where(terminated_t, 0.0, value_tp1)


def lambda_target(target_t: Array, reward_t: Array, goes_on_t: Array, gamma: float, decay: float) -> Array:
    """Peng's Q(λ): G_t = (1 - λ) y_t + λ (r_t + γ G_t+1) where the episode goes on after step t, else y_t; time first.

    `target_t` is the one-step target y, bonuses on its bootstrap value included: they count with its weight, and are
    not added up along the episode. λ = 0 leaves y, λ = 1 sums up all that followed. Not corrected for the policy
    having changed: with λ well below one that does little harm.
    """
    chex.assert_equal_shape([target_t, reward_t, goes_on_t])

    def step(later, now):
        target, reward, goes_on = now
        total = target + jnp.where(goes_on, decay * (reward + gamma * later - target), 0.0)
        return total, total

    return jax.lax.scan(step, jnp.zeros_like(target_t[0]), (target_t, reward_t, goes_on_t), reverse=True)[1]


def torch_rmsprop(learning_rate: float, decay: float, eps: float, max_norm: float) -> optax.GradientTransformation:
    """Clip by global norm, then RMSprop with epsilon outside the root, as `torch.optim.RMSprop` has it."""
    return optax.chain(
        clip_by_torch_norm(max_norm), optax.rmsprop(learning_rate, decay=decay, eps=eps, eps_in_sqrt=False)
    )


def clip_by_torch_norm(max_norm: float) -> optax.GradientTransformation:
    """`torch.nn.utils.clip_grad_norm_`: scale by max_norm / (norm + 1e-6) when that is below one."""

    def update(updates, state, params=None):
        scale = jnp.minimum(1.0, max_norm / (optax.global_norm(updates) + 1e-6))
        return jax.tree.map(lambda g: g * scale, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def epsilon_greedy(q: Array, avail: Array, epsilon: Array, key: Array) -> Array:
    """Greedy over available actions; with probability epsilon, per agent, a uniformly random available one."""
    chex.assert_equal_shape([q, avail])
    explore_key, action_key = jax.random.split(key)
    greedy = masked(q, avail).argmax(axis=-1)
    # Rank of a uniform draw among the available actions: one random number per agent instead of one per action.
    draw = jax.random.uniform(action_key, greedy.shape)
    count = avail.sum(axis=-1)
    rank = jnp.minimum((draw * count).astype(jnp.int32), count - 1)
    random = (jnp.cumsum(avail, axis=-1) > rank[..., None]).argmax(axis=-1)
    explore = jax.random.uniform(explore_key, greedy.shape) < epsilon
    return jnp.where(explore, random, greedy).astype(jnp.int32)
