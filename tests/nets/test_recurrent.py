"""The loop over time: PyTorch's GRU by the formula, gradients written out against JAX's own, where the loop stops."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.nets.recurrent import Weights, gru_cell, unroll_rows

T, R, H, INPUTS, OUTPUTS = 5, 8, 4, 3, 2
quick = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def draw(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def some_weights(seed):
    return Weights(*draw(seed, (INPUTS, H), (H,), (H, 3 * H), (3 * H,), (H, 3 * H), (3 * H,), (H, OUTPUTS), (OUTPUTS,)))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def torch_gru(inputs, weights):
    """ReLU layer, then `torch.nn.GRU`, one row and one step at a time: h' = (1 - z) n + z h; then a linear layer."""
    w = Weights(*(leaf.astype(np.float64) for leaf in weights))
    hiddens = np.zeros((*inputs.shape[:2], H))
    for row in range(inputs.shape[1]):
        h = np.zeros(H)
        for t in range(len(inputs)):
            encoded = np.maximum(inputs[t, row] @ w.encode_kernel + w.encode_bias, 0)
            x_r, x_z, x_n = np.split(encoded @ w.gates_kernel + w.gates_bias, 3)
            h_r, h_z, h_n = np.split(h @ w.kernel + w.bias, 3)
            r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
            h = (1 - z) * np.tanh(x_n + r * h_n) + z * h
            hiddens[t, row] = h
    return hiddens @ w.head_kernel + w.head_bias, hiddens


def plain(inputs, weights):
    """The same recurrence as a scan that JAX differentiates on its own."""

    def body(hidden, x):
        encoded = jax.nn.relu(x @ weights.encode_kernel + weights.encode_bias)
        gates = encoded @ weights.gates_kernel + weights.gates_bias
        hidden = gru_cell(hidden, gates, weights.kernel, weights.bias)[0]
        return hidden, (hidden @ weights.head_kernel + weights.head_bias, hidden)

    return jax.lax.scan(body, jnp.zeros((inputs.shape[1], H)), inputs)[1]


FULL = np.full(R, T, np.int32)
whole = jax.jit(lambda inputs, weights: unroll_rows(inputs, weights, FULL))


def gradient_of(function):
    """Of a weighted sum of outputs, and of hidden states where `at` has weights for them too, by the weights."""

    def loss(weights, inputs, at):
        return sum((a * x).sum() for a, x in zip(at, function(inputs, weights), strict=False))

    return jax.jit(jax.grad(loss))


by_hand, by_jax = gradient_of(whole), gradient_of(plain)


def assert_close(actual, expected):
    for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@quick
@given(seeds)
def test_the_loop_is_pytorchs_gru(seed):
    (inputs,), weights = draw(seed, (T, R, INPUTS)), some_weights(seed + 1)
    for got, want in zip(whole(inputs, weights), torch_gru(inputs, weights), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes", [((T, R, OUTPUTS),), ((T, R, OUTPUTS), (T, R, H))])
@quick
@given(seed=seeds)
def test_gradients_by_hand_are_the_gradients_by_autodiff(shapes, seed):
    (inputs, *at), weights = draw(seed, (T, R, INPUTS), *shapes), some_weights(seed + 1)
    assert_close(by_hand(weights, inputs, tuple(at)), by_jax(weights, inputs, tuple(at)))


def masked_loss(weights, inputs, at, lengths, per):
    outputs, hiddens = unroll_rows(inputs, weights, lengths, per)
    return (at * hiddens).sum() + (at[..., :OUTPUTS] * outputs).sum(), hiddens


run_rows = jax.jit(jax.value_and_grad(masked_loss, has_aux=True), static_argnums=4)


@pytest.mark.parametrize("fall", [True, False])
@pytest.mark.parametrize("per", [1, 2])
@quick
@given(st.lists(st.integers(0, T + 1), min_size=8, max_size=8), seeds)
def test_rows_that_end_early_change_nothing_that_matters(per, fall, lengths, seed):
    """Whatever the lengths: hidden states and gradients where steps matter are those of the full loop."""
    lengths = np.array(lengths[: R // per], np.int32)
    lengths = np.sort(lengths)[::-1] if fall else lengths
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
