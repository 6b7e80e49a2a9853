"""State dicts in PyTorch's two file formats, written by hand: every byte of the pickle is spelled out here."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np

STORAGE_NAMES = {"f4": "FloatStorage", "f8": "DoubleStorage", "f2": "HalfStorage", "i8": "LongStorage"}
MAGIC = b"\x80\x02\x8a\n" + bytes.fromhex("6cfc9c46f9206aa85019") + b"."  # LONG1 of ten bytes, little end first
VERSION = b"\x80\x02M\xe9\x03."  # 1001
SYSTEM = b"\x80\x02}q\x00(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88u."


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(values) -> bytes:
    return b"(" + b"".join(integer(int(v)) for v in values) + b"t"


def storage(key: str, kind: str, count: int, legacy: bool) -> bytes:
    view = b"N" if legacy else b""
    type_name = f"ctorch\n{STORAGE_NAMES[kind]}\n".encode()
    return b"(" + text("storage") + type_name + text(key) + text("cpu") + integer(count) + view + b"tQ"


def tensor(key: str, array: np.ndarray, legacy: bool, offset: int = 0, count: int | None = None) -> bytes:
    strides = [step // array.itemsize for step in array.strides]
    held = storage(key, array.dtype.str[1:], array.size if count is None else count, legacy)
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = held + integer(offset) + numbers(array.shape) + numbers(strides) + b"\x89" + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def state_dict(entries: dict[str, bytes]) -> bytes:
    """An ordered dictionary that carries `_metadata` along, as modules' state dicts do."""
    items = b"".join(text(name) + value for name, value in entries.items())
    metadata = b"}(" + text("_metadata") + b"}" + b"ub"
    return b"\x80\x02ccollections\nOrderedDict\n)Rq\x00(" + items + b"u" + metadata + b"."


def write_zip(path: Path, pickle: bytes, storages: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


def write_legacy(path: Path, pickle: bytes, storages: dict[str, tuple[int, bytes]]) -> Path:
    keys = b"\x80\x02]q\x00(" + b"".join(text(key) for key in storages) + b"e."
    contents = b"".join(struct.pack("<q", count) + data for count, data in storages.values())
    path.write_bytes(MAGIC + VERSION + SYSTEM + pickle + keys + contents)
    return path


def save(path: Path, tensors: dict[str, np.ndarray], legacy: bool) -> Path:
    """Any dictionary of arrays, a storage each."""
    keys = [str(94000 + i if legacy else i) for i in range(len(tensors))]
    pickle = state_dict({name: tensor(key, a, legacy) for key, (name, a) in zip(keys, tensors.items(), strict=True)})
    if legacy:
        sized = {key: (a.size, a.tobytes()) for key, a in zip(keys, tensors.values(), strict=True)}
        return write_legacy(path, pickle, sized)
    return write_zip(path, pickle, {key: a.tobytes() for key, a in zip(keys, tensors.values(), strict=True)})
