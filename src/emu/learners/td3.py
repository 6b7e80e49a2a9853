"""TD3 (Fujimoto et al., 2018): one agent, continuous actions, and what the episodic memory adds to the target.

    a'  = clip(π⁻(s') + clip(noise, ±c), ±1)                                  target policy smoothing
    y   = r + Σ intrinsic + γ (1 - terminated) min(Q₁⁻(s', a'), Q₂⁻(s', a')) + Σ bonuses      twin critics
    L_Q = mean (Q₁(s, a) - y)² + mean (Q₂(s, a) - y)² + Σ losses of terms
    L_π = -mean Q₁(s, π(s))                                                   every `policy_interval` updates; then
    θ⁻ <- τ θ + (1 - τ) θ⁻                                                    the targets follow

A batch is single steps (T = 1, `replay.unit`), though whole episodes would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import DATA, Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.base import Learner
from emu.learners.td import td_target
from emu.learners.terms.base import Context, Contexts, Term
from emu.nets.critics import Actor, TwinCritic
from emu.types import Array, PyTree

TERMS_KEY = 3  # beside the three that the networks and the noise start from


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
    terms: tuple[PyTree, ...]


class TD3Learner(Learner):
    teams = False
    actions = "continuous"
    context = Context

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        super().__init__(config, spec, devices, terms)
        self.td3 = config.td3
        self.actor, self.critic = Actor(spec.action_dim, self.td3.hidden), TwinCritic(self.td3.hidden)
        self.adam = optax.adam(config.learner.learning_rate)

    def init(self, key: Array) -> TD3State:
        terms = self.terms.init(jax.random.fold_in(key, TERMS_KEY))
        actor_key, critic_key, key = jax.random.split(key, 3)
        obs, action = jnp.zeros((1, self.spec.obs_dim)), jnp.zeros((1, self.spec.action_dim))
        params = Networks(self.actor.init(actor_key, obs), self.critic.init(critic_key, obs, action))
        optimiser = Networks(*(self.adam.init(network) for network in params))
        return TD3State(params, jax.tree.map(jnp.copy, params), optimiser, key, jnp.int32(0), jnp.float32(0), terms)

    def policy(self, state: TD3State) -> PyTree:
        return state.params.actor

    def initial_carry(self, copies: int) -> tuple[()]:
        return ()  # nothing is remembered from step to step

    def act(
        self, policy: PyTree, carry: tuple[()], obs: Array, avail: Array, explore: Array, key: Array
    ) -> tuple[Array, tuple[()]]:
        """The policy's actions with normal noise of deviation `explore`; uniformly random ones if that is 1."""
        noise_key, random_key = jax.random.split(key)
        action: Array = self.actor.apply(policy, obs)
        noisy = jnp.clip(action + explore * jax.random.normal(noise_key, action.shape), -1.0, 1.0)
        return jnp.where(explore >= 1, jax.random.uniform(random_key, action.shape, minval=-1.0), noisy), carry

    def learn(self, state: TD3State, context: Context) -> tuple[TD3State, dict[str, Array]]:
        obs, action = context.batch.obs[:-1, :, 0], context.batch.action[:, :, 0]
        noise_key = jax.random.fold_in(jax.random.fold_in(state.key, state.updates), jax.lax.axis_index(DATA))
        views = self.terms.prepare(state.terms, context)
        target, parts = self._target(state, context, views, noise_key)

        def loss_fn(critic: PyTree) -> tuple[Array, dict[str, Array]]:
            q: Array = self.critic.apply(critic, obs, action)  # (T, B, 2)
            error = q - target[..., None]
            td_loss = context.mean((error**2).sum(axis=-1))
            of_each = [self.terms.losses(state.terms, views, q[..., i]) for i in range(2)]
            losses = jax.tree.map(jnp.add, *of_each)
            loss = td_loss + sum(losses.values())
            values = {"td_error_abs": context.mean(jnp.abs(error).mean(axis=-1)), "q_taken": context.mean(q[..., 0])}
            return loss, losses | {"td_loss": td_loss, "loss": loss, **values}

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
        terms, metrics = self.terms.update(state.terms, views, due)
        parts |= metrics | {"grad_norm": optax.global_norm(grads), "policy_value": state.policy_value}
        return state._replace(terms=terms), parts

    def _target(
        self, state: TD3State, context: Context, views: Contexts, noise_key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """y of every step, (T, B), with every term's share of it."""
        batch, target = context.batch, state.target
        obs = batch.obs[1:, :, 0]
        action: Array = self.actor.apply(target.actor, obs)
        noise = self.td3.smoothing * jax.random.normal(noise_key, action.shape)
        noise = jnp.clip(noise, -self.td3.smoothing_clip, self.td3.smoothing_clip)
        twins: Array = self.critic.apply(target.critic, obs, jnp.clip(action + noise, -1.0, 1.0))
        value = twins.min(axis=-1)
        reward, rewards = self.terms.reward(state.terms, views, batch.reward)
        y = td_target(reward, batch.terminated, value, self.config.gamma)
        y, bonuses = self.terms.target(state.terms, views, y, value)
        return jax.lax.stop_gradient(y), rewards | bonuses | {"target": context.mean(y)}

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
