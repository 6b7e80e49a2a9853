"""Feed-forward actors and critics: two hidden layers, started as PyTorch starts its linear layers."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from emu.nets.init import Linear
from emu.types import Array


class Trunk(nn.Module):
    """(..., F) -> (..., features) through two hidden layers."""

    features: int
    hidden: int = 256

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(2):
            x = nn.relu(Linear(self.hidden)(x))
        return Linear(self.features)(x)


class Actor(nn.Module):
    """What to do about an observation: (..., O) -> (..., A), each number in [-1, 1]."""

    action_dim: int
    hidden: int = 256

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        return jnp.tanh(Trunk(self.action_dim, self.hidden)(obs))


class TwinCritic(nn.Module):
    """Two independent judges of an action: (..., O), (..., A) -> (..., 2)."""

    hidden: int = 256

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        x = jnp.concatenate([obs, action], axis=-1)
        return jnp.concatenate([Trunk(1, self.hidden, name=name)(x) for name in ("first", "second")], axis=-1)

    def first(self, obs: Array, action: Array) -> Array:
        """The first judge alone, (...): what the actor goes by."""
        return self(obs, action)[..., 0]
