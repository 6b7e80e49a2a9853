"""Frozen convolutional networks as pure inference functions: torchvision's ResNets and MobileNetV2.

    images (n, H, W, 3) float32, normalised as ImageNet's  ->  feature maps (n, h, w, C)

A network is a list of `Layer`s under torchvision's own names, and a function that applies them. A convolution and the
batch norm behind it are one affine map, so they become one convolution with a bias:

    γ (w * x - μ) / √(σ² + ε) + β   =   (γ / √(σ² + ε)) w * x  +  β - γ μ / √(σ² + ε)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.atari.features.weights import WeightsError
from emu.types import Array

EPSILON = 1e-5  # of torchvision's batch norms
NORM = ("weight", "bias", "running_mean", "running_var")


class Layer(NamedTuple):
    """A convolution without bias and the batch norm behind it, as they stand in a state dict."""

    conv: str
    norm: str
    shape: tuple[int, int, int, int]  # (out, in / groups, h, w)


class Conv(NamedTuple):
    """A convolution with its batch norm folded in."""

    weight: Array  # (h, w, in / groups, out)
    bias: Array  # (out,)


Convs = dict[str, Conv]  # by the name of the convolution


def convolve(x: Array, conv: Conv, stride: int = 1, groups: int = 1) -> Array:
    """Padded as torchvision pads: half of the kernel on every side."""
    half = conv.weight.shape[0] // 2
    out = jax.lax.conv_general_dilated(
        x,
        conv.weight,
        (stride, stride),
        ((half, half), (half, half)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return out + conv.bias


def max_pool(x: Array) -> Array:
    """3 x 3, stride 2, padded by one."""
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)


def relu6(x: Array) -> Array:
    return jnp.clip(x, 0, 6)


@dataclasses.dataclass(frozen=True)
class ResNet:
    """A stem and four stages of residual blocks. Cut behind any of them: `stem`, `layer1` ... `layer4`."""

    blocks: tuple[int, int, int, int]  # per stage
    bottleneck: bool  # blocks of 1 x 1, 3 x 3, 1 x 1 (ResNet50) instead of two 3 x 3 (ResNet18)

    cuts = ("stem", "layer1", "layer2", "layer3", "layer4")

    def layers(self, cut: str) -> Iterator[Layer]:
        yield Layer("conv1", "bn1", (64, 3, 7, 7))
        channels = 64
        for number in range(self.cuts.index(cut)):
            width = 64 * 2**number
            out = 4 * width if self.bottleneck else width
            for block in range(self.blocks[number]):
                at = f"layer{number + 1}.{block}"
                kernels = (1, 3, 1) if self.bottleneck else (3, 3)
                sizes = (channels, *[width] * (len(kernels) - 1), out)
                for i, kernel in enumerate(kernels):
                    yield Layer(f"{at}.conv{i + 1}", f"{at}.bn{i + 1}", (sizes[i + 1], sizes[i], kernel, kernel))
                if block == 0 and (number > 0 or channels != out):
                    yield Layer(f"{at}.downsample.0", f"{at}.downsample.1", (out, channels, 1, 1))
                channels = out

    def apply(self, convs: Convs, images: Array) -> Array:
        x = max_pool(jax.nn.relu(convolve(images, convs["conv1"], stride=2)))
        for number, blocks in enumerate(self.blocks):
            for block in range(blocks):
                at = f"layer{number + 1}.{block}"
                if f"{at}.conv1" not in convs:  # cut
                    return x
                x = self._residual(convs, at, x, 2 if block == 0 and number > 0 else 1)
        return x

    def _residual(self, convs: Convs, at: str, x: Array, stride: int) -> Array:
        """A block's stride is on its first 3 x 3 convolution."""
        count, striding = (3, 2) if self.bottleneck else (2, 1)
        y = x
        for i in range(1, count + 1):
            y = convolve(y, convs[f"{at}.conv{i}"], stride if i == striding else 1)
            y = jax.nn.relu(y) if i < count else y
        shortcut = convs.get(f"{at}.downsample.0")
        return jax.nn.relu(y + (x if shortcut is None else convolve(x, shortcut, stride)))


