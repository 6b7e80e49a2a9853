"""Q of every action from what one agent sees: the network of Mnih et al. (2015) for pictures, a plain one for vectors.

    pictures (..., stack * H * W) uint8   conv 8x8/4 32, 4x4/2 64, 3x3/1 64, dense 512, all ReLU  ->  (..., A)
    vectors  (..., stack * O)             two dense layers with ReLU                              ->  (..., A)

Layers start where PyTorch's start.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from emu.nets.init import Linear, torch_uniform
from emu.types import Array

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride


class PictureQ(nn.Module):
    actions: int
    picture: tuple[int, int]
    stack: int
    hidden: int = 512

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        pictures = jnp.moveaxis(obs.reshape(-1, self.stack, *self.picture), 1, -1)
        x = pictures.astype(jnp.float32) / 255
        for channels, size, stride in LAYERS:
            start = torch_uniform(size * size * x.shape[-1])
            conv = nn.Conv(channels, (size, size), stride, padding="VALID", kernel_init=start, bias_init=start)
            x = nn.relu(conv(x))
        x = nn.relu(Linear(self.hidden)(x.reshape(len(x), -1)))
        return Linear(self.actions)(x).reshape(*obs.shape[:-1], self.actions)


class VectorQ(nn.Module):
    actions: int
    hidden: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = nn.relu(Linear(self.hidden)(obs))
        x = nn.relu(Linear(self.hidden)(x))
        return Linear(self.actions)(x)
