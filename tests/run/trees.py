"""A tree with everything a run's state may hold, for several tests."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Pair(NamedTuple):
    first: Any
    second: Any


def some_tree(value=1.0):
    return {
        "params": {"weight": jnp.full((3, 2), value), "empty": jnp.zeros((2, 0))},
        "pair": Pair(jnp.int32(7), jnp.array([True, False])),
        "key": jax.random.PRNGKey(3),
        "nothing": (),
    }


def same_tree(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(x, y)
