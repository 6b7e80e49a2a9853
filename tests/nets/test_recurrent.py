"""The loop over time: PyTorch's GRU by the formula, gradients written out against JAX's own, where the loop stops."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.nets.recurrent import Weights, gru_cell, recurrent, unroll_rows

T, R, H, INPUTS = 5, 8, 4, 3
quick = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def draw(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def some_weights(seed):
    return Weights(*draw(seed, (INPUTS, H), (H,), (H, 3 * H), (3 * H,), (H, 3 * H), (3 * H,)))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def torch_gru(inputs, first, weights):
    """ReLU layer, then `torch.nn.GRU`, one row and one step at a time: h' = (1 - z) n + z h."""
    w = Weights(*(leaf.astype(np.float64) for leaf in weights))
    outputs = np.zeros((*inputs.shape[:2], first.shape[1]))
    for row in range(len(first)):
        h = first[row].astype(np.float64)
        for t in range(len(inputs)):
            encoded = np.maximum(inputs[t, row] @ w.encode_kernel + w.encode_bias, 0)
            x_r, x_z, x_n = np.split(encoded @ w.gates_kernel + w.gates_bias, 3)
            h_r, h_z, h_n = np.split(h @ w.kernel + w.bias, 3)
            r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
            h = (1 - z) * np.tanh(x_n + r * h_n) + z * h
            outputs[t, row] = h
    return outputs


def plain(inputs, first, weights):
    """The same recurrence as a scan that JAX differentiates on its own."""

    def body(hidden, x):
        encoded = jax.nn.relu(x @ weights.encode_kernel + weights.encode_bias)
        gates = encoded @ weights.gates_kernel + weights.gates_bias
        hidden = gru_cell(hidden, gates, weights.kernel, weights.bias)[0]
        return hidden, hidden

    return jax.lax.scan(body, first, inputs)[1]


whole = jax.jit(lambda inputs, first, weights: recurrent(inputs, first, jnp.int32(0), jnp.int32(T), weights))
part = jax.jit(recurrent)


def gradient_of(function):
    """Of a weighted sum of the hidden states, by the first one and the weights."""
    return jax.jit(jax.grad(lambda first, w, x, at: (at * function(x, first, w)).sum(), argnums=(0, 1)))


by_hand, by_jax = gradient_of(whole), gradient_of(plain)


def assert_close(actual, expected):
    for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@quick
@given(seeds)
def test_the_loop_is_pytorchs_gru(seed):
    (inputs, first), weights = draw(seed, (T, R, INPUTS), (R, H)), some_weights(seed + 1)
    np.testing.assert_allclose(whole(inputs, first, weights), torch_gru(inputs, first, weights), rtol=1e-4, atol=1e-5)


@quick
@given(seeds)
def test_gradients_by_hand_are_the_gradients_by_autodiff(seed):
    (inputs, first, at), weights = draw(seed, (T, R, INPUTS), (R, H), (T, R, H)), some_weights(seed + 1)
    assert_close(by_hand(first, weights, inputs, at), by_jax(first, weights, inputs, at))


def test_a_part_of_the_steps_is_that_part_and_zero_elsewhere():
    (inputs, first), weights = draw(0, (T, R, INPUTS), (R, H)), some_weights(1)
    hiddens = part(inputs, first, 1, 3, weights)
    np.testing.assert_allclose(hiddens[1:3], plain(inputs[1:3], first, weights), rtol=1e-5, atol=1e-6)
    assert not np.asarray(hiddens)[[0, 3, 4]].any()


def masked_loss(weights, inputs, at, lengths, per):
    hiddens = unroll_rows(inputs, weights, lengths, per)
    return (at * hiddens).sum(), hiddens


run_rows = jax.jit(jax.value_and_grad(masked_loss, has_aux=True), static_argnums=4)


@pytest.mark.parametrize("per", [1, 2])
@quick
@given(st.lists(st.integers(0, T + 1), min_size=8, max_size=8), seeds)
def test_rows_that_end_early_change_nothing_that_matters(per, lengths, seed):
    """Whatever the lengths: hidden states and gradients where steps matter are those of the full loop."""
    lengths = np.sort(lengths[: R // per])[::-1].astype(np.int32)
    (inputs, at), weights = draw(seed, (T, R, INPUTS), (T, R, H)), some_weights(seed + 1)
    matters = np.arange(T)[:, None] < np.repeat(lengths, per)[None]
    at = at * matters[..., None]
    (_, hiddens), grads = run_rows(weights, inputs, at, lengths, per)
    (_, expected), expected_grads = run_rows(weights, inputs, at, np.full(R // per, T, np.int32), per)
    np.testing.assert_allclose(np.asarray(hiddens)[matters], np.asarray(expected)[matters], rtol=1e-5, atol=1e-6)
    assert_close(grads, expected_grads)


def test_other_lengths_compile_nothing():
    (inputs,), weights = draw(0, (T, R, INPUTS)), some_weights(1)
    run = jax.jit(functools.partial(unroll_rows, rows=1))
    for longest in (2, 3, 5):
        run(inputs, weights, np.full(R, longest, np.int32))
    assert run._cache_size() == 1
