"""The value-decomposition learner: recurrent agents, a mixer, and any number of terms.

    y_t = r_t + Σ intrinsic + γ (1 - terminated_t) Q_tot⁻(s_t+1, a*) + Σ bonuses,   a* greedy in the online network
    L   = mean (Q_tot(s_t, a_t) - y_t)² + regulariser + Σ losses of terms

With `td_lambda` above 0, y_t becomes the λ-return of these one-step targets.

VDN, QMIX, QPLEX, EMC, CDS and EMU are all this learner with another mixer and another list of terms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import DATA, Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.base import Context, Term
from emu.learners.td import epsilon_greedy, lambda_target, masked, pick, td_target, torch_rmsprop
from emu.nets.agents import RecurrentAgent
from emu.nets.mixers import MixerOutput, make_mixer
from emu.types import Array, Batch, PyTree


class ValueState(NamedTuple):
    params: PyTree  # {"agent": ..., "mixer": ...}
    target: PyTree
    optimiser: PyTree
    terms: tuple[PyTree, ...]
    updates: Array  # () int32


class Carry(NamedTuple):
    hidden: Array  # (E, N, H)
    last_action: Array  # (E, N, A) one-hot, zeros at the start of an episode


class ValueLearner:
    on_policy = False

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        self.config, self.spec, self.terms = config.learner, spec, tuple(terms)
        self.agent = RecurrentAgent(spec.n_agents, spec.n_actions, **dataclasses.asdict(config.agent))
        self.mixer = make_mixer(config.mixer, spec)
        c = config.learner
        self.optimiser = torch_rmsprop(c.learning_rate, c.rmsprop_decay, c.rmsprop_eps, c.max_grad_norm)
        self.shards = devices.sharding_for(c.batch_size)
        self.update = self.shards.compiled_update(self._updates)

    def init(self, key: Array) -> ValueState:
        agent_key, mixer_key, terms_key = jax.random.split(key, 3)
        n, s = self.spec.n_agents, self.spec
        obs, act = jnp.zeros((1, n, s.obs_dim)), jnp.zeros((1, n, s.n_actions))
        agent = self.agent.init(agent_key, self.agent_carry(1), obs, act, method="step")
        mixer = self.mixer.init(mixer_key, jnp.zeros((1, n)), jnp.zeros((1, n)), act, jnp.zeros((1, s.state_dim)))
        params = {"agent": agent, "mixer": mixer}
        keys = jax.random.split(terms_key, max(1, len(self.terms)))
        states = tuple(term.init(k) for term, k in zip(self.terms, keys, strict=False))
        target = jax.tree.map(jnp.copy, params)
        return ValueState(params, target, self.optimiser.init(params), states, jnp.int32(0))

    def policy(self, state: ValueState) -> PyTree:
        return state.params["agent"]

    def agent_carry(self, copies: int) -> Array:
        return jnp.zeros((copies, self.spec.n_agents, self.agent.hidden), jnp.float32)

    def initial_carry(self, copies: int) -> Carry:
        actions = jnp.zeros((copies, self.spec.n_agents, self.spec.n_actions), jnp.float32)
        return Carry(self.agent_carry(copies), actions)

    def act(
        self, policy: PyTree, carry: Carry, obs: Array, avail: Array, epsilon: Array, key: Array
    ) -> tuple[Array, Carry]:
        q, hidden = self.agent.apply(policy, carry.hidden, obs, carry.last_action, method="step")
        action = epsilon_greedy(q, avail, epsilon, key)
        return action, Carry(hidden, jax.nn.one_hot(action, self.spec.n_actions))

    def log_prob(self, carry: Carry) -> None:
        """Not needed: what was done is judged by its target alone."""

    # What follows runs inside one compiled program, on each device's share of every batch.

    def _updates(self, state: ValueState, batches: Batch, recall: Any, step: Array):
        def body(state, inputs):
            batch, recall = inputs
            return self._update(state, batch, recall, step)

        return jax.lax.scan(body, state, (batches, recall))

    def _update(self, state: ValueState, batch: Batch, recall: Any, step: Array):
        batch, recall = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (batch, recall))  # time first
        lengths = batch.filled.sum(axis=0) + 1
        last_action = self._last_action(batch.action)
        mask = batch.filled.astype(jnp.float32)
        count = jnp.maximum(jax.lax.psum(mask.sum(), DATA), 1.0)
        target_q = self._unroll(state.target["agent"], batch.obs, last_action, lengths)[0][1:]

        def loss_fn(params):
            q, hidden, own = self._unroll(params["agent"], batch.obs, last_action, lengths)
            context = Context(batch, recall, q, hidden, own, last_action, lengths, mask, count, step)
            constants = jax.lax.stop_gradient(context)
            prepared = [term.prepare(s, constants) for term, s in zip(self.terms, state.terms, strict=True)]
            views = [constants._replace(prepared=jax.lax.stop_gradient(p)) for p in prepared]
            target, parts = self._target(state, constants, views, target_q)
            mixed = self._mix(params["mixer"], q[:-1], batch.avail[:-1], batch.action, batch.state[:-1])
            td_error = mixed.q_tot - target
            td_loss = context.mean(td_error**2)
            total = td_loss + context.mean(mixed.regulariser)
            for term, term_state, view in zip(self.terms, state.terms, views, strict=True):
                extra = term.loss(term_state, context._replace(prepared=view.prepared), mixed.q_tot)
                total, parts = total + extra, _noted(parts, f"{term.name}_loss", extra)
            parts |= {
                "td_loss": td_loss,
                "loss": total,
                "td_error_abs": context.mean(jnp.abs(td_error)),
                "q_taken": context.mean(mixed.q_tot),
                "target": context.mean(target),
            }
            return total, (parts, views)

        (_, (parts, views)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        grads, parts = sum_over_devices((grads, parts))
        steps, optimiser = self.optimiser.update(grads, state.optimiser, state.params)
        params = optax.apply_updates(state.params, steps)

        updates = state.updates + 1
        renew = updates % (self.config.target_interval * max(self.config.updates_per_episode, 1)) == 0
        target = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, state.target)
        states = []
        for term, term_state, view in zip(self.terms, state.terms, views, strict=True):
            term_state, metrics = term.update(term_state, view, renew)
            states.append(term_state)
            parts |= {f"{term.name}_{key}": value for key, value in metrics.items()}
        parts["grad_norm"] = optax.global_norm(grads)
        return ValueState(params, target, optimiser, tuple(states), updates), parts

    def _target(
        self, state: ValueState, context: Context, views: Sequence[Context], target_q: Array
    ) -> tuple[Array, dict[str, Array]]:
        """The TD target (T, B), with every term's share of it. `views` are the context as each term sees it."""
        batch, parts = context.batch, {}
        reward = batch.reward
        for term, term_state, view in zip(self.terms, state.terms, views, strict=True):
            extra = term.reward(term_state, view)
            reward, parts = reward + extra, _noted(parts, f"{term.name}_reward", extra, context)
        avail = batch.avail[1:]
        chooser = context.q[1:] if self.config.double_q else target_q
        best = masked(chooser, avail).argmax(axis=-1)
        value = self._mix(state.target["mixer"], target_q, avail, best, batch.state[1:]).q_tot
        target = td_target(reward, batch.terminated, value, self.config.gamma)
        for term, term_state, view in zip(self.terms, state.terms, views, strict=True):
            extra = term.target(term_state, view, value)
            target, parts = target + extra, _noted(parts, f"{term.name}_bonus", extra, context)
        if self.config.td_lambda > 0:
            follows = jnp.concatenate([batch.filled[1:], jnp.zeros_like(batch.filled[:1])])
            goes_on = follows & ~batch.terminated
            target = lambda_target(target, reward, goes_on, self.config.gamma, self.config.td_lambda)
        return jax.lax.stop_gradient(target), parts

    def _unroll(self, params: PyTree, obs: Array, last_action: Array, lengths: Array) -> tuple[Array, Array, Array]:
        return self.agent.apply(params, obs, last_action, lengths, method="unroll")  # type: ignore[return-value]

    def _mix(self, params: PyTree, q: Array, avail: Array, action: Array, state: Array) -> MixerOutput:
        onehot, greedy = jax.nn.one_hot(action, self.spec.n_actions), masked(q, avail).max(axis=-1)
        return self.mixer.apply(params, pick(q, action), greedy, onehot, state)  # type: ignore[return-value]

    def _last_action(self, action: Array) -> Array:
        """One-hot of the action before each observation, (T+1, B, N, A); zeros at the first."""
        onehot = jax.nn.one_hot(action, self.spec.n_actions)
        return jnp.concatenate([jnp.zeros_like(onehot[:1]), onehot])


def _noted(
    parts: dict[str, Array], name: str, value: Array | float, context: Context | None = None
) -> dict[str, Array]:
    """Log a term's share, unless it has none."""
    if isinstance(value, float):
        return parts
    return parts | {name: value if context is None else context.mean(value)}
