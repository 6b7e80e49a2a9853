"""Keys from embeddings: y = (x - mean) / spread dimension by dimension, or whitened, y = (x - mean) C^(-1/2).

Whitened keys (an option beyond the paper) have variance 1 in every direction, so that an embedding whose dimensions say
nearly the same thing still spans as many dimensions as it has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.memory import _rules

SMALLEST_SPREAD = 1e-4  # of a dimension, relative to its mean and the widest one; below, float32 noise would be keys
TINY = float(np.finfo(np.float32).tiny)  # the smallest spread that float32 divides by without losing digits


class Normalisation(NamedTuple):
    mean: np.ndarray  # (D,) float32
    spread: np.ndarray  # (D,) float32: standard deviations, never 0
    whitening: np.ndarray | None  # (D, D) float32, symmetric; None: keys are divided by `spread`

    def keys(self, embeddings: np.ndarray) -> np.ndarray:
        """(n, D) float32. One kernel for all: the same embedding always has the same key, to the bit."""
        keys = np.empty_like(embeddings)
        if self.whitening is None:
            _rules.normalise(embeddings, self.mean, self.spread, keys)
        else:
            _rules.whiten(embeddings, self.mean, self.whitening, keys)
        if not finite(keys):
            raise EmuError("embeddings lie too far from the others for float32 keys: check states and encoder")
        return keys

    def as_array(self) -> np.ndarray:
        """(2, D), or (2 + D, D) where keys are whitened."""
        rows = [self.mean[None], self.spread[None]] + ([] if self.whitening is None else [self.whitening])
        return np.concatenate(rows)


def identity(dim: int, whiten: bool) -> Normalisation:
    """Keys are the bare embeddings."""
    whitening = np.eye(dim, dtype=np.float32) if whiten else None
    return Normalisation(np.zeros(dim, np.float32), np.ones(dim, np.float32), whitening)


def fitted(embeddings: np.ndarray, whiten: bool) -> Normalisation:
    """Of (n, D) embeddings, n at least 1. A collapsed dimension is divided by a floor, never by 0."""
    dim = embeddings.shape[1]
    mean, spread = np.empty((2, dim))
    _rules.moments(embeddings, mean, spread)
    floor = SMALLEST_SPREAD * (np.abs(mean) + spread.max())
    whitening = _whitening(embeddings, mean) if whiten else None
    return Normalisation(mean.astype(np.float32), _at_least(spread, floor).astype(np.float32), whitening)


def _whitening(embeddings: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """C^(-1/2) = V diag(1 / √λ) Vᵀ: of all matrices that whiten, the one that turns the embedding least."""
    covariance = np.empty((len(mean), len(mean)))
    _rules.covariance(embeddings, mean, covariance)
    variances, directions = np.linalg.eigh(covariance)
    spreads = np.sqrt(np.maximum(variances, 0))
    floor = np.full(len(mean), SMALLEST_SPREAD * (np.abs(mean).max() + spreads.max()))
    return ((directions / _at_least(spreads, floor)) @ directions.T).astype(np.float32)


def _at_least(spread: np.ndarray, floor: np.ndarray) -> np.ndarray:
    return np.maximum(np.where(spread > floor, spread, np.where(floor > 0, floor, 1)), TINY)


def finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite. Their squares' sum nearly always tells, in a fraction of the time."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore"):
        total = flat.dot(flat)
    return math.isfinite(total) or bool(np.isfinite(flat).all())
