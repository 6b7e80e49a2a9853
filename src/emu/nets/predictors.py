"""CDS's predictors of the next observation: [GRU state, observation, action (, agent)] -> 128 -> 128 -> observation.

The one that knows which agent it predicts for is told twice, before the first and before the second layer, as in its
authors' code. Weights start as Glorot's uniform, biases at 0, as there.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from emu.types import Array


class ObservationPredictor(nn.Module):
    obs_dim: int
    hidden: int = 128

    @nn.compact
    def __call__(self, features: Array, agent: Array | None = None) -> Array:
        """(..., F) and, unless the prediction is for anyone, one-hot agents (..., N) -> (..., O)."""
        x = nn.relu(_dense(self.hidden, "first")(_joined(features, agent)))
        x = nn.relu(_dense(self.hidden, "second")(_joined(x, agent)))
        return _dense(self.obs_dim, "out")(x)


def _dense(features: int, name: str) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.xavier_uniform(), name=name)


def _joined(x: Array, agent: Array | None) -> Array:
    return x if agent is None else jnp.concatenate([x, agent], axis=-1)
