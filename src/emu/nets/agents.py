"""The recurrent agent: [observation, last action, agent number] -> 64 ReLU -> GRU 64 -> Q over the actions.

One set of weights serves all agents (CDS adds an own head per agent). The GRU is PyTorch's. All layers up to it run
inside the loop over time: what a step needs then stays in a core's cache, forth and back, and its gradients of the
weights are added up there. On a CPU that halves the time of layers that see all steps at once.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from emu.nets.init import Linear, linear, torch_uniform
from emu.types import Array


def fast_tanh(x: Array) -> Array:
    """tanh as the usual ratio of polynomials for float32, good to 4e-7.

    XLA's own has extra branches that keep a CPU from vectorising it within the recurrent loop, where it took three
    quarters of the time. Gradients never pass through it: the backward pass of a step is written out.
    """
    x = jnp.clip(x, -7.9, 7.9)
    y = x * x
    top = 2.00018790482477e-13 - 2.76076847742355e-16 * y
    for coefficient in (-8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05):
        top = coefficient + top * y
    top = x * (4.89352455891786e-03 + y * (6.37261928875436e-04 + y * top))
    bottom = 1.18534705686654e-04 + 1.19825839466702e-06 * y
    bottom = 4.89352518554385e-03 + y * (2.26843463243900e-03 + y * bottom)
    return top / bottom


def gru_cell(hidden: Array, gates_x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    """The next (R, H) from the last one and input gates (R, 3H: reset, update, candidate), and what led to it."""
    size = hidden.shape[-1]
    gates_h = hidden @ kernel + bias
    gates = jax.nn.sigmoid(gates_x[:, : 2 * size] + gates_h[:, : 2 * size])  # one call for both: four times as fast
    reset, update, new_h = gates[:, :size], gates[:, size:], gates_h[:, 2 * size :]
    new = fast_tanh(gates_x[:, 2 * size :] + reset * new_h)
    return new + update * (hidden - new), (gates, new, new_h)


@jax.custom_vjp
def gru_step(hidden: Array, gates_x: Array, kernel: Array, bias: Array) -> Array:
    """One GRU step: (R, H), (R, 3H) -> (R, H)."""
    return gru_cell(hidden, gates_x, kernel, bias)[0]


def _gru_forward(hidden: Array, gates_x: Array, kernel: Array, bias: Array):
    following, inner = gru_cell(hidden, gates_x, kernel, bias)
    return following, (hidden, inner, kernel)


def _gru_backward(residual, grad: Array):
    hidden, (gates, new, new_h), kernel = residual
    size = kernel.shape[0]
    reset, update = gates[:, :size], gates[:, size:]
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * new_h * reset * (1 - reset)
    grad_update = grad * (hidden - new) * update * (1 - update)
    grad_gates_x = jnp.concatenate([grad_reset, grad_update, grad_new], axis=-1)
    grad_gates_h = jnp.concatenate([grad_gates_x[:, : 2 * size], grad_new * reset], axis=-1)
    grad_hidden = grad * update + grad_gates_h @ kernel.T
    return grad_hidden, grad_gates_x, hidden.T @ grad_gates_h, grad_gates_h.sum(axis=0)


gru_step.defvjp(_gru_forward, _gru_backward)


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
        following = gru_step(rows, gates, self.kernel, self.bias).reshape(hidden.shape)
        return self._q(following)[0], following

    def unroll(self, obs: Array, last_action: Array) -> tuple[Array, Array, Array]:
        """Learning, time-major: (T, B, N, ·) -> Q (T, B, N, A), hidden states (T, B, N, H), own heads' part of Q."""
        length, batch = obs.shape[:2]
        inputs = self._inputs(obs, last_action).reshape(length, batch * self.n_agents, -1)
        encode, gates, kernel, bias = self.encode.weights(), self.gates.weights(), self.kernel, self.bias

        def step(hidden: Array, x: Array) -> tuple[Array, Array]:
            following = gru_step(hidden, linear(nn.relu(linear(x, *encode)), *gates), kernel, bias)
            return following, following

        first = jnp.zeros((batch * self.n_agents, self.hidden), obs.dtype)
        hiddens = jax.lax.scan(step, first, inputs)[1].reshape(length, batch, self.n_agents, self.hidden)
        q, own = self._q(hiddens)
        return q, hiddens, own

    def _inputs(self, obs: Array, last_action: Array) -> Array:
        parts = [obs]
        if self.last_action:
            parts.append(last_action)
        if self.agent_id:
            parts.append(jnp.broadcast_to(jnp.eye(self.n_agents), (*obs.shape[:-1], self.n_agents)))
        return jnp.concatenate(parts, axis=-1)

    def _q(self, hidden: Array) -> tuple[Array, Array]:
        shared = self.head(hidden)
        if not self.own_heads:
            return shared, jnp.zeros((), shared.dtype)
        own = jnp.einsum("...nh,nha->...na", hidden, self.own_kernel) + self.own_bias
        return shared + own, own
