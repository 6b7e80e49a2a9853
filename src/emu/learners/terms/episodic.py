"""What the episodic memory adds to a value learner; one of them, or the bonus beside one.

    episodic incentive   y += γ · (desirable visits / visits) · max(0, H(s') - Q_tot⁻(s', a*))      EMU; it may fade
    episodic control     L += λ · (r + γ H(s') - Q_tot(s, a))²                                      EMC
    elliptical bonus     r += β · x'ᵀ C⁻¹ x', C from the steps of the episode so far                E3B

All read `context.recall`: what the memory answered for the batch's next states, time-major (T, B). The arithmetic is
`emu.memory.incentive`'s.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from emu.config import Config
from emu.devices import sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.terms.base import Context, Term, ValueContext
from emu.memory import Recall
from emu.memory.incentive import elliptical_bonus, episodic_control_loss, episodic_incentive
from emu.types import Array, PyTree


class Remembering(Term):
    """A term that needs answers from the memory; logs how often there were any."""

    needs_memory = True

    def update(self, state: PyTree, context: Context, renew_target: Array) -> tuple[PyTree, dict[str, Any]]:
        return state, {"hit_rate": sum_over_devices(context.mean(_known(context).found))}


class EpisodicIncentive(Remembering):
    name = "incentive"

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> EpisodicIncentive | None:
        memory = config.memory
        on = memory.use == "incentive"
        return cls(config.learner.gamma, memory.optimistic, memory.incentive_steps) if on else None

    def __init__(self, gamma: float, optimistic: bool = False, fade_steps: int = 0) -> None:
        self.gamma, self.optimistic, self.fade_steps = gamma, optimistic, fade_steps

    def target(self, state: PyTree, context: Context, next_value: Array) -> Array:
        terminated = context.batch.terminated
        bonus = episodic_incentive(_known(context), next_value, terminated, self.gamma, self.optimistic)
        if not self.fade_steps:
            return bonus
        return bonus * jnp.clip(1.0 - context.step.astype(jnp.float32) / self.fade_steps, 0.0, 1.0)


class EpisodicControl(Remembering):
    name = "control"

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> EpisodicControl | None:
        return cls(config.learner.gamma, config.memory.control_weight) if config.memory.use == "control" else None

    def __init__(self, gamma: float, weight: float = 0.1) -> None:
        self.gamma, self.weight = gamma, weight

    def loss(self, state: PyTree, context: Context, q_tot: Array) -> Array:
        batch = context.batch
        losses = episodic_control_loss(_known(context), batch.reward, q_tot, batch.terminated, self.gamma, self.weight)
        return context.mean(losses)


class EllipticalBonus(Term):
    name = "elliptical"
    context = ValueContext  # for its whole episodes: a single step has no steps before it
    needs_memory = True

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> EllipticalBonus | None:
        return cls(config.elliptical.scale, config.elliptical.ridge) if config.elliptical.scale > 0 else None

    def __init__(self, scale: float, ridge: float = 0.1) -> None:
        self.scale, self.ridge = scale, ridge

    def reward(self, state: PyTree, context: Context) -> Array:
        embeddings, filled = jnp.swapaxes(_known(context).embedding, 0, 1), context.batch.filled.T
        return self.scale * elliptical_bonus(embeddings, filled, self.ridge).T


def _known(context: Context) -> Recall:
    """What the memory answered; a learner with one of these terms is never without."""
    assert context.recall is not None, "a term of the memory was given no recall"
    return context.recall
