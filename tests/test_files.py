"""Files that are whole or not there."""

import errno
import json
import os

import numpy as np
import pytest

from emu.errors import EmuError
from emu.files import Fingerprint, cache_folder, read_object, replace_arrays, replace_json, replacing


def test_json_is_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    replace_json(path, {"a": 1})

    def no_space(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr("emu.files.flush", no_space)
        replace_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_writer_that_fails_halfway_leaves_the_old_content(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    arrays = {"a": np.arange(5), "b": np.ones((2, 3), np.float16)}
    for name in ("one.npz", "two.npz"):
        replace_arrays(tmp_path / name, arrays)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_fingerprint_tells_one_flipped_bit_and_one_missing_byte(tmp_path):
    path = tmp_path / "x"
    content = bytes(range(256)) * 40
    path.write_bytes(content)
    whole = Fingerprint.of(path)
    assert whole.bytes == len(content)
    for damaged in (content[:-1], content[:77] + bytes([content[77] ^ 4]) + content[78:]):
        path.write_bytes(damaged)
        assert Fingerprint.of(path) != whole


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"\xff\x00", b"[" * 100_000])
def test_a_file_without_one_json_object_is_refused_by_name(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(EmuError, match=r"x\.json"):
        read_object(path)


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "emu"
