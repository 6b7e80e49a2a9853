"""EMC's curiosity (https://arxiv.org/abs/2111.11032): reward steps to where values cannot be predicted yet.

    r_t^c = scale · mean_i ‖ predictor_i(τ_t+1) - 10 Q_i^slow(τ_t+1) ‖₂

A second agent learns the extrinsic reward alone (VDN, double Q-learning, own target copy); Q^slow is its soft copy. The
predictor is an agent network of its own that reads the same inputs and minimises that distance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config, CuriosityConfig
from emu.devices import sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.td import clip_by_torch_norm, masked, pick, td_target, torch_rmsprop
from emu.learners.terms.base import Term, ValueContext
from emu.nets.agents import make_agent
from emu.types import Array, PyTree


class CuriosityState(NamedTuple):
    agent: PyTree
    target: PyTree  # hard copy of the agent, renewed with the learner's
    slow: PyTree  # soft copy of the agent: what the predictor is after
    predictor: PyTree
    agent_optimiser: PyTree
    predictor_optimiser: PyTree


class Prepared(NamedTuple):
    error: Array  # (T, B, N) distance between prediction and target
    td_loss: Array  # this device's shares
    prediction_loss: Array
    grads: tuple[PyTree, PyTree]  # of the agent, of the predictor


class Curiosity(Term):
    name = "curiosity"
    context = ValueContext

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Curiosity | None:
        return cls(config, spec) if config.curiosity.scale > 0 else None

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        self.options, self.learner, self.spec = config.curiosity, config.learner, spec
        self.network = make_agent(config.agent, spec.n_agents, spec.n_actions)
        c = config.learner
        self.agent_optimiser = torch_rmsprop(c.learning_rate, c.rmsprop_decay, c.rmsprop_eps, c.max_grad_norm)
        self.predictor_optimiser = optax.chain(
            clip_by_torch_norm(c.max_grad_norm), optax.adam(config.curiosity.learning_rate)
        )

    def init(self, key: Array) -> CuriosityState:
        agent, predictor = map(self._new_network, jax.random.split(key))
        target, slow = (jax.tree.map(jnp.copy, agent) for _ in range(2))
        optimisers = self.agent_optimiser.init(agent), self.predictor_optimiser.init(predictor)
        return CuriosityState(agent, target, slow, predictor, *optimisers)

    def prepare(self, state: CuriosityState, context: ValueContext) -> Prepared:
        """Every network is unrolled once; the reward and the update both come from here."""
        target_q = self._unroll(state.target, context)[1:]
        aim = self.options.target_factor * self._unroll(state.slow, context)[1:]

        def td_loss(params):
            q = self._unroll(params, context)
            return context.mean(jnp.square(self._td_error(q, target_q, context)))

        def prediction_loss(params):
            error = distance(self._unroll(params, context)[1:], aim)
            return context.mean(error.mean(axis=-1)), error

        td, agent_grads = jax.value_and_grad(td_loss)(state.agent)
        (prediction, error), predictor_grads = jax.value_and_grad(prediction_loss, has_aux=True)(state.predictor)
        return Prepared(error, td, prediction, (agent_grads, predictor_grads))

    def reward(self, state: CuriosityState, context: ValueContext) -> Array:
        return curiosity_scale(self.options, context.step) * context.prepared.error.mean(axis=-1)

    def update(
        self, state: CuriosityState, context: ValueContext, renew_target: Array
    ) -> tuple[CuriosityState, dict[str, Any]]:
        prepared: Prepared = sum_over_devices(context.prepared._replace(error=()))
        agent_grads, predictor_grads = prepared.grads
        steps, agent_optimiser = self.agent_optimiser.update(agent_grads, state.agent_optimiser, state.agent)
        agent = optax.apply_updates(state.agent, steps)
        steps, predictor_optimiser = self.predictor_optimiser.update(predictor_grads, state.predictor_optimiser)
        predictor = optax.apply_updates(state.predictor, steps)

        target = jax.tree.map(lambda new, old: jnp.where(renew_target, new, old), agent, state.target)
        slow = optax.incremental_update(agent, state.slow, self.options.soft_update)
        metrics = {
            "scale": curiosity_scale(self.options, context.step),
            "td_loss": prepared.td_loss,
            "prediction_loss": prepared.prediction_loss,
        }
        return CuriosityState(agent, target, slow, predictor, agent_optimiser, predictor_optimiser), metrics

    def _td_error(self, q: Array, target_q: Array, context: ValueContext) -> Array:
        """VDN's error on the extrinsic reward alone, (T, B)."""
        batch, avail = context.batch, context.batch.avail[1:]
        chooser = jax.lax.stop_gradient(q[1:]) if self.learner.double_q else target_q
        best = masked(chooser, avail).argmax(axis=-1)
        value = pick(target_q, best).sum(axis=-1)
        target = td_target(batch.reward, batch.terminated, value, self.learner.gamma)
        return pick(q[:-1], batch.action).sum(axis=-1) - target

    def _unroll(self, params: PyTree, context: ValueContext) -> Array:
        inputs = context.batch.obs, context.last_action, context.lengths
        return self.network.apply(params, *inputs, method="unroll")[0]

    def _new_network(self, key: Array) -> PyTree:
        n, s = self.spec.n_agents, self.spec
        hidden, obs, act = (jnp.zeros((1, n, size)) for size in (self.network.hidden, s.obs_dim, s.n_actions))
        return self.network.init(key, hidden, obs, act, method="step")


def curiosity_scale(config: CuriosityConfig, step: Array) -> Array:
    """scale · decay^(number of intervals passed), not below the floor."""
    passed = jnp.asarray(step // config.decay_interval, jnp.float32)
    return jnp.maximum(config.scale * config.decay**passed, config.floor)


def distance(a: Array, b: Array) -> Array:
    """‖a - b‖₂ over the last axis, with a gradient of 0 instead of NaN where they meet."""
    return jnp.sqrt(jnp.square(a - b).sum(axis=-1) + 1e-12)
