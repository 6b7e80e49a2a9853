"""The value-decomposition learner: recurrent agents, a mixer, and any number of terms.

    y_t = r_t + Σ intrinsic + γ (1 - terminated_t) Q_tot⁻(s_t+1, a*) + Σ bonuses,   a* greedy in the online network
    L   = mean (Q_tot(s_t, a_t) - y_t)² + regulariser + Σ losses of terms

With `td_lambda` above 0, y_t becomes the λ-return of these one-step targets.

VDN, QMIX, QPLEX, EMC, CDS and EMU are all this learner with another mixer and another list of terms. Without a mixer a
team learns independently (IQL): there is a y and an error for every agent, from the same reward or from rewards of
their own (`EnvSpec.own_rewards`), and L is their mean.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.base import Learner
from emu.learners.td import epsilon_greedy, lambda_target, masked, pick, td_target, torch_rmsprop
from emu.learners.terms.base import Context, Contexts, Parts, Term, ValueContext
from emu.nets.agents import make_agent
from emu.nets.chunks import on_real_rows
from emu.nets.mixers import Independent, MixerOutput, make_mixer
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


class Inputs(NamedTuple):
    """What the recurrent networks read of a batch."""

    obs: Array  # (T+1, B, N, O)
    last_action: Array  # (T+1, B, N, A) one-hot of the action before each observation; zeros at the first
    lengths: Array  # (B,) observations of each episode


class ValueLearner(Learner):
    context = ValueContext

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        super().__init__(config, spec, devices, terms)
        self.agent = make_agent(config.agent, spec.n_agents, spec.n_actions)
        self.mixer = make_mixer(config.mixer, spec)
        self.independent = isinstance(self.mixer, Independent)  # values are (T, B, N) instead of (T, B)
        c = config.learner
        self.target_updates = c.target_interval * max(c.updates_per_episode, 1)  # what so many episodes earn
        self.optimiser = torch_rmsprop(c.learning_rate, c.rmsprop_decay, c.rmsprop_eps, c.max_grad_norm)

    @classmethod
    def learns_independently(cls, config: Config) -> bool:
        return config.mixer.kind == "none"

    def init(self, key: Array) -> ValueState:
        agent_key, mixer_key, terms_key = jax.random.split(key, 3)
        n, s = self.spec.n_agents, self.spec
        obs, act = jnp.zeros((1, n, s.obs_dim)), jnp.zeros((1, n, s.n_actions))
        agent = self.agent.init(agent_key, self.agent_carry(1), obs, act, method="step")
        mixer = self.mixer.init(mixer_key, jnp.zeros((1, n)), jnp.zeros((1, n)), act, jnp.zeros((1, s.state_dim)))
        params = {"agent": agent, "mixer": mixer}
        target = jax.tree.map(jnp.copy, params)
        return ValueState(params, target, self.optimiser.init(params), self.terms.init(terms_key), jnp.int32(0))

    def policy(self, state: ValueState) -> PyTree:
        return state.params["agent"]

    def agent_carry(self, copies: int) -> Array:
        return jnp.zeros((copies, self.spec.n_agents, self.agent.hidden), jnp.float32)

    def initial_carry(self, copies: int) -> Carry:
        actions = jnp.zeros((copies, self.spec.n_agents, self.spec.n_actions), jnp.float32)
        return Carry(self.agent_carry(copies), actions)

    def act(
        self, policy: PyTree, carry: Carry, obs: Array, avail: Array, explore: Array, key: Array
    ) -> tuple[Array, Carry]:
        """Greedy in every agent's own Q; a random available action with probability `explore`."""
        q, hidden = self.agent.apply(policy, carry.hidden, obs, carry.last_action, method="step")
        action = epsilon_greedy(q, avail, explore, key)
        return action, Carry(hidden, jax.nn.one_hot(action, self.spec.n_actions))

    def learn(self, state: ValueState, context: Context) -> tuple[ValueState, dict[str, Array]]:
        inputs = self._inputs(context.batch)
        target_q = self._unroll(state.target["agent"], *inputs)[0][1:]
        loss = functools.partial(self._loss, state=state, context=context, inputs=inputs, target_q=target_q)
        (_, (parts, views)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        grads, parts = sum_over_devices((grads, parts))
        steps, optimiser = self.optimiser.update(grads, state.optimiser, state.params)
        params = optax.apply_updates(state.params, steps)

        updates = state.updates + 1
        renew = updates % self.target_updates == 0
        target = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, state.target)
        terms, metrics = self.terms.update(state.terms, views, renew)
        parts |= metrics | {"grad_norm": optax.global_norm(grads)}
        return ValueState(params, target, optimiser, terms, updates), parts

    def _loss(
        self, params: PyTree, state: ValueState, context: Context, inputs: Inputs, target_q: Array
    ) -> tuple[Array, tuple[dict[str, Array], Contexts]]:
        """The loss (this device's share), what to log of it, and the context as each term saw it."""
        batch = context.batch
        q, hidden, own_q = self._unroll(params["agent"], *inputs)
        seen = ValueContext(
            **_fields(context), q=q, hidden=hidden, own_q=own_q, last_action=inputs.last_action, lengths=inputs.lengths
        )
        views = self.terms.prepare(state.terms, seen)
        target, parts = self._target(state, context.batch, jax.lax.stop_gradient(q[1:]), target_q, views)
        mixed = self._mix(params["mixer"], q[:-1], batch.avail[:-1], batch.action, batch.state[:-1], batch.filled)
        td_error = mixed.q_tot - target
        td_loss = context.mean(self._over_agents(td_error**2))
        total = td_loss + context.mean(mixed.regulariser)
        differentiable = tuple(seen.replace(prepared=view.prepared) for view in views)
        losses = self._each_value(lambda q: ((), self.terms.losses(state.terms, differentiable, q)), mixed.q_tot)[1]
        for extra in losses.values():
            total = total + extra
        parts |= losses | {
            "td_loss": td_loss,
            "loss": total,
            "td_error_abs": context.mean(self._over_agents(jnp.abs(td_error))),
            "q_taken": context.mean(self._over_agents(mixed.q_tot)),
            "target": context.mean(self._over_agents(target)),
        }
        return total, (parts, views)

    def _target(
        self, state: ValueState, batch: Batch, q_tp1: Array, target_q: Array, views: Contexts
    ) -> tuple[Array, dict[str, Array]]:
        """The TD target in the shape of the values, with every term's share of it.

        `views` are the context as each term sees it.
        """
        reward, rewards = self.terms.reward(state.terms, views, batch.reward)
        avail = batch.avail[1:]
        best = masked(q_tp1 if self.config.double_q else target_q, avail).argmax(axis=-1)
        value = self._mix(state.target["mixer"], target_q, avail, best, batch.state[1:], batch.filled).q_tot
        follows = jnp.concatenate([batch.filled[1:], jnp.zeros_like(batch.filled[:1])])

        def target_of(value: Array, reward: Array) -> tuple[Array, dict[str, Array]]:
            one_step = td_target(reward, batch.terminated, value, self.config.gamma)
            target, bonuses = self.terms.target(state.terms, views, one_step, value)
            if self.config.td_lambda > 0:
                goes_on = follows & ~batch.terminated
                target = lambda_target(target, reward, goes_on, self.config.gamma, self.config.td_lambda)
            return target, bonuses

        target, bonuses = self._each_value(target_of, value, reward)
        return jax.lax.stop_gradient(target), rewards | bonuses

    def _each_value(
        self, function: Callable[..., tuple[Any, Parts]], value: Array, *reward: Array
    ) -> tuple[Any, Parts]:
        """A function of the team's value (and reward), or of each agent's in turn; logged is then the mean over agents.

        Rewards are shared by the agents where the environment does not give each its own.
        """
        if not self.independent:
            return function(value, *reward)
        axes = (-1, *(-1 if self.spec.own_rewards else None for _ in reward))
        results, parts = jax.vmap(function, in_axes=axes, out_axes=(-1, 0))(value, *reward)
        return results, {name: part.mean() for name, part in parts.items()}

    def _over_agents(self, values: Array) -> Array:
        """(T, B): the mean over the agents where each has a value of its own."""
        return values.mean(axis=-1) if self.independent else values

    def _unroll(self, params: PyTree, obs: Array, last_action: Array, lengths: Array) -> tuple[Array, Array, Array]:
        return self.agent.apply(params, obs, last_action, lengths, method="unroll")  # type: ignore[return-value]

    def _mix(self, params: PyTree, q: Array, avail: Array, action: Array, state: Array, filled: Array) -> MixerOutput:
        """The team's value where steps are `filled` (T, B), 0 elsewhere."""
        chosen, greedy = pick(q, action), masked(q, avail).max(axis=-1)
        if self.independent:
            return self.mixer.apply(params, chosen, greedy, action, state)  # type: ignore[return-value]

        def mix(params: PyTree, rows: tuple[Array, Array], constants: tuple[Array, Array]) -> MixerOutput:
            onehot = jax.nn.one_hot(constants[0], self.spec.n_actions)
            return self.mixer.apply(params, *rows, onehot, constants[1])  # type: ignore[return-value]

        rows, constants = jax.tree.map(
            lambda x: x.reshape(filled.size, *x.shape[2:]), ((chosen, greedy), (action, state))
        )
        mixed = on_real_rows(mix, params, rows, constants, filled.reshape(-1))
        return jax.tree.map(lambda x: x.reshape(filled.shape), mixed)

    def _inputs(self, batch: Batch) -> Inputs:
        onehot = jax.nn.one_hot(batch.action, self.spec.n_actions)
        last_action = jnp.concatenate([jnp.zeros_like(onehot[:1]), onehot])
        return Inputs(batch.obs, last_action, batch.filled.sum(axis=0) + 1)


def _fields(context: Context) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
