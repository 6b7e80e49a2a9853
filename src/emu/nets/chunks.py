"""A network of single steps, applied to the real steps of a padded batch only, a chunk of them at a time.

Half of a batch of episodes is padding. The loop below reads the rows that count, wherever they are, and ends with the
last of them: how many there are may differ from batch to batch without anything being compiled anew. What a chunk needs
stays in a core's cache; the backward pass computes a chunk's forward pass again, which is cheaper than to keep it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from emu.types import Array, PyTree

CHUNK = 512  # rows

RowFunction = Callable[[PyTree, PyTree, PyTree], PyTree]  # parameters, rows, constant rows -> rows of scalars


def on_real_rows(function: RowFunction, params: PyTree, rows: PyTree, constants: PyTree, real: Array) -> PyTree:
    """`function(params, rows, constants)` where `real` (M,) is true, 0 elsewhere. Leaves have M rows, results (M,).

    Gradients reach the parameters and the rows; none is passed on to the constants.
    """
    size = min(CHUNK, len(real))
    count = real.sum(dtype=jnp.int32)
    place = jnp.cumsum(real, dtype=jnp.int32) - 1  # of a real row among its like
    padded = -(-len(real) // size) * size
    index = jnp.nonzero(real, size=padded, fill_value=0)[0].astype(jnp.int32)
    compact = _in_chunks(function, size, params, rows, constants, (real, place, index, count))
    return jax.tree.map(lambda x: _spread(x, real, place), compact)


def _spread(compact: Array, real: Array, place: Array) -> Array:
    """Rows one after the other back to where they belong."""
    return jnp.where(real.reshape(-1, *[1] * (compact.ndim - 1)), compact[jnp.maximum(place, 0)], 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_chunks(
    function: RowFunction, size: int, params: PyTree, rows: PyTree, constants: PyTree, where: tuple[Array, ...]
) -> PyTree:
    """Results of the real rows, one after the other; what follows them means nothing."""
    _, _, index, count = where

    def step(k: Array, results: PyTree) -> PyTree:
        chosen = jax.lax.dynamic_slice_in_dim(index, k * size, size)
        return _put(results, function(params, *_at((rows, constants), chosen)), k * size)

    return jax.lax.fori_loop(0, -(-count // size), step, _room(function, params, rows, constants, index))


def _forward(function: RowFunction, size: int, params: PyTree, rows: PyTree, constants: PyTree, where: Any) -> Any:
    return _in_chunks(function, size, params, rows, constants, where), (params, rows, constants, where)


def _backward(function: RowFunction, size: int, residual: Any, grads: PyTree) -> Any:
    params, rows, constants, where = residual
    real, place, index, count = where

    def step(k: Array, carry: Any) -> Any:
        total, of_rows = carry
        chosen = jax.lax.dynamic_slice_in_dim(index, k * size, size)
        counts = k * size + jnp.arange(size) < count
        seen = jax.tree.map(lambda g: jnp.where(counts, jax.lax.dynamic_slice_in_dim(g, k * size, size), 0), grads)
        known = _at(constants, chosen)
        _, back = jax.vjp(lambda p, r: function(p, r, known), params, _at(rows, chosen))
        more, of_chosen = back(seen)
        return jax.tree.map(jnp.add, total, more), _put(of_rows, of_chosen, k * size)

    nothing = jax.tree.map(jnp.zeros_like, params)
    room = jax.tree.map(lambda x: jnp.zeros((len(index), *x.shape[1:]), x.dtype), rows)
    total, of_rows = jax.lax.fori_loop(0, -(-count // size), step, (nothing, room))
    return total, jax.tree.map(lambda x: _spread(x, real, place), of_rows), None, None


_in_chunks.defvjp(_forward, _backward)


def _at(tree: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda x: x[index], tree)


def _put(room: PyTree, part: PyTree, start: Array) -> PyTree:
    return jax.tree.map(lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, start, 0), room, part)


def _room(function: RowFunction, params: PyTree, rows: PyTree, constants: PyTree, index: Array) -> PyTree:
    """Zeros for the results of all rows."""
    shapes = jax.eval_shape(lambda: function(params, *_at((rows, constants), index)))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
