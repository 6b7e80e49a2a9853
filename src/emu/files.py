"""Files that are whole or not there: atomic writes, checksums, strict JSON, and the folder for what may be lost.

Nothing here knows what a run is, and nothing imports JAX.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from emu.errors import EmuError

if TYPE_CHECKING:
    import numpy as np


def cache_home() -> Path:
    """The user's folder for what can be made again: XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def cache_folder() -> Path:
    """Our part of it."""
    return cache_home() / "emu"


# Writing


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` in one step, and only if nothing goes wrong.

    Readers see the old content or the new, never a part. A process that dies leaves `.NAME.part`, which the next
    writer overwrites.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            flush(file)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def replace_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def replace_json(path: Path, content: Any, indent: int | None = None) -> None:
    replace_bytes(path, (json.dumps(content, indent=indent) + "\n").encode())


def replace_arrays(path: Path, arrays: dict[str, np.ndarray], compressed: bool = True) -> None:
    """A .npz without pickle; the same arrays give the same bytes."""
    import numpy as np  # a fifth of a second that most commands can do without

    with replacing(path) as file:
        (np.savez_compressed if compressed else np.savez)(file, allow_pickle=False, **arrays)


def flush(file: Any) -> None:
    """Wait until what was written to an open file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path, instead: str = "Choose another place.") -> Iterator[None]:
    """Whatever keeps a file or folder from being written is said in the user's words, and what to do instead."""
    try:
        yield
    except OSError as error:
        raise EmuError(f"{path} cannot be written: {reason(error)}. {instead}") from error


# Names

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes that Linux and most others take


def require_possible(path: Path) -> Path:
    """Refuse a path that no file system takes, before anything trips over it."""
    text = os.fsencode(path)
    if b"\0" in text:
        raise EmuError(f"{str(path)!r} cannot be the name of a file: it holds a null character.")
    if len(text) > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        raise EmuError(f"The path {str(path)[:60]}… is too long for a file system. Choose a shorter one.")
    return path


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


# Checksums


class Fingerprint(NamedTuple):
    """What tells whether a file is still the one that was written."""

    bytes: int
    crc: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        crc = size = 0
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                crc, size = zlib.crc32(block, crc), size + len(block)
        return cls(size, crc)


# Reading


def parse_json(text: bytes | str) -> Any:
    """JSON from anywhere; whatever is wrong with it, too deep a nesting included, is a `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; anything else is refused with the reason."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EmuError(f"{path} cannot be read: {reason(error)}.") from error
    if not isinstance(content, dict):
        raise EmuError(f"{path} must hold one JSON object, not {type(content).__name__}.")
    return content


def reason(error: BaseException) -> str:
    """Why something failed, in a few words, without the number and the path that an `OSError` brings along."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{error}".rstrip(".") or type(error).__name__
