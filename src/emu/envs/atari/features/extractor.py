"""Frames in, feature vectors out: part of a frozen network, in front of the memory's embedding (paper: Atari).

    (n, H, W) uint8  ->  network, cut behind some layer  ->  average over pool x pool fields  ->  (n, F) float16

Pre-trained weights are torchvision's, from a local safetensors file; random ones are for whoever asks for them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.atari.features.networks import NETWORKS, Convs, fold, random_convs
from emu.envs.atari.features.weights import read_weights
from emu.errors import ConfigError, did_you_mean
from emu.types import Array

BLOCK = 32  # frames at a time: always as many, so that a frame's bits do not depend on its neighbours
MEAN, SPREAD = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)  # of ImageNet's pixels in [0, 1]
RANDOM = "random"  # ResNet18 as it is before any training
RANDOM_SEED = 18  # one network for all runs: what a run's seed changes is what it learns
DEFAULT_CUTS = {"resnet18": "layer2", "resnet50": "layer2", "mobilenet_v2": "features.6", RANDOM: "layer2"}
HALF_RANGE = float(np.finfo(np.float16).max)


class Extractor:
    """A frozen network, ready to be called with frames."""

    def __init__(
        self,
        kind: str,
        frame: tuple[int, int] = (84, 84),
        cut: str | None = None,
        pool: int = 2,
        weights: str | None = None,
    ) -> None:
        if kind not in DEFAULT_CUTS:
            raise ConfigError(f"No features are called '{kind}'. {did_you_mean(kind, DEFAULT_CUTS)}")
        pretrained = NETWORKS["resnet18" if kind == RANDOM else kind]
        cut, self.network = cut or DEFAULT_CUTS[kind], pretrained.network
        if cut not in self.network.cuts:
            raise ConfigError(f"{kind} cannot be cut at '{cut}'. {did_you_mean(cut, self.network.cuts)}")
        layers = list(self.network.layers(cut))
        if kind == RANDOM:
            self.convs: Convs = random_convs(iter(layers), RANDOM_SEED)
        else:
            self.convs = fold(read_weights(kind, pretrained.official, weights), iter(layers))
        self.frame, self.pool = frame, pool
        height, width = jax.eval_shape(self._maps, self.convs, np.zeros((1, *frame), np.uint8)).shape[1:3]
        if not 1 <= pool <= min(height, width):
            raise ConfigError(f"features: pool must lie between 1 and {min(height, width)} at '{cut}', not {pool}.")
        self._apply = jax.jit(self._features)
        self.dim: int = jax.eval_shape(self._features, self.convs, np.zeros((1, *frame), np.uint8)).shape[1]

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        """(n, H, W) uint8 -> (n, F) float16."""
        out = np.empty((len(frames), self.dim), np.float16)
        for start in range(0, len(frames), BLOCK):
            block = np.zeros((BLOCK, *self.frame), np.uint8)
            count = len(frames[start : start + BLOCK])
            block[:count] = frames[start : start + BLOCK]
            out[start : start + count] = np.asarray(self._apply(self.convs, block))[:count]
        return out

    def _maps(self, convs: Convs, frames: Array) -> Array:
        grey = jnp.asarray(frames, jnp.float32)[..., None] / 255
        return self.network.apply(convs, (grey - MEAN) / SPREAD)

    def _features(self, convs: Convs, frames: Array) -> Array:
        maps = self._maps(convs, frames)
        rows, columns = (field_means(size, self.pool) for size in maps.shape[1:3])
        fields = jnp.einsum("ph,nhwc,qw->npqc", rows, maps, columns)
        return jnp.clip(fields.reshape(len(frames), -1), -HALF_RANGE, HALF_RANGE).astype(jnp.float16)


def field_means(size: int, fields: int) -> np.ndarray:
    """(fields, size): rows that average over fields as equal as can be; neighbours share a pixel where they must."""
    means = np.zeros((fields, size), np.float32)
    for i in range(fields):
        begin, end = i * size // fields, -(-(i + 1) * size // fields)
        means[i, begin:end] = 1 / (end - begin)
    return means
