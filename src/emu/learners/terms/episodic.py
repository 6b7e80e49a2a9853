"""What the episodic memory adds to a value learner; one of them, or the bonus beside one.

    episodic incentive   y += γ · (desirable visits / visits) · max(0, H(s') - Q_tot⁻(s', a*))      EMU
    episodic control     L += λ · (r + γ H(s') - Q_tot(s, a))²                                      EMC
    elliptical bonus     r += β · x'ᵀ C⁻¹ x', C from the steps of the episode so far                E3B

All read `context.recall`: what the memory answered for the batch's next states, time-major (T, B). The arithmetic is
`emu.memory.incentive`'s.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from emu.devices import sum_over_devices
from emu.learners.base import Context, Term
from emu.memory.incentive import elliptical_bonus, episodic_control_loss, episodic_incentive
from emu.types import Array, PyTree


class Remembering(Term):
    """A term that needs answers from the memory; logs how often there were any."""

    def update(self, state: PyTree, context: Context, renew_target: Array) -> tuple[PyTree, dict[str, Any]]:
        return state, {"hit_rate": sum_over_devices(context.mean(context.recall.found))}


class EpisodicIncentive(Remembering):
    name = "incentive"

    def __init__(self, gamma: float, optimistic: bool = False) -> None:
        self.gamma, self.optimistic = gamma, optimistic

    def target(self, state: PyTree, context: Context, next_value: Array) -> Array:
        terminated = context.batch.terminated
        return episodic_incentive(context.recall, next_value, terminated, self.gamma, self.optimistic)


class EpisodicControl(Remembering):
    name = "control"

    def __init__(self, gamma: float, weight: float = 0.1) -> None:
        self.gamma, self.weight = gamma, weight

    def loss(self, state: PyTree, context: Context, q_tot: Array) -> Array:
        batch = context.batch
        losses = episodic_control_loss(context.recall, batch.reward, q_tot, batch.terminated, self.gamma, self.weight)
        return context.mean(losses)


class EllipticalBonus(Term):
    name = "elliptical"

    def __init__(self, scale: float, ridge: float = 0.1) -> None:
        self.scale, self.ridge = scale, ridge

    def reward(self, state: PyTree, context: Context) -> Array:
        embeddings, filled = jnp.swapaxes(context.recall.embedding, 0, 1), context.batch.filled.T
        return self.scale * elliptical_bonus(embeddings, filled, self.ridge).T
