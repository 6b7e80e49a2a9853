"""TD3 (Fujimoto et al., 2018): one agent, continuous actions, and what the episodic memory adds to the target.

    a'  = clip(π⁻(s') + clip(noise, ±c), ±1)                                  target policy smoothing
    y   = r + γ (1 - terminated) min(Q₁⁻(s', a'), Q₂⁻(s', a')) + Σ bonuses    twin critics; EMU's incentive is a bonus
    L_Q = mean (Q₁(s, a) - y)² + mean (Q₂(s, a) - y)² + Σ losses of terms
    L_π = -mean Q₁(s, π(s))                                                   every `policy_interval` updates; then
    θ⁻ <- τ θ + (1 - τ) θ⁻                                                    the targets follow

A batch is single steps (T = 1, `replay.unit`), though whole episodes would do. The terms are the memory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import DATA, Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.base import Context, Term
from emu.learners.td import td_target
from emu.nets.critics import Actor, TwinCritic
from emu.types import Array, Batch, PyTree


class Networks(NamedTuple):
    actor: PyTree
    critic: PyTree


class TD3State(NamedTuple):
    params: Networks
    target: Networks
    optimiser: Networks  # a state of Adam's for each
    key: Array  # (2,) uint32: the noise of update n comes from this key and n
    updates: Array  # () int32
    policy_value: Array  # () mean Q₁ of the policy's own actions when the policy was last updated


class TD3Learner:
    on_policy = False

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        if spec.n_agents != 1 or not spec.action_dim:
            raise ConfigError(
                f"TD3 needs one agent with continuous actions; '{spec.name}' has {spec.n_agents} with "
                f"{'continuous' if spec.action_dim else 'discrete'} ones. `emu algos` lists what else there is."
            )
        self.config, self.td3, self.spec, self.terms = config.learner, config.td3, spec, tuple(terms)
        self.actor, self.critic = Actor(spec.action_dim, self.td3.hidden), TwinCritic(self.td3.hidden)
        self.adam = optax.adam(config.learner.learning_rate)
        self.shards = devices.sharding_for(config.learner.batch_size)
        self.update = self.shards.compiled_update(self._updates)

    def init(self, key: Array) -> TD3State:
        actor_key, critic_key, key = jax.random.split(key, 3)
        obs, action = jnp.zeros((1, self.spec.obs_dim)), jnp.zeros((1, self.spec.action_dim))
        params = Networks(self.actor.init(actor_key, obs), self.critic.init(critic_key, obs, action))
        optimiser = Networks(*(self.adam.init(network) for network in params))
        return TD3State(params, jax.tree.map(jnp.copy, params), optimiser, key, jnp.int32(0), jnp.float32(0))

    def policy(self, state: TD3State) -> PyTree:
        return state.params.actor

    def initial_carry(self, copies: int) -> tuple[()]:
        return ()  # nothing is remembered from step to step

    def act(
        self, policy: PyTree, carry: tuple[()], obs: Array, avail: Array, epsilon: Array, key: Array
    ) -> tuple[Array, tuple[()]]:
        """The policy's actions with normal noise of standard deviation epsilon; uniformly random ones if that is 1."""
        noise_key, random_key = jax.random.split(key)
        action: Array = self.actor.apply(policy, obs)
        noisy = jnp.clip(action + epsilon * jax.random.normal(noise_key, action.shape), -1.0, 1.0)
        return jnp.where(epsilon >= 1, jax.random.uniform(random_key, action.shape, minval=-1.0), noisy), carry

    def log_prob(self, carry: tuple[()]) -> None:
        """Not needed: what was done is judged by its target alone."""

    # What follows runs inside one compiled program, on each device's share of every batch.

    def _updates(self, state: TD3State, batches: Batch, recall: Any, step: Array):
        def body(state, inputs):
            batch, recall = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), inputs)  # time first
            mask = batch.filled.astype(jnp.float32)
            count = jnp.maximum(jax.lax.psum(mask.sum(), DATA), 1.0)
            nothing = dict.fromkeys(("q", "hidden", "own_q", "last_action", "lengths"))
            return self._update(state, Context(batch, recall, mask=mask, count=count, step=step, **nothing))

        return jax.lax.scan(body, state, (batches, recall))

    def _update(self, state: TD3State, context: Context) -> tuple[TD3State, dict[str, Array]]:
        obs, action = context.batch.obs[:-1, :, 0], context.batch.action[:, :, 0]
        noise_key = jax.random.fold_in(jax.random.fold_in(state.key, state.updates), jax.lax.axis_index(DATA))
        target, parts = self._target(state.target, context, noise_key)

        def loss_fn(critic: PyTree) -> tuple[Array, dict[str, Array]]:
            q: Array = self.critic.apply(critic, obs, action)  # (T, B, 2)
            error = q - target[..., None]
            td_loss = context.mean((error**2).sum(axis=-1))
            extra = sum(term.loss((), context, q[..., i]) for term in self.terms for i in range(2))
            values = {"td_error_abs": context.mean(jnp.abs(error).mean(axis=-1)), "q_taken": context.mean(q[..., 0])}
            return td_loss + extra, {"td_loss": td_loss, "loss": td_loss + extra, **values}

        (_, more), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params.critic)
        grads, parts = sum_over_devices((grads, parts | more))
        critic, critic_adam = self._descend(grads, state.optimiser.critic, state.params.critic)
        state = state._replace(
            params=state.params._replace(critic=critic),
            optimiser=state.optimiser._replace(critic=critic_adam),
            updates=state.updates + 1,
        )
        due = state.updates % self.td3.policy_interval == 0
        state = jax.lax.cond(due, lambda s: self._follow(s, context, obs), lambda s: s, state)
        for term in self.terms:
            _, metrics = term.update((), context, due)
            parts |= {f"{term.name}_{key}": value for key, value in metrics.items()}
        return state, parts | {"grad_norm": optax.global_norm(grads), "policy_value": state.policy_value}

    def _target(self, target: Networks, context: Context, noise_key: Array) -> tuple[Array, dict[str, Array]]:
        """y of every step, (T, B), with every term's share of it."""
        batch, parts = context.batch, {}
        obs = batch.obs[1:, :, 0]
        action: Array = self.actor.apply(target.actor, obs)
        noise = self.td3.smoothing * jax.random.normal(noise_key, action.shape)
        noise = jnp.clip(noise, -self.td3.smoothing_clip, self.td3.smoothing_clip)
        twins: Array = self.critic.apply(target.critic, obs, jnp.clip(action + noise, -1.0, 1.0))
        value = twins.min(axis=-1)
        y = td_target(batch.reward, batch.terminated, value, self.config.gamma)
        for term in self.terms:
            bonus = term.target((), context, value)
            if not isinstance(bonus, float):
                y, parts = y + bonus, parts | {f"{term.name}_bonus": context.mean(bonus)}
        return jax.lax.stop_gradient(y), parts | {"target": context.mean(y)}

    def _follow(self, state: TD3State, context: Context, obs: Array) -> TD3State:
        """The delayed part: one step of the policy up the first critic, then the targets move towards the networks."""

        def loss_fn(actor: PyTree) -> Array:
            action = self.actor.apply(actor, obs)
            return -context.mean(self.critic.apply(state.params.critic, obs, action, method="first"))

        loss, grads = sum_over_devices(jax.value_and_grad(loss_fn)(state.params.actor))
        actor, actor_adam = self._descend(grads, state.optimiser.actor, state.params.actor)
        params = state.params._replace(actor=actor)
        return state._replace(
            params=params,
            target=optax.incremental_update(params, state.target, self.td3.soft_update),
            optimiser=state.optimiser._replace(actor=actor_adam),
            policy_value=-loss,
        )

    def _descend(self, grads: PyTree, adam: PyTree, params: PyTree) -> tuple[PyTree, PyTree]:
        steps, adam = self.adam.update(grads, adam, params)
        return optax.apply_updates(params, steps), adam
