"""Weights files: arrays and nothing else; what is missing or damaged is explained."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

from emu.envs.atari.features.weights import WeightsError, default_path, read_weights

OFFICIAL = "resnet18-f37072fd.pth"


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "conv1.weight": rng.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "bn1.bias": rng.normal(size=5),
        "bn1.num_batches_tracked": np.array(7, np.int64),
        "half": rng.normal(size=(2, 0)).astype(np.float16),
    }


def test_what_was_written_is_read_bit_by_bit(tmp_path, arrays):
    save_file(arrays, tmp_path / "w.safetensors")
    read = read_weights("resnet18", OFFICIAL, str(tmp_path / "w.safetensors"))
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        np.testing.assert_array_equal(read[name], array)


def test_the_cache_folder_is_looked_at(tmp_path, monkeypatch, arrays):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path("resnet18") == tmp_path / "emu" / "weights" / "resnet18.safetensors"
    default_path("resnet18").parent.mkdir(parents=True)
    save_file(arrays, default_path("resnet18"))
    assert set(read_weights("resnet18", OFFICIAL)) == set(arrays)


def test_a_missing_file_says_how_to_come_by_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(WeightsError) as error:
        read_weights("resnet18", OFFICIAL)
    for part in (str(default_path("resnet18")), OFFICIAL, "torch.load", "save_file", "random", "weights"):
        assert part in str(error.value)
    with pytest.raises(WeightsError, match=r"nowhere\.safetensors"):
        read_weights("resnet18", OFFICIAL, str(tmp_path / "nowhere.safetensors"))


class Evil:
    """Unpickled by Python, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_refused_with_the_way_to_convert_it_and_never_run(tmp_path, protocol):
    done, path = tmp_path / "done", tmp_path / OFFICIAL
    path.write_bytes(pickle.dumps({"weight": Evil(done)}, protocol=protocol))
    with pytest.raises(WeightsError, match=r"not a whole safetensors file.*torch\.load"):
        read_weights("resnet18", OFFICIAL, str(path))
    assert not done.exists()
    pickle.loads(path.read_bytes())
    assert done.exists()  # it would have worked


def test_a_file_cut_short_anywhere_is_an_error_of_ours(tmp_path, arrays):
    path = tmp_path / "w.safetensors"
    save_file(arrays, path)
    data = path.read_bytes()
    for length in range(0, len(data) - 1, 7):
        path.write_bytes(data[:length])
        with pytest.raises(WeightsError):
            read_weights("resnet18", OFFICIAL, str(path))
