"""Reading PyTorch's state dicts (`.pth`) without PyTorch: tensors and nothing else.

A `.pth` file is a pickle that refers to raw storages, in one of two wrappings:

    zip       <name>/data.pkl, and <name>/data/<key> for every storage         PyTorch 1.6 and later
    legacy    magic number, version, system, the pickle, the keys, and for every key its length and its bytes

A pickle is a program for a stack machine that may call whatever it names. The machine here knows only the instructions
that a dictionary of tensors needs, and calls nothing: a tensor is the one thing it can make besides plain values.
Anything else, a class, a function, an instruction it does not know, is refused by name before it has any effect.
"""

from __future__ import annotations

import collections
import hashlib
import io
import math
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.files import cache_home

MAGIC = 0x1950A86A20F9469CFC6C  # opens a legacy file
LEGACY_VERSION = 1001
KINDS = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}


class WeightsError(EmuError):
    """A weights file that is missing, damaged, or holds more than tensors."""


class Name(NamedTuple):
    """A function or class that a pickle names; it is never looked up."""

    text: str


class Storage(NamedTuple):
    """A run of numbers that a pickle refers to."""

    key: str
    kind: str  # numpy's name of the type
    numbers: int


class Tensor(NamedTuple):
    """A window on a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]


ORDERED_DICT = Name("collections OrderedDict")
REBUILD = {Name(f"torch._utils {name}") for name in ("_rebuild_tensor", "_rebuild_tensor_v2")}
PARAMETER = Name("torch._utils _rebuild_parameter")
STORAGES = {Name(f"torch {name}"): kind for name, kind in KINDS.items()}
ALLOWED = {ORDERED_DICT, PARAMETER, *REBUILD, *STORAGES}


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a `.pth` file, by name."""
    try:
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                return _read_zip(file)
            file.seek(0)
            return _read_legacy(file)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error
    except (OSError, ValueError, KeyError, IndexError, TypeError, struct.error, zipfile.BadZipFile) as error:
        raise WeightsError(f"{path} is not a whole PyTorch state dict: {error}") from error


