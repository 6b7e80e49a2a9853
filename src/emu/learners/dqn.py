"""DQN (Mnih et al., 2015) for one agent with discrete actions, and what the episodic memory adds to its target.

    y = r + Σ intrinsic + γ (1 - terminated) Q⁻(s', a*) + Σ bonuses      a* greedy in Q⁻, or in Q with `double_q`
    L = mean huber(Q(s, a) - y) + Σ losses of terms                      EMU's incentive is a bonus

A batch is single steps (T = 1, `replay.unit`), each shown as the last `spec.stack` observations side by side; acting
remembers as many. Every `dqn.target_interval` updates Q⁻ becomes a copy of Q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.base import Learner
from emu.learners.td import clip_by_torch_norm, epsilon_greedy, masked, pick, td_target
from emu.learners.terms.base import Context, Contexts, Term
from emu.nets.qnets import PictureQ, VectorQ
from emu.types import Array, Batch, PyTree

TERMS_KEY = 1  # beside the one that the network starts from


class DQNState(NamedTuple):
    params: PyTree
    target: PyTree
    optimiser: PyTree
    updates: Array  # () int32
    terms: tuple[PyTree, ...]


class DQNLearner(Learner):
    teams = False
    context = Context

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        super().__init__(config, spec, devices, terms)
        if spec.stack > 1 and config.replay.unit != "steps":
            raise ConfigError("DQN sees stacked observations only in single steps: leave replay.unit at steps.")
        self.dqn, c = config.dqn, config.learner
        if spec.picture:
            self.net = PictureQ(spec.n_actions, spec.picture, spec.stack, config.dqn.hidden)
        else:
            self.net = VectorQ(spec.n_actions, config.dqn.hidden)
        self.optimiser = optax.chain(clip_by_torch_norm(c.max_grad_norm), optax.adam(c.learning_rate))

    def init(self, key: Array) -> DQNState:
        obs = jnp.zeros((1, self.spec.stack * self.spec.obs_dim), self.spec.obs_type)
        params, terms = self.net.init(key, obs), self.terms.init(jax.random.fold_in(key, TERMS_KEY))
        return DQNState(params, jax.tree.map(jnp.copy, params), self.optimiser.init(params), jnp.int32(0), terms)

    def policy(self, state: DQNState) -> PyTree:
        return state.params

    def initial_carry(self, copies: int) -> Array:
        """The observations before the present one, (E, N, (stack - 1) O): none yet."""
        before = (self.spec.stack - 1) * self.spec.obs_dim
        return jnp.zeros((copies, 1, before), self.spec.obs_type)

    def act(
        self, policy: PyTree, carry: Array, obs: Array, avail: Array, explore: Array, key: Array
    ) -> tuple[Array, Array]:
        """Greedy in Q; a random available action with probability `explore`."""
        shown = jnp.concatenate([carry, obs.astype(carry.dtype)], axis=-1)
        q = self.net.apply(policy, shown)
        return epsilon_greedy(q, avail, explore, key), shown[..., self.spec.obs_dim :]

    def _updates(self, state: DQNState, batches: Batch, recall: Any, step: Array):
        """One update after the other, written out: in a loop of XLA's, convolutions on a CPU are many times slower."""
        metrics = []
        for number in range(len(batches.reward)):
            batch, known = jax.tree.map(lambda x, n=number: x[n], (batches, recall))
            state, parts = self.learn(state, Context.of(batch, known, step))
            metrics.append(parts)
        return state, jax.tree.map(lambda *values: jnp.stack(values), *metrics)

    def learn(self, state: DQNState, context: Context) -> tuple[DQNState, dict[str, Array]]:
        obs, action = context.batch.obs[:-1, :, 0], context.batch.action[..., 0]
        views = self.terms.prepare(state.terms, context)
        target, parts = self._target(state, context, views)

        def loss_fn(params: PyTree) -> tuple[Array, dict[str, Array]]:
            q = pick(self.net.apply(params, obs), action)  # (T, B)
            td_loss = context.mean(optax.huber_loss(q, target, delta=self.dqn.huber))
            losses = self.terms.losses(state.terms, views, q)
            loss = td_loss + sum(losses.values())
            values = {"td_error_abs": context.mean(jnp.abs(q - target)), "q_taken": context.mean(q)}
            return loss, losses | {"td_loss": td_loss, "loss": loss, **values}

        (_, losses), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        grads, parts = sum_over_devices((grads, parts | losses))
        steps, optimiser = self.optimiser.update(grads, state.optimiser, state.params)
        params, updates = optax.apply_updates(state.params, steps), state.updates + 1
        renew = updates % self.dqn.target_interval == 0
        target_params = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, state.target)
        terms, metrics = self.terms.update(state.terms, views, renew)
        parts |= metrics | {"grad_norm": optax.global_norm(grads)}
        return DQNState(params, target_params, optimiser, updates, terms), parts

    def _target(self, state: DQNState, context: Context, views: Contexts) -> tuple[Array, dict[str, Array]]:
        """The TD target (T, B) with every term's share of it, and what of it is logged."""
        batch, after = context.batch, context.batch.obs[1:, :, 0]
        target_q = self.net.apply(state.target, after)
        chooser = self.net.apply(state.params, after) if self.config.double_q else target_q
        best = masked(chooser, batch.avail[1:, :, 0]).argmax(axis=-1)
        value = pick(target_q, best)
        reward, rewards = self.terms.reward(state.terms, views, batch.reward)
        target = td_target(reward, batch.terminated, value, self.config.gamma)
        target, bonuses = self.terms.target(state.terms, views, target, value)
        return jax.lax.stop_gradient(target), rewards | bonuses | {"target": context.mean(target)}