# MobileNetV2's inverted residuals by rows of (expansion, channels, repeats, stride of the first)
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclasses.dataclass(frozen=True)
class MobileNetV2:
    """A stem, 17 inverted residuals and a 1 x 1 convolution: `features.0` ... `features.18`, cut behind any of them."""

    cuts = tuple(f"features.{i}" for i in range(19))

    def layers(self, cut: str) -> Iterator[Layer]:
        last = self.cuts.index(cut)
        yield Layer("features.0.0", "features.0.1", (32, 3, 3, 3))
        channels = 32
        for number, (expansion, out, _) in enumerate(self._blocks(), 1):
            if number > last:
                return
            at, wide = f"features.{number}.conv", channels * expansion
            pointwise, depthwise, projection = (wide, channels, 1, 1), (wide, 1, 3, 3), (out, wide, 1, 1)
            middle = [depthwise] if expansion == 1 else [pointwise, depthwise]
            for i, shape in enumerate(middle):
                yield Layer(f"{at}.{i}.0", f"{at}.{i}.1", shape)
            yield Layer(f"{at}.{len(middle)}", f"{at}.{len(middle) + 1}", projection)
            channels = out
        if last == 18:
            yield Layer("features.18.0", "features.18.1", (1280, channels, 1, 1))

    @staticmethod
    def _blocks() -> Iterator[tuple[int, int, int]]:
        """Expansion, output channels and stride of every block."""
        for expansion, out, repeats, stride in INVERTED:
            for i in range(repeats):
                yield expansion, out, stride if i == 0 else 1

    def apply(self, convs: Convs, images: Array) -> Array:
        x = relu6(convolve(images, convs["features.0.0"], stride=2))
        for number, (expansion, _, stride) in enumerate(self._blocks(), 1):
            at = f"features.{number}.conv"
            if f"{at}.0.0" not in convs:  # cut
                return x
            y = x
            if expansion > 1:
                y = relu6(convolve(y, convs[f"{at}.0.0"]))
            y = relu6(convolve(y, convs[f"{at}.{int(expansion > 1)}.0"], stride, groups=y.shape[-1]))
            y = convolve(y, convs[f"{at}.{1 + int(expansion > 1)}"])
            x = x + y if stride == 1 and x.shape == y.shape else y
        last = convs.get("features.18.0")
        return x if last is None else relu6(convolve(x, last))


Network = ResNet | MobileNetV2


class Pretrained(NamedTuple):
    """A network and torchvision's file of its weights."""

    network: Network
    official: str


NETWORKS: dict[str, Pretrained] = {
    "resnet18": Pretrained(ResNet((2, 2, 2, 2), False), "resnet18-f37072fd.pth"),
    "resnet50": Pretrained(ResNet((3, 4, 6, 3), True), "resnet50-0676ba61.pth"),
    "mobilenet_v2": Pretrained(MobileNetV2(), "mobilenet_v2-b0353104.pth"),
}


def fold(state: Mapping[str, np.ndarray], layers: Iterator[Layer]) -> Convs:
    """The layers' convolutions out of a state dict. What is missing or has another shape is an error."""
    convs = {}
    for layer in layers:
        weight = _take(state, f"{layer.conv}.weight", layer.shape)
        gamma, beta, mean, variance = (_take(state, f"{layer.norm}.{part}", layer.shape[:1]) for part in NORM)
        scale = gamma / np.sqrt(variance + EPSILON)
        folded = weight * scale[:, None, None, None]
        convs[layer.conv] = Conv(jnp.asarray(folded.transpose(2, 3, 1, 0)), jnp.asarray(beta - mean * scale))
    return convs


def _take(state: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in state or state[name].shape != shape:
        found = f"has shape {state[name].shape}" if name in state else "is missing"
        raise WeightsError(f"These are not the weights of this network: '{name}' {found}, expected {shape}.")
    return np.asarray(state[name], np.float32)


def random_convs(layers: Iterator[Layer], seed: int) -> Convs:
    """Weights drawn as before any training (He et al., 2015): normal, variance 2 / inputs; no bias."""
    rng, convs = np.random.default_rng(seed), {}
    for layer in layers:
        scale = math.sqrt(2 / math.prod(layer.shape[1:]))
        weight = rng.normal(scale=scale, size=layer.shape).astype(np.float32)
        convs[layer.conv] = Conv(jnp.asarray(weight.transpose(2, 3, 1, 0)), jnp.zeros(layer.shape[0]))
    return convs
