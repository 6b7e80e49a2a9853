"""DQN (Mnih et al., 2015) for one agent with discrete actions, and what the episodic memory adds to its target.

    y = r + γ (1 - terminated) Q⁻(s', a*) + Σ bonuses        a* greedy in Q⁻, or in Q with `double_q`
    L = mean huber(Q(s, a) - y) + Σ losses of terms          EMU's incentive is a bonus

A batch is single steps (T = 1, `replay.unit`), each shown as the last `spec.stack` observations side by side; acting
remembers as many. Every `target_interval` updates Q⁻ becomes a copy of Q.
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
from emu.learners.td import clip_by_torch_norm, epsilon_greedy, masked, pick, td_target
from emu.nets.qnets import PictureQ, VectorQ
from emu.types import Array, Batch, PyTree


class DQNState(NamedTuple):
    params: PyTree
    target: PyTree
    optimiser: PyTree
    updates: Array  # () int32


class DQNLearner:
    on_policy = False

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        if spec.n_agents != 1:
            raise ConfigError(
                f"DQN is for one agent; '{spec.name}' has {spec.n_agents}. `emu algos` lists what teams can learn with."
            )
        if spec.stack > 1 and config.replay.unit != "steps":
            raise ConfigError("DQN sees stacked observations only in single steps: leave replay.unit at steps.")
        self.config, self.dqn, self.spec, self.terms = config.learner, config.dqn, spec, tuple(terms)
        c = config.learner
        if spec.picture:
            self.net = PictureQ(spec.n_actions, spec.picture, spec.stack, config.dqn.hidden)
        else:
            self.net = VectorQ(spec.n_actions, config.dqn.hidden)
        self.optimiser = optax.chain(clip_by_torch_norm(c.max_grad_norm), optax.adam(c.learning_rate))
        self.shards = devices.sharding_for(c.batch_size)
        self.update = self.shards.compiled_update(self._updates)

    def init(self, key: Array) -> DQNState:
        obs = jnp.zeros((1, self.spec.stack * self.spec.obs_dim), self.spec.obs_type)
        params = self.net.init(key, obs)
        return DQNState(params, jax.tree.map(jnp.copy, params), self.optimiser.init(params), jnp.int32(0))

    def policy(self, state: DQNState) -> PyTree:
        return state.params

    def initial_carry(self, copies: int) -> Array:
        """The observations before the present one, (E, N, (stack - 1) O): none yet."""
        before = (self.spec.stack - 1) * self.spec.obs_dim
        return jnp.zeros((copies, 1, before), self.spec.obs_type)

    def act(
        self, policy: PyTree, carry: Array, obs: Array, avail: Array, epsilon: Array, key: Array
    ) -> tuple[Array, Array]:
        shown = jnp.concatenate([carry, obs.astype(carry.dtype)], axis=-1)
        q = self.net.apply(policy, shown)
        return epsilon_greedy(q, avail, epsilon, key), shown[..., self.spec.obs_dim :]

    def log_prob(self, carry: Array) -> None:
        """Not needed: what was done is judged by its target alone."""

    # What follows runs inside one compiled program, on each device's share of every batch.

    def _updates(self, state: DQNState, batches: Batch, recall: Any, step: Array):
        """One update after the other, written out: in a loop of XLA's, convolutions on a CPU are many times slower."""
        metrics = []
        for number in range(len(batches.reward)):
            batch, known = jax.tree.map(lambda x, n=number: jnp.swapaxes(x[n], 0, 1), (batches, recall))  # time first
            mask = batch.filled.astype(jnp.float32)
            count = jnp.maximum(jax.lax.psum(mask.sum(), DATA), 1.0)
            nothing = dict.fromkeys(("q", "hidden", "own_q", "last_action", "lengths"))
            context = Context(batch, known, mask=mask, count=count, step=step, **nothing)
            state, parts = self._update(state, context)
            metrics.append(parts)
        return state, jax.tree.map(lambda *values: jnp.stack(values), *metrics)

    def _update(self, state: DQNState, context: Context) -> tuple[DQNState, dict[str, Array]]:
        obs, action = context.batch.obs[:-1, :, 0], context.batch.action[..., 0]
        target, parts = self._target(state, context)

        def loss_fn(params: PyTree) -> tuple[Array, dict[str, Array]]:
            q = pick(self.net.apply(params, obs), action)  # (T, B)
            td_loss = context.mean(optax.huber_loss(q, target, delta=self.dqn.huber))
            extra = sum(term.loss((), context, q) for term in self.terms)
            values = {"td_error_abs": context.mean(jnp.abs(q - target)), "q_taken": context.mean(q)}
            return td_loss + extra, {"td_loss": td_loss, "loss": td_loss + extra, **values}

        (_, losses), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        grads, parts = sum_over_devices((grads, parts | losses))
        steps, optimiser = self.optimiser.update(grads, state.optimiser, state.params)
        params, updates = optax.apply_updates(state.params, steps), state.updates + 1
        renew = updates % self.config.target_interval == 0
        target_params = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, state.target)
        for term in self.terms:
            _, metrics = term.update((), context, renew)
            parts |= {f"{term.name}_{key}": value for key, value in metrics.items()}
        parts["grad_norm"] = optax.global_norm(grads)
        return DQNState(params, target_params, optimiser, updates), parts

    def _target(self, state: DQNState, context: Context) -> tuple[Array, dict[str, Array]]:
        """The TD target (T, B) with the terms' bonuses on it, and what of it is logged."""
        batch, after = context.batch, context.batch.obs[1:, :, 0]
        target_q = self.net.apply(state.target, after)
        chooser = self.net.apply(state.params, after) if self.config.double_q else target_q
        best = masked(chooser, batch.avail[1:, :, 0]).argmax(axis=-1)
        value = pick(target_q, best)
        target, parts = td_target(batch.reward, batch.terminated, value, self.config.gamma), {}
        for term in self.terms:
            bonus = term.target((), context, value)
            target += bonus
            if not isinstance(bonus, float):
                parts[f"{term.name}_bonus"] = context.mean(bonus)
        return jax.lax.stop_gradient(target), parts | {"target": context.mean(target)}
