"""CDS (https://arxiv.org/abs/2106.02195): reward agents that can be told apart by what they see next and do.

    r_t = β mean_i [ β1 log q(o_i'|τ_i, a_i, i) - log p(o_i'|τ_i, a_i) + β2 KL(softmax(β1 Q_i) ‖ mean_j softmax(Q_j)) ]

log q and log p are minus the squared errors of two predictors: one knows the agent, one does not. Target copies of them
give the reward. The own heads, which let the agents differ at all, pay for what they add: 0.1 mean |own head|.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config, DiversityConfig
from emu.devices import DATA, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.td import clip_by_torch_norm
from emu.learners.terms.base import Term, ValueContext
from emu.nets.predictors import ObservationPredictor
from emu.types import Array, PyTree


class OwnHeadPenalty(Term):
    """λ · mean |own head's part of Q|, over real steps, agents and actions."""

    name = "own_heads"
    context = ValueContext

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> OwnHeadPenalty | None:
        weight = config.diversity.own_head_penalty
        return cls(weight) if config.agent.own_heads and weight > 0 else None

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def loss(self, state: PyTree, context: ValueContext, q_tot: Array) -> Array:
        return self.weight * context.mean(jnp.abs(context.own_q[:-1]).mean(axis=(-2, -1)))


class DiversityState(NamedTuple):
    predictors: dict[str, PyTree]  # "own" knows the agent, "anyone" does not
    target: dict[str, PyTree]
    optimisers: dict[str, PyTree]
    key: Array


class Rows(NamedTuple):
    """One agent in one step each: what the predictors read, and what they are after."""

    hidden: Array  # (..., H) GRU state before the step
    obs: Array  # (..., O)
    action: Array  # (...)
    agent: Array  # (...)
    next_obs: Array  # (..., O)


