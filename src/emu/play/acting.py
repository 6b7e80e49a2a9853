"""How a learner acts in environments outside of a compiled program."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from emu.learners.base import Learner
from emu.types import Array, PyTree


def make_act(learner: Learner) -> Callable[..., tuple[dict[str, Array], PyTree]]:
    """A compiled call that finds joint actions for environments outside of it; `fresh` rows begin an episode.

    Returns what is done by the names that a slot has for it, and the new carry.
    """

    def act(policy, carry, fresh, obs, avail, epsilon, key, tick):
        carry = choose(fresh, learner.initial_carry(fresh.shape[0]), carry)
        action, carry = learner.act(policy, carry, obs, avail, epsilon, jax.random.fold_in(key, tick))
        log_prob = learner.log_prob(carry)
        return {"action": action} | ({} if log_prob is None else {"log_prob": log_prob}), carry

    return jax.jit(act)


def choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Choose per copy between two trees with leading axis E."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (b.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)
