"""The embedder that needs no training and no JAX: a fixed Gaussian projection of the state (paper: "random")."""

from __future__ import annotations

import numpy as np

BLOCK = 64  # rows multiplied at a time


class RandomProjection:
    """x = s P with P_ij ~ N(0, 1/D). An `encode` callable: (n, S) states and (n,) times to (n, D) float32.

    Rows are multiplied in blocks of one size, so that a state has the same embedding, to the bit, in every batch.
    """

    def __init__(self, state_dim: int, key_dim: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.matrix = (rng.standard_normal((state_dim, key_dim)) / np.sqrt(key_dim)).astype(np.float32)

    def __call__(self, states: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        states = np.asarray(states, np.float32)
        count = len(states)
        padded = states
        if count % BLOCK:
            padded = np.zeros((-(-count // BLOCK) * BLOCK, states.shape[1]), np.float32)
            padded[:count] = states
        blocks = np.matmul(padded.reshape(-1, BLOCK, states.shape[1]), self.matrix)
        return blocks.reshape(-1, self.matrix.shape[1])[:count]
