"""The loop over time of a recurrent network: rows of inputs -> 64 ReLU -> GRU -> linear outputs, forth and back.

All layers run inside the loop: what a step needs stays in a core's cache, and the gradients of the weights are added
up there. On a CPU that halves the time of layers that see all steps at once. The backward pass is written out, for two
reasons: so the loop may stop where the longest episode of the batch does, which differs from batch to batch, without
compiling anything anew; and it may go on with fewer and fewer rows as episodes end.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from emu.nets.init import linear
from emu.types import Array

PARTS = 4  # of the loop: with all rows, three quarters of them, half, a quarter


class Weights(NamedTuple):
    """Of both layers before the GRU, the GRU's own recurrent ones, and the layer after it."""

    encode_kernel: Array  # (I, H)
    encode_bias: Array
    gates_kernel: Array  # (H, 3H): reset, update, candidate
    gates_bias: Array
    kernel: Array  # (H, 3H)
    bias: Array
    head_kernel: Array  # (H, A)
    head_bias: Array


class Part(NamedTuple):
    """A part of the loop: the steps from `start` to `stop` with the first `rows` rows."""

    rows: int
    start: Array
    stop: Array


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
    gates = 0.5 + 0.5 * fast_tanh(0.5 * (gates_x[:, : 2 * size] + gates_h[:, : 2 * size]))  # the sigmoid
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


def unroll_rows(inputs: Array, weights: Weights, lengths: Array, rows: int = 1) -> tuple[Array, Array]:
    """Outputs (T, R, A) and hidden states (T, R, H) from inputs (T, R, I), starting at 0.

    `lengths`, one for every `rows` rows: the steps that matter; results beyond them may be 0. They may have any order,
    but the loop is shortest where they fall. Gradients reach the weights; none is passed on to the inputs.
    """
    results: Any = _unroll(rows, inputs, weights, jnp.minimum(lengths, len(inputs)).astype(jnp.int32))
    return results[0], results[1][1:]


def _parts(lengths: Array, rows: int) -> list[Part]:
    """Every part ends with the last step of those that do not take part in the next one."""
    count = len(lengths)
    sizes = sorted({-(-count * k // PARTS) for k in range(1, PARTS + 1)}, reverse=True)
    stops = [lengths[following:].max() for following in [*sizes[1:], 0]]
    return [Part(n * rows, *ends) for n, *ends in zip(sizes, [jnp.int32(0), *stops], stops, strict=False)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(rows: int, inputs: Array, weights: Weights, lengths: Array) -> tuple[Array, Array]:
    """Outputs (T, R, A), and hidden states (T+1, R, H) with the zeros before the first step."""
    return _loop(inputs, weights, _parts(lengths, rows), ())[:2]


def _loop(inputs: Array, weights: Weights, parts: list[Part], kept: tuple[Array, ...]) -> tuple[Array, ...]:
    """Outputs, hidden states, and into the buffers `kept`, if there are any, what the backward pass wants to know."""
    length, count = inputs.shape[:2]
    size, out = weights.head_kernel.shape
    hidden = jnp.zeros((count, size), inputs.dtype)
    buffers = jnp.zeros((length, count, out), inputs.dtype), jnp.zeros((length + 1, count, size), inputs.dtype), *kept
    for part in parts:

        def step(t: Array, carry: tuple[Array, tuple[Array, ...]], n: int = part.rows) -> Any:
            hidden, (outputs, hiddens, *kept) = carry
            encoded = jax.nn.relu(linear(_rows_at(inputs, t, n), weights.encode_kernel, weights.encode_bias))
            gates_x = linear(encoded, weights.gates_kernel, weights.gates_bias)
            hidden, inner = gru_cell(hidden, gates_x, weights.kernel, weights.bias)
            outputs = _put(outputs, linear(hidden, weights.head_kernel, weights.head_bias), t)
            kept = (_put(all_, one, t) for all_, one in zip(kept, (encoded, *inner), strict=False))
            return hidden, (outputs, _put(hiddens, hidden, t + 1), *kept)

        hidden, buffers = jax.lax.fori_loop(part.start, part.stop, step, (hidden[: part.rows], buffers))
    return buffers


def _forward(rows: int, inputs: Any, weights: Any, lengths: Any) -> Any:
    inputs, weights, lengths = jax.tree.map(lambda x: x.value, (inputs, weights, lengths), is_leaf=_is_primal)
    size = weights.kernel.shape[0]
    room = tuple(jnp.zeros((*inputs.shape[:2], width), inputs.dtype) for width in (size, 2 * size, size, size))
    outputs, hiddens, *kept = _loop(inputs, weights, _parts(lengths, rows), room)
    return (outputs, hiddens), (inputs, weights, lengths, hiddens, kept)


def _backward(rows: int, residual: Any, grads: tuple[Any, Any]) -> tuple[None, Weights, None]:
    inputs, weights, lengths, hiddens, kept = residual
    of_outputs, of_hiddens = grads
    if isinstance(of_outputs, SymbolicZero):
        of_outputs = jnp.zeros(of_outputs.shape, inputs.dtype)
    grad = jnp.zeros((0, weights.kernel.shape[0]), inputs.dtype)
    total = jax.tree.map(jnp.zeros_like, weights)
    for part in reversed(_parts(lengths, rows)):
        n, start, stop = part

        def step(k: Array, carry: tuple[Array, Weights], n: int = n, last: Array = stop - 1 + start) -> Any:
            grad, total = carry
            t = last - k
            hidden, following, encoded, *inner = (
                _rows_at(x, time, n) for x, time in ((hiddens, t), (hiddens, t + 1), *((x, t) for x in kept))
            )
            of_output = _rows_at(of_outputs, t, n)
            grad = grad + of_output @ weights.head_kernel.T
            if not isinstance(of_hiddens, SymbolicZero):
                grad = grad + _rows_at(of_hiddens, t + 1, n)
            grad, of_gates_x, of_gates_h = gru_back(hidden, tuple(inner), weights.kernel, grad)
            of_encoded = (of_gates_x @ weights.gates_kernel.T) * (encoded > 0)
            layers = (
                (_rows_at(inputs, t, n), of_encoded),
                (encoded, of_gates_x),
                (hidden, of_gates_h),
                (following, of_output),
            )
            more = Weights(*(g for x, of_x in layers for g in (x.T @ of_x, of_x.sum(0))))
            return grad, jax.tree.map(jnp.add, total, more)

        grad = jnp.pad(grad, ((0, n - len(grad)), (0, 0)))
        grad, total = jax.lax.fori_loop(start, stop, step, (grad, total))
    return None, total, None


_unroll.defvjp(_forward, _backward, symbolic_zeros=True)


def _is_primal(x: Any) -> bool:
    return isinstance(x, CustomVJPPrimal)


def _rows_at(x: Array, t: Array, rows: int) -> Array:
    return jax.lax.dynamic_slice(x, (t, 0, 0), (1, rows, x.shape[2]))[0]


def _put(x: Array, rows: Array, t: Array) -> Array:
    return jax.lax.dynamic_update_slice(x, rows[None], (t, 0, 0))
