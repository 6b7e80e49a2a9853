"""The recurrent agent: [observation, last action, agent number] -> 64 ReLU -> GRU 64 -> Q over the actions.

One set of weights serves all agents (CDS adds an own head per agent). The GRU is PyTorch's. Everything that does not
depend on the hidden state is computed for all steps at once; only one small product per step stays in the loop, forth
and back.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from emu.nets.init import Linear, torch_uniform
from emu.types import Array


def fast_tanh(x: Array) -> Array:
    """tanh as the usual ratio of polynomials for float32, good to 4e-7.

    XLA's own has extra branches that keep a CPU from vectorising it within the recurrent loop, where it took three
    quarters of the time. Gradients never pass through it: the loop's backward pass is written out.
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


def gru_step(hidden: Array, gates_x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    """One GRU step from (R, H) and its input gates (R, 3H), in the order reset, update, candidate."""
    size = hidden.shape[-1]
    gates_h = hidden @ kernel + bias
    gates = jax.nn.sigmoid(gates_x[:, : 2 * size] + gates_h[:, : 2 * size])  # one call for both: four times as fast
    reset, update, new_h = gates[:, :size], gates[:, size:], gates_h[:, 2 * size :]
    new = fast_tanh(gates_x[:, 2 * size :] + reset * new_h)
    return new + update * (hidden - new), (gates, new, new_h)


@jax.custom_vjp
def gru_scan(hidden: Array, gates_x: Array, kernel: Array, bias: Array) -> Array:
    """Hidden states after each of T steps, (T, R, H), from a first one (R, H) and input gates (T, R, 3H)."""
    return _gru_forward(hidden, gates_x, kernel, bias)[0]


def _gru_forward(hidden: Array, gates_x: Array, kernel: Array, bias: Array):
    def body(carry, gates):
        following, inner = gru_step(carry, gates, kernel, bias)
        return following, (following, inner)

    _, (hiddens, inner) = jax.lax.scan(body, hidden, gates_x)
    return hiddens, (hidden, hiddens, inner, kernel)


def _gru_backward(residual, grad_hiddens: Array):
    """Back through time with one product per step; the weights' gradient is a single product over all steps."""
    first, hiddens, (gates, new, new_h), kernel = residual
    size = kernel.shape[0]
    reset, update = gates[..., :size], gates[..., size:]
    previous = jnp.concatenate([first[None], hiddens[:-1]])
    grad_new_scale = (1 - update) * (1 - new**2)
    grad_update_scale = (previous - new) * update * (1 - update)
    grad_reset_scale = new_h * reset * (1 - reset)
    transposed = kernel.T

    def body(carry, step):
        grad_out, new_scale, update_scale, reset_scale, reset_t, update_t = step
        grad = carry + grad_out
        grad_new = grad * new_scale
        grad_gates = jnp.concatenate(
            [grad_new * reset_scale, grad * update_scale, grad_new * reset_t], axis=-1
        )
        return grad * update_t + grad_gates @ transposed, (grad_gates, grad_new)

    steps = (grad_hiddens, grad_new_scale, grad_update_scale, grad_reset_scale, reset, update)
    grad_first, (grad_gates_h, grad_new) = jax.lax.scan(body, jnp.zeros_like(first), steps, reverse=True)
    grad_gates_x = jnp.concatenate([grad_gates_h[..., : 2 * size], grad_new], axis=-1)
    rows = grad_gates_h.reshape(-1, 3 * size)
    grad_kernel = previous.reshape(-1, size).T @ rows
    return grad_first, grad_gates_x, grad_kernel, rows.sum(axis=0)


gru_scan.defvjp(_gru_forward, _gru_backward)


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
        bound = torch_uniform(
            self.hidden
        )  # PyTorch's GRU draws all its weights with the hidden size as fan-in
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
        gates = self._input_gates(obs, last_action).reshape(rows.shape[0], -1)
        following, _ = gru_step(rows, gates, self.kernel, self.bias)
        following = following.reshape(hidden.shape)
        return self._q(following)[0], following

    def unroll(self, obs: Array, last_action: Array) -> tuple[Array, Array, Array]:
        """Learning, time-major: (T, B, N, ·) -> Q (T, B, N, A), hidden states (T, B, N, H), own heads' part of Q."""
        length, batch = obs.shape[:2]
        gates = self._input_gates(obs, last_action).reshape(length, batch * self.n_agents, -1)
        first = jnp.zeros((batch * self.n_agents, self.hidden), obs.dtype)
        hiddens = gru_scan(first, gates, self.kernel, self.bias)
        hiddens = hiddens.reshape(length, batch, self.n_agents, self.hidden)
        q, own = self._q(hiddens)
        return q, hiddens, own

    def _input_gates(self, obs: Array, last_action: Array) -> Array:
        parts = [obs]
        if self.last_action:
            parts.append(last_action)
        if self.agent_id:
            parts.append(jnp.broadcast_to(jnp.eye(self.n_agents), (*obs.shape[:-1], self.n_agents)))
        return self.gates(nn.relu(self.encode(jnp.concatenate(parts, axis=-1))))

    def _q(self, hidden: Array) -> tuple[Array, Array]:
        shared = self.head(hidden)
        if not self.own_heads:
            return shared, jnp.zeros((), shared.dtype)
        own = jnp.einsum("...nh,nha->...na", hidden, self.own_kernel) + self.own_bias
        return shared + own, own
