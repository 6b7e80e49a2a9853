"""Linear layers that start where PyTorch's start, so that the reference hyper-parameters mean the same here.

`torch.nn.Linear` draws weights and biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)). A kernel is
(..., fan_in, features): leading axes are layers side by side (attention heads), each with its own fan-in,
so a merged layer starts as the small layers it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from emu.types import Array

Initializer = Callable[..., Array]  # (key, shape, dtype) -> array


def torch_uniform(fan_in: int) -> Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), whatever the shape: PyTorch's start for a bias."""
    bound = 1.0 / math.sqrt(max(fan_in, 1))

    def draw(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return draw


def torch_linear(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """PyTorch's start for a kernel (..., fan_in, features)."""
    return torch_uniform(shape[-2])(key, shape, dtype)


class Linear(nn.Module):
    """x @ kernel + bias over the last axis, (..., fan_in) -> (..., features)."""

    features: int
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        fan_in = x.shape[-1]
        kernel = self.param("kernel", torch_linear, (fan_in, self.features))
        bias = self.param("bias", torch_uniform(fan_in), (self.features,)) if self.use_bias else None
        return linear(x, kernel, bias)

    def weights(self) -> tuple[Array, ...]:
        """Kernel and bias, for use inside a loop of JAX's, where no module may be called. Needs `init` to have been."""
        return tuple(self.get_variable("params", name) for name in ("kernel", "bias")[: 1 + self.use_bias])


def linear(x: Array, kernel: Array, bias: Array | None = None) -> Array:
    """x @ kernel + bias over the last axis."""
    return x @ kernel if bias is None else x @ kernel + bias
