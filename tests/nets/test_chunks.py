"""Real rows in chunks: the function and its gradients where rows are real, 0 elsewhere, nothing compiled anew."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.nets import chunks
from emu.nets.chunks import on_real_rows

M, WIDTH = 11, 3


def function(params, rows, constants):
    return {"value": jnp.tanh(rows @ params["kernel"]) @ params["out"] * constants, "square": jnp.square(rows).sum(-1)}


def loss(on_rows):
    """Results weighed by `at`, which is 0 where nothing counts."""

    def weighed(params, rows, constants, real, at):
        results = on_rows(params, rows, constants, real)
        return (at * (results["value"] + results["square"])).sum(), results

    return jax.jit(jax.value_and_grad(weighed, argnums=(0, 1), has_aux=True))


def in_chunks(params, rows, constants, real):
    return on_real_rows(function, params, rows, constants, real)


def at_once(params, rows, constants, real):
    return function(params, rows, constants)


@pytest.mark.parametrize("size", [1, 4, 64])
def test_what_counts_is_as_if_all_rows_were_computed_at_once(monkeypatch, size):
    monkeypatch.setattr(chunks, "CHUNK", size)
    rng = np.random.default_rng(size)
    params = {"kernel": rng.normal(size=(WIDTH, 4)), "out": rng.normal(size=4)}
    rows, constants, at = rng.normal(size=(M, WIDTH)), rng.normal(size=M), rng.normal(size=M)
    mine, plain = loss(in_chunks), loss(at_once)
    for real in (np.ones(M, bool), np.zeros(M, bool), *(rng.random((4, M)) < 0.5)):
        (_, results), grads = mine(params, rows, constants, real, at)
        (_, expected), expected_grads = plain(params, rows, constants, real, at * real)
        for name, values in results.items():
            np.testing.assert_allclose(values, np.where(real, expected[name], 0), rtol=1e-5, atol=1e-6)
        for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(expected_grads), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert mine._cache_size() == 1
