"""The recurrent agent: [observation, last action, agent number] -> 64 ReLU -> GRU 64 -> Q over the actions.

One set of weights serves all agents (CDS adds an own head per agent), or each agent has a whole network of its own. The
GRU is PyTorch's; the loop over time is `emu.nets.recurrent`'s.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from emu.config import AgentConfig
from emu.nets.init import Linear, torch_uniform
from emu.nets.recurrent import Weights, gru_cell, unroll_rows
from emu.types import Array


class RecurrentAgent(nn.Module):
    """Rows of one call are environments (or batch) times agents, agents fastest: R = B·N."""

    n_agents: int
    n_actions: int
    hidden: int = 64
    last_action: bool = True
    agent_id: bool = True
    own_heads: bool = False

    def setup(self) -> None:
        self.encode = Linear(self.hidden)
        self.gates = Linear(3 * self.hidden)
        bound = torch_uniform(self.hidden)  # PyTorch's GRU draws all its weights with the hidden size as fan-in
        self.kernel = self.param("recurrent_kernel", bound, (self.hidden, 3 * self.hidden))
        self.bias = self.param("recurrent_bias", bound, (3 * self.hidden,))
        self.head = Linear(self.n_actions)
        if self.own_heads:
            self.own_kernel = self.param("own_kernel", bound, (self.n_agents, self.hidden, self.n_actions))
            self.own_bias = self.param("own_bias", bound, (self.n_agents, self.n_actions))

    def initial(self, copies: int) -> Array:
        """The hidden state at the start of an episode, (copies, N, H)."""
        return jnp.zeros((copies, self.n_agents, self.hidden), jnp.float32)

    def step(self, hidden: Array, obs: Array, last_action: Array) -> tuple[Array, Array]:
        """Acting: (E, N, H), (E, N, O), one-hot (E, N, A) -> Q (E, N, A) and the next hidden state."""
        rows = hidden.reshape(-1, self.hidden)
        gates = self.gates(nn.relu(self.encode(self._inputs(obs, last_action)))).reshape(rows.shape[0], -1)
        following = gru_cell(rows, gates, self.kernel, self.bias)[0].reshape(hidden.shape)
        return self.head(following) + self._own_q(following), following

    def unroll(self, obs: Array, last_action: Array, lengths: Array | None = None) -> tuple[Array, Array, Array]:
        """Learning, time-major: (T, B, N, ·) -> Q (T, B, N, A), hidden states (T, B, N, H), own heads' part of Q.

        `lengths` (B,) says how many of the T steps of each row matter; beyond them hidden states may be 0. No gradient
        goes to the inputs.
        """
        length, batch = obs.shape[:2]
        inputs = self._inputs(obs, last_action)
        layers = (*self.encode.weights(), *self.gates.weights(), self.kernel, self.bias, *self.head.weights())
        steps: Array = jnp.full(batch, length) if lengths is None else lengths
        rows = inputs.reshape(length, batch * self.n_agents, -1)
        unrolled = unroll_rows(rows, Weights(*layers), steps, self.n_agents)
        q, hiddens = (x.reshape(length, batch, self.n_agents, -1) for x in unrolled)
        own = self._own_q(hiddens)
        return (q + own if self.own_heads else q), hiddens, own

    def _inputs(self, obs: Array, last_action: Array) -> Array:
        parts = [obs]
        if self.last_action:
            parts.append(last_action)
        if self.agent_id:
            parts.append(jnp.broadcast_to(jnp.eye(self.n_agents), (*obs.shape[:-1], self.n_agents)))
        return jnp.concatenate(parts, axis=-1)

    def _own_q(self, hidden: Array) -> Array:
        """The own heads' part of Q, or a scalar zero."""
        if not self.own_heads:
            return jnp.zeros((), hidden.dtype)
        return jnp.einsum("...nh,nha->...na", hidden, self.own_kernel) + self.own_bias


class SeparateAgents(nn.Module):
    """As `RecurrentAgent`, with a network for every agent: leading axis N on all weights. None needs its number."""

    n_agents: int
    n_actions: int
    hidden: int = 64
    last_action: bool = True

    def setup(self) -> None:
        own: dict[str, Any] = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        step = {**own, "in_axes": 1, "out_axes": 1}
        unroll = {**own, "in_axes": (2, 2, None), "out_axes": (2, 2, 0)}
        mapped: Any = nn.vmap(RecurrentAgent, methods={"step": step, "unroll": unroll})  # type: ignore[call-arg]
        self.agents = mapped(1, self.n_actions, self.hidden, self.last_action, agent_id=False)

    def step(self, hidden: Array, obs: Array, last_action: Array) -> tuple[Array, Array]:
        """Acting: (E, N, H), (E, N, O), one-hot (E, N, A) -> Q (E, N, A) and the next hidden state."""
        q, following = self.agents.step(*(x[:, :, None] for x in (hidden, obs, last_action)))
        return q[:, :, 0], following[:, :, 0]

    def unroll(self, obs: Array, last_action: Array, lengths: Array | None = None) -> tuple[Array, Array, Array]:
        """Learning, time-major: (T, B, N, ·) -> Q (T, B, N, A), hidden states (T, B, N, H), and no own heads' part."""
        steps = jnp.full(obs.shape[1], len(obs)) if lengths is None else lengths
        q, hidden, _ = self.agents.unroll(obs[:, :, :, None], last_action[:, :, :, None], steps)
        return q[:, :, :, 0], hidden[:, :, :, 0], jnp.zeros((), q.dtype)


def make_agent(config: AgentConfig, n_agents: int, n_actions: int) -> RecurrentAgent | SeparateAgents:
    """The network `config` asks for, in the sizes of the environment."""
    if not config.share_parameters:
        return SeparateAgents(n_agents, n_actions, config.hidden, config.last_action)
    options = dataclasses.asdict(config)
    del options["share_parameters"]
    return RecurrentAgent(n_agents, n_actions, **options)