def _read_zip(file: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(pickles) != 1:
            raise WeightsError(f"a zip archive with {len(pickles)} files called data.pkl; a state dict has one")
        root = pickles[0].removesuffix("data.pkl")

        def stored(name: str) -> bytes:
            if archive.getinfo(root + name).compress_type != zipfile.ZIP_STORED:
                raise WeightsError(f"{name} is compressed, which PyTorch never does")  # and a bomb would be
            return archive.read(root + name)

        if f"{root}byteorder" in archive.namelist() and stored("byteorder") != b"little":
            raise WeightsError("its numbers are not little-endian")
        tensors = Unpickler().load(io.BytesIO(stored("data.pkl")))
        return _resolve(tensors, lambda storage: np.frombuffer(stored(f"data/{storage.key}"), storage.kind))


def _read_legacy(file: BinaryIO) -> dict[str, np.ndarray]:
    opening = [Unpickler().load(file) for _ in range(2)]
    if opening != [MAGIC, LEGACY_VERSION]:
        raise WeightsError("neither a zip archive nor a legacy PyTorch file")
    system = Unpickler().load(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise WeightsError("its numbers are not little-endian")
    unpickler = Unpickler()
    tensors = unpickler.load(file)
    kinds = {storage.key: storage for storage in unpickler.storages}
    contents: dict[str, np.ndarray] = {}
    for key in Unpickler().load(file):
        (count,) = struct.unpack("<q", file.read(8))
        storage = kinds[key]
        if count != storage.numbers:
            raise WeightsError(f"storage {key} has {count} numbers where {storage.numbers} are expected")
        contents[key] = np.frombuffer(file.read(count * np.dtype(storage.kind).itemsize), storage.kind)
    return _resolve(tensors, lambda storage: contents[storage.key])


def _resolve(tree: Any, contents: Callable[[Storage], np.ndarray]) -> dict[str, np.ndarray]:
    """The pickle's dictionary with every tensor cut out of its storage."""
    if not isinstance(tree, dict):
        raise WeightsError("it holds no dictionary")
    read: dict[str, np.ndarray] = {}
    result = {}
    for name, tensor in dict.items(tree):
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightsError(f"entry {str(name)[:80]!r} is no tensor: not a plain state dict")
        storage, size = tensor.storage, math.prod(tensor.shape)
        if storage.key not in read:
            read[storage.key] = contents(storage)
            if len(read[storage.key]) != storage.numbers:
                raise WeightsError(f"storage {storage.key} is cut short: the file is not whole")
        if tensor.offset + size > storage.numbers:
            raise WeightsError(f"tensor {name!r} reaches beyond its storage")
        result[name] = read[storage.key][tensor.offset : tensor.offset + size].reshape(tensor.shape)
    return result


class Unpickler:
    """A pickle machine for state dicts."""

    def __init__(self) -> None:
        self.storages: set[Storage] = set()  # those referred to

    def load(self, file: BinaryIO) -> Any:
        """One pickle; the file is left right behind it."""
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name in PUSHED:
                self.stack.append(argument)
            elif opcode.name in INSTRUCTIONS:
                INSTRUCTIONS[opcode.name](self, argument)
            else:
                raise WeightsError(f"refused: the pickle instruction {opcode.name} has no place in a state dict")
        raise WeightsError("a pickle without an end")

    def above_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise WeightsError(f"refused: a pickle that changes a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def name(self, text: str) -> None:
        if Name(text) not in ALLOWED:
            raise WeightsError(f"refused: it wants {text.replace(' ', '.')}, and a state dict needs only tensors")
        self.stack.append(Name(text))

    def stack_name(self, _: Any) -> None:
        module, attribute = self.stack.pop(-2), self.stack.pop()
        self.name(f"{module} {attribute}")

    def call(self, _: Any) -> None:
        """The four things that may be "called"; none of them runs anything."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if function == ORDERED_DICT and arguments == ():
            self.stack.append(collections.OrderedDict())
        elif function in REBUILD:
            self.stack.append(_tensor(*arguments[:4]))
        elif function == PARAMETER and isinstance(arguments[0], Tensor):
            self.stack.append(arguments[0])
        else:
            raise WeightsError(f"refused: a call of {function!r}")

    def storage(self, _: Any) -> None:
        """A persistent reference: ("storage", type, key, device, count); legacy files add a view, which is None."""
        tag, kind, key, _device, count, *view = self.stack.pop()
        if tag != "storage" or kind not in STORAGES or not isinstance(count, int) or count < 0:
            raise WeightsError(f"refused: a reference to {tag!r} of {kind!r}")
        if view not in ([], [None]):
            raise WeightsError("its storages are views of each other: load and save it with a newer PyTorch")
        self.stack.append(Storage(str(key), STORAGES[kind], count))
        self.storages.add(self.stack[-1])

    def set_items(self, pairs: list[Any]) -> None:
        self.top(dict).update(zip(pairs[::2], pairs[1::2], strict=True))

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def build(self, _: Any) -> None:
        """An ordered dictionary brings attributes along (versions of modules): dropped."""
        self.stack.pop()
        self.top(collections.OrderedDict)

    def tuple_of(self, count: int) -> None:
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(values)


PUSHED = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING"),
}
INSTRUCTIONS: dict[str, Callable[[Unpickler, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.above_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "SETITEM": Unpickler.set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.above_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.above_mark()),
    "BINPUT": lambda machine, at: machine.memo.__setitem__(at, machine.stack[-1]),
    "LONG_BINPUT": lambda machine, at: machine.memo.__setitem__(at, machine.stack[-1]),
    "MEMOIZE": lambda machine, _: machine.memo.__setitem__(len(machine.memo), machine.stack[-1]),
    "BINGET": lambda machine, at: machine.stack.append(machine.memo[at]),
    "LONG_BINGET": lambda machine, at: machine.stack.append(machine.memo[at]),
    "GLOBAL": Unpickler.name,
    "STACK_GLOBAL": Unpickler.stack_name,
    "BINPERSID": Unpickler.storage,
    "REDUCE": Unpickler.call,
    "BUILD": Unpickler.build,
}


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise WeightsError("refused: a tensor that is not made of a storage, a shape and strides")
    dense = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if any(size > 1 and stride != step for size, stride, step in zip(shape, strides, dense, strict=True)):
        raise WeightsError("a tensor whose numbers do not lie in order: save it with .contiguous()")
    return Tensor(storage, offset, shape)


def find_weights(official: tuple[str, ...], given: str | None = None) -> Path:
    """The weights file: the one given, else one of the official files in the cache of torch.hub, checked by its name.

    Official files carry the first digits of their SHA-256 in their names, so a damaged download is noticed.
    """
    cache = Path(os.environ.get("TORCH_HOME") or cache_home() / "torch") / "hub" / "checkpoints"
    places = [Path(given).expanduser()] if given else [cache / name for name in official]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        looked = str(places[0]) if given else f"{cache} ({' or '.join(official)})"
        raise WeightsError(
            f"The weights of the pre-trained network are missing: there is no {looked}. Download "
            f"https://download.pytorch.org/models/{official[0]} to {cache / official[0]}, or say where the file is "
            'with --env-args \'{"weights": "PATH"}\'. For a network with random weights, ask for it: '
            '--env-args \'{"features": "random"}\'.'
        )
    digits = re.search(r"-([0-9a-f]{8,})\.", path.name)
    if digits:
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
        if not actual.startswith(digits[1]):
            raise WeightsError(
                f"{path} is damaged: its SHA-256 begins with {actual[:8]}, not with {digits[1]}. Download it again."
            )
    return path
