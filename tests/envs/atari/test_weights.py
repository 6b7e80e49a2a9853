"""The `.pth` reader: both formats, tensors and nothing else."""

from __future__ import annotations

import collections
import hashlib
import os
import pickle
import zipfile

import numpy as np
import pytest

from emu.envs.atari.features.weights import WeightsError, find_weights, read_state_dict

from .torch_files import (
    integer,
    numbers,
    save,
    state_dict,
    storage,
    tensor,
    text,
    write_legacy,
    write_zip,
)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "conv1.weight": rng.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "bn1.bias": rng.normal(size=5),
        "bn1.num_batches_tracked": np.array(7, np.int64),
        "half": rng.normal(size=(2, 0)).astype(np.float16),
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_what_was_written_is_read_bit_by_bit(tmp_path, arrays, legacy):
    read = read_state_dict(save(tmp_path / "w.pth", arrays, legacy))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        np.testing.assert_array_equal(read[name], array)


def test_tensors_may_share_a_storage_and_be_parameters(tmp_path):
    whole = np.arange(6, dtype=np.float32)
    second = tensor("0", whole[2:6].reshape(2, 2), False, offset=2, count=6)
    parameter = b"ctorch._utils\n_rebuild_parameter\n(" + second + b"\x88ccollections\nOrderedDict\n)RtR"
    entries = {"all": tensor("0", whole, False), "part": parameter}
    read = read_state_dict(write_zip(tmp_path / "w.pth", state_dict(entries), {"0": whole.tobytes()}))
    np.testing.assert_array_equal(read["part"], [[2, 3], [4, 5]])


class Evil:
    """Unpickled by Python, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: collections.OrderedDict(weight=x)])
def test_a_pickle_that_calls_something_is_refused_before_it_does(tmp_path, protocol, wrap):
    done = tmp_path / "done"
    data = pickle.dumps(wrap(Evil(done)), protocol=protocol)
    for path in (write_zip(tmp_path / "a.pth", data, {}), write_legacy(tmp_path / "b.pth", data, {})):
        with pytest.raises(WeightsError):
            read_state_dict(path)
    bare = tmp_path / "c.pth"
    bare.write_bytes(data)
    with pytest.raises(WeightsError):
        read_state_dict(bare)
    assert not done.exists()
    pickle.loads(data)
    assert done.exists()  # it would have worked


FLOATS = b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + integer(4)
ENTRY = tensor("0", np.zeros(4, np.float32), False)
MALICIOUS = {
    "posix.system": b"cposix\nsystem\n(" + text("true") + b"tR",
    "builtins.eval": b"cbuiltins\neval\n(" + text("1") + b"tR",
    "a name within an allowed module": b"ctorch._utils\n_import_dotted_name\n(" + text("os.system") + b"tR",
    "a dotted name": b"ctorch\nFloatStorage.__class__\n)R",
    "a name put together on the stack": text("posix") + text("system") + b"\x93)R",
    "an old-style instance": b"(" + text("true") + b"iposix\nsystem\n",
    "a new object": b"ccollections\nOrderedDict\n)\x81",
    "an extension code": b"\x82\x01",
    "a call of a storage type": b"ctorch\nFloatStorage\n)R",
    "a call of a string": text("os.system") + b"(" + text("true") + b"tR",
    "an ordered dictionary made of arguments": b"ccollections\nOrderedDict\n(" + ENTRY + b"tR",
    "state forced on a tensor": ENTRY + b"}b",
    "items forced on a tensor": ENTRY + text("k") + b"Ns",
    "a reference to something else": b"(" + text("module") + FLOATS + b"tQ",
    "a tensor of a string": b"ctorch._utils\n_rebuild_tensor\n(" + text("abc") + integer(0) + 2 * numbers([1]) + b"tR",
    "a view": b"(" + text("storage") + FLOATS + text("v") + b"tQ",
}


@pytest.mark.parametrize("what", MALICIOUS)
def test_only_tensors_are_accepted(tmp_path, what):
    pickled = state_dict({"good": ENTRY, "bad": MALICIOUS[what]})
    with pytest.raises(WeightsError):
        read_state_dict(write_zip(tmp_path / "w.pth", pickled, {"0": bytes(16)}))
    read_state_dict(write_zip(tmp_path / "w.pth", state_dict({"good": ENTRY}), {"0": bytes(16)}))


def _windows():
    four = np.zeros(4, np.float32)
    yield "beyond the storage", tensor("0", four, False, offset=1)
    yield "larger than the storage", tensor("0", np.zeros(10**6, np.float32), False, count=4)
    yield "a broadcast bomb", tensor("0", np.broadcast_to(np.float32(0), (10**9,)), False, count=4)
    yield "transposed", tensor("0", np.zeros((2, 2), np.float32).T, False)
    yield "a negative offset", tensor("0", four, False, offset=-1)
    yield "no such storage", tensor("1", four, False)
    yield "a storage larger than its file", tensor("0", np.zeros(8, np.float32), False)
    yield "not a tensor", storage("0", "f4", 4, False)


@pytest.mark.parametrize(("what", "entry"), _windows())
def test_a_tensor_must_be_a_dense_window_on_a_whole_storage(tmp_path, what, entry):
    with pytest.raises(WeightsError):
        read_state_dict(write_zip(tmp_path / "w.pth", state_dict({"x": entry}), {"0": bytes(16)}))


def test_a_compressed_archive_is_refused_for_it_could_be_a_bomb(tmp_path):
    path = write_zip(tmp_path / "w.pth", state_dict({"x": ENTRY}), {"0": bytes(16)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(WeightsError, match="compressed"):
        read_state_dict(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_cut_short_anywhere_is_an_error_of_ours(tmp_path, arrays, legacy):
    data = save(tmp_path / "w.pth", arrays, legacy).read_bytes()
    for length in range(0, len(data) - 1, 7):
        (tmp_path / "cut.pth").write_bytes(data[:length])
        with pytest.raises(WeightsError):
            read_state_dict(tmp_path / "cut.pth")


def test_a_missing_file_says_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(WeightsError) as error:
        find_weights(("resnet18-f37072fd.pth",))
    for part in (str(tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"), "download", "random", "weights"):
        assert part in str(error.value)
    with pytest.raises(WeightsError, match=r"nowhere\.pth"):
        find_weights(("resnet18-f37072fd.pth",), str(tmp_path / "nowhere.pth"))


def test_the_cache_of_torch_hub_is_looked_at_and_damage_is_noticed_by_the_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    digits = hashlib.sha256(b"weights").hexdigest()[:8]
    name = f"resnet18-{digits}.pth"
    (folder / name).write_bytes(b"weights")
    assert find_weights(("resnet18-00000000.pth", name)) == folder / name
    (folder / name).write_bytes(b"weighty")
    with pytest.raises(WeightsError, match="damaged"):
        find_weights((name,))
