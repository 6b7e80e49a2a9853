"""The loop over time of a recurrent network: rows of inputs -> 64 ReLU -> GRU -> hidden states, forth and back.

All layers run inside the loop: what a step needs stays in a core's cache, and the gradients of the weights are added
up there. On a CPU that halves the time of layers that see all steps at once. The backward pass is written out, for two
reasons: so the loop may stop where the longest episode of the batch does, which differs from batch to batch, without
compiling anything anew; and its last part may go on with the few rows that are so long.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from emu.nets.init import linear
from emu.types import Array

LONG = 4  # one row in so many may be longer than the rest; the loop goes on with these alone


class Weights(NamedTuple):
    """Of both layers before the GRU, and the GRU's own recurrent ones."""

    encode_kernel: Array  # (I, H)
    encode_bias: Array
    gates_kernel: Array  # (H, 3H): reset, update, candidate
    gates_bias: Array
    kernel: Array  # (H, 3H)
    bias: Array


def fast_tanh(x: Array) -> Array:
    """tanh as the usual ratio of polynomials for float32, good to 4e-7.

    XLA's own has extra branches that keep a CPU from vectorising it within the recurrent loop, where it took three
    quarters of the time. Learning never differentiates it: the backward pass of a step is written out.
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


def gru_back(hidden: Array, inner: tuple[Array, ...], kernel: Array, grad: Array) -> tuple[Array, Array, Array]:
    """From the gradient of the next hidden state: those of the last one, of the input gates, of the recurrent gates."""
    gates, new, new_h = inner
    size = kernel.shape[0]
    reset, update = gates[:, :size], gates[:, size:]
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * new_h * reset * (1 - reset)
    grad_update = grad * (hidden - new) * update * (1 - update)
    grad_gates_x = jnp.concatenate([grad_reset, grad_update, grad_new], axis=-1)
    grad_gates_h = jnp.concatenate([grad_gates_x[:, : 2 * size], grad_new * reset], axis=-1)
    return grad * update + grad_gates_h @ kernel.T, grad_gates_x, grad_gates_h


def unroll_rows(inputs: Array, weights: Weights, lengths: Array, rows: int = 1) -> Array:
    """Hidden states (T, R, H) from inputs (T, R, I), starting at 0.

    `lengths`, falling, one for every `rows` rows: the steps that matter; hidden states beyond them may be 0.
    """
    length, count = inputs.shape[:2]
    zero = jnp.zeros((count, weights.kernel.shape[0]), inputs.dtype)
    few = -(-count // rows // LONG) * rows
    lengths = jnp.minimum(lengths, length).astype(jnp.int32)
    if few == count:
        return recurrent(inputs, zero, jnp.int32(0), lengths[0], weights)
    turn, stop = lengths[few // rows], lengths[0]
    hiddens = recurrent(inputs, zero, jnp.int32(0), turn, weights)
    onwards = jnp.where(turn > 0, hiddens[jnp.maximum(turn - 1, 0), :few], zero[:few])
    return hiddens.at[:, :few].add(recurrent(inputs[:, :few], onwards, turn, stop, weights))


@jax.custom_vjp
def recurrent(inputs: Array, first: Array, start: Array, stop: Array, weights: Weights) -> Array:
    """Hidden states (T, R, H) of the steps from `start` to `stop`, 0 at others; `first` is the one before them.

    Gradients reach `first` and the weights; none is passed on to the inputs.
    """

    def step(t, carry):
        hidden, hiddens = carry
        hidden = gru_cell(hidden, _gates(inputs[t], weights)[1], weights.kernel, weights.bias)[0]
        return hidden, hiddens.at[t].set(hidden)

    return jax.lax.fori_loop(start, stop, step, (first, jnp.zeros((len(inputs), *first.shape), first.dtype)))[1]


def _gates(x: Array, weights: Weights) -> tuple[Array, Array]:
    encoded = jax.nn.relu(linear(x, weights.encode_kernel, weights.encode_bias))
    return encoded, linear(encoded, weights.gates_kernel, weights.gates_bias)


def _forward(inputs: Array, first: Array, start: Array, stop: Array, weights: Weights):
    rows, size = first.shape

    def room(width: int) -> Array:
        return jnp.zeros((len(inputs), rows, width), first.dtype)

    def step(t, carry):
        hidden, kept = carry
        encoded, gates_x = _gates(inputs[t], weights)
        following, inner = gru_cell(hidden, gates_x, weights.kernel, weights.bias)
        new = (following, encoded, *inner)
        return following, tuple(all_.at[t].set(one) for all_, one in zip(kept, new, strict=True))

    kept = tuple(map(room, (size, size, 2 * size, size, size)))
    _, (hiddens, *kept) = jax.lax.fori_loop(start, stop, step, (first, kept))
    return hiddens, (inputs, first, start, stop, weights, hiddens, kept)


def _backward(residual, grads: Array):
    inputs, first, start, stop, weights, hiddens, kept = residual

    def step(k, carry):
        grad, total = carry
        t = stop - 1 - (k - start)
        hidden = jnp.where(t > start, hiddens[jnp.maximum(t - 1, 0)], first)
        encoded, *inner = (all_[t] for all_ in kept)
        grad, of_gates_x, of_gates_h = gru_back(hidden, tuple(inner), weights.kernel, grad + grads[t])
        of_encoded = (of_gates_x @ weights.gates_kernel.T) * (encoded > 0)
        more = (inputs[t].T @ of_encoded, of_encoded.sum(0), encoded.T @ of_gates_x, of_gates_x.sum(0))
        more = Weights(*more, hidden.T @ of_gates_h, of_gates_h.sum(0))
        return grad, jax.tree.map(jnp.add, total, more)

    nothing = jax.tree.map(jnp.zeros_like, weights)
    of_first, total = jax.lax.fori_loop(start, stop, step, (jnp.zeros_like(grads[0]), nothing))
    return jnp.zeros_like(inputs), of_first, None, None, total


recurrent.defvjp(_forward, _backward)