class Diversity(Term):
    name = "diversity"
    context = ValueContext

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Diversity | None:
        return cls(config, spec) if config.diversity.beta > 0 else None

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        self.options, self.spec = config.diversity, spec
        self.features = config.agent.hidden + spec.obs_dim + spec.n_actions
        self.network = ObservationPredictor(spec.obs_dim, self.options.hidden)
        self.optimiser = optax.chain(
            clip_by_torch_norm(self.options.max_grad_norm), optax.adam(self.options.learning_rate)
        )

    def init(self, key: Array) -> DiversityState:
        own_key, anyone_key, key = jax.random.split(key, 3)
        features, agent = jnp.zeros((1, self.features)), jnp.zeros((1, self.spec.n_agents))
        predictors = {
            "own": self.network.init(own_key, features, agent),
            "anyone": self.network.init(anyone_key, features),
        }
        optimisers = {name: self.optimiser.init(params) for name, params in predictors.items()}
        return DiversityState(predictors, jax.tree.map(jnp.copy, predictors), optimisers, key)

    def reward(self, state: DiversityState, context: ValueContext) -> Array:
        errors, c = self._errors(state.target, self._all_rows(context)), self.options
        identity = errors["anyone"] - c.beta1 * errors["own"]
        diversity = identity + c.beta2 * policy_divergence(context.q[:-1], c.beta1)
        return diversity_scale(c, context.step) * diversity.mean(axis=-1)

    def update(
        self, state: DiversityState, context: ValueContext, renew_target: Array
    ) -> tuple[DiversityState, dict[str, Any]]:
        """One pass over the real rows of the whole batch, in random minibatches shared out over the devices."""
        gather = lambda x: jax.lax.all_gather(x, DATA, axis=1, tiled=True)  # noqa: E731
        batch = context.batch
        hidden, obs, action, mask = map(gather, (context.hidden, batch.obs, batch.action, context.mask))
        stored = hidden.reshape(-1, hidden.shape[-1]), obs.reshape(-1, obs.shape[-1]), action.reshape(-1)
        per_step = action.shape[1] * action.shape[2]  # rows of one time step

        key, order_key = jax.random.split(state.key)
        real = jnp.broadcast_to(mask[..., None] > 0, action.shape).reshape(-1)
        order, count = random_order(real, order_key), real.sum()
        size = self.options.minibatch
        share = -(-size // jax.lax.axis_size(DATA))  # rows of a minibatch that this device computes
        slots = jax.lax.axis_index(DATA) * share + jnp.arange(share)

        def train(index, carry):
            predictors, optimisers, losses = carry
            places = index * size + slots
            weights = ((slots < size) & (places < count)) / jnp.minimum(size, count - index * size)
            rows = self._rows_at(*stored, order[jnp.minimum(places, len(order) - 1)], per_step)

            def loss_fn(params):
                means = {name: (error * weights).sum() for name, error in self._errors(params, rows).items()}
                return sum(means.values()), means

            grads, means = sum_over_devices(jax.grad(loss_fn, has_aux=True)(predictors))
            predictors, optimisers = self._apply(grads, predictors, optimisers)
            return predictors, optimisers, jax.tree.map(jnp.add, losses, means)

        minibatches = (count + size - 1) // size
        start = state.predictors, state.optimisers, dict.fromkeys(state.predictors, jnp.float32(0))
        predictors, optimisers, losses = jax.lax.fori_loop(0, minibatches, train, start)
        target = jax.tree.map(lambda new, old: jnp.where(renew_target, new, old), predictors, state.target)
        metrics = {f"{name}_predictor_loss": loss / jnp.maximum(minibatches, 1) for name, loss in losses.items()}
        metrics["scale"] = diversity_scale(self.options, context.step)
        return DiversityState(predictors, target, optimisers, key), metrics

    def _apply(self, grads: dict, predictors: dict, optimisers: dict) -> tuple[dict, dict]:
        """An Adam step for each predictor, clipped by its own norm."""
        fresh, states = {}, {}
        for name, params in predictors.items():
            steps, states[name] = self.optimiser.update(grads[name], optimisers[name])
            fresh[name] = optax.apply_updates(params, steps)
        return fresh, states

    def _errors(self, predictors: dict[str, PyTree], rows: Rows) -> dict[str, Array]:
        """Squared error of both predictors, summed over the observation."""
        features = jnp.concatenate([rows.hidden, rows.obs, jax.nn.one_hot(rows.action, self.spec.n_actions)], axis=-1)
        agent = jax.nn.one_hot(rows.agent, self.spec.n_agents)
        predictions = {
            "own": self.network.apply(predictors["own"], features, agent),
            "anyone": self.network.apply(predictors["anyone"], features),
        }
        return {name: jnp.square(p - rows.next_obs).sum(axis=-1) for name, p in predictions.items()}  # type: ignore[operator]

    def _all_rows(self, context: ValueContext) -> Rows:
        """Every step of this device's episodes, (T, B, N, ·)."""
        batch, hidden = context.batch, context.hidden
        before = jnp.concatenate([jnp.zeros_like(hidden[:1]), hidden[:-2]])
        agent = jnp.broadcast_to(jnp.arange(self.spec.n_agents), batch.action.shape)
        return Rows(before, batch.obs[:-1], batch.action, agent, batch.obs[1:])

    def _rows_at(self, hidden: Array, obs: Array, action: Array, index: Array, per_step: int) -> Rows:
        """Chosen rows out of flat (T+1)·B·N hidden states and observations; a step further is `per_step` rows on."""
        first = (index < per_step)[:, None]
        before = jnp.where(first, 0.0, hidden[jnp.maximum(index - per_step, 0)])
        return Rows(before, obs[index], action[index], index % self.spec.n_agents, obs[index + per_step])


def random_order(real: Array, key: Array) -> Array:
    """Positions of all entries: the real ones first, shuffled."""
    return jnp.argsort(jnp.where(real, jax.random.uniform(key, real.shape), 2.0))


def policy_divergence(q: Array, beta1: float) -> Array:
    """KL(softmax(β1 Q_i) ‖ mean_j softmax(Q_j)) of every agent, (..., N, A) -> (..., N)."""
    own = jax.nn.log_softmax(beta1 * q, axis=-1)
    team = jax.nn.logsumexp(jax.nn.log_softmax(q, axis=-1), axis=-2, keepdims=True) - jnp.log(q.shape[-2])
    return (jnp.exp(own) * (own - team)).sum(axis=-1)


def diversity_scale(config: DiversityConfig, step: Array) -> Array:
    """β, falling linearly after `anneal_after` steps: by `anneal_rate` · β per million steps, down to 0."""
    if not config.anneal_after:
        return jnp.float32(config.beta)
    millions = (step - config.anneal_after) / 1e6
    return config.beta * jnp.clip(1.0 - config.anneal_rate * millions, 0.0, 1.0)
