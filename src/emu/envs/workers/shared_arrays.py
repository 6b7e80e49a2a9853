"""What supervisor and workers share: a board of arrays in shared memory, and short messages over a socket.

Every copy of the environment has a row of the board, its place. The memory has no name in the file system: it is
gone when the last process that holds it is, however that one ended.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
from typing import NamedTuple

import numpy as np

from emu.envs.spec import EnvSpec

STEP = -1  # in an order, instead of the seed of a new episode
ORDER = np.dtype([("place", np.int32), ("seed", np.int64)])
DONE, RAISED = b"+", b"!"  # first byte of an answer; a traceback follows the second
_LENGTH = struct.Struct("<I")
_ALIGNMENT = 64


class Board(NamedTuple):
    """P places."""

    obs: np.ndarray  # (P, N, O) float32
    state: np.ndarray  # (P, S) float32
    avail: np.ndarray  # (P, N, A) bool
    action: np.ndarray  # (P, N) int32 or (P, N, A) float32: the only one that the supervisor writes
    reward: np.ndarray  # (P,) float32
    terminated: np.ndarray  # (P,) bool
    truncated: np.ndarray  # (P,) bool
    won: np.ndarray  # (P,) bool


def _layout(spec: EnvSpec, places: int) -> list[tuple[tuple[int, ...], type]]:
    fields = {**spec.step_fields, "won": ((), np.bool_)}
    return [((places, *fields[name][0]), fields[name][1]) for name in Board._fields]


def _ends(spec: EnvSpec, places: int) -> np.ndarray:
    """Where each array ends, rounded up so that no two arrays share a cache line."""
    sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in _layout(spec, places)]
    return np.cumsum([-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes])


def make_memory(spec: EnvSpec, places: int) -> int:
    """A file descriptor of nameless memory that is large enough."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("emu-board")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, int(_ends(spec, places)[-1]))
    return descriptor


def open_board(descriptor: int, spec: EnvSpec, places: int) -> Board:
    memory = mmap.mmap(descriptor, 0)
    begins = [0, *_ends(spec, places)[:-1].tolist()]
    arrays = [
        np.frombuffer(memory, kind, int(np.prod(shape)), begin).reshape(shape)
        for (shape, kind), begin in zip(_layout(spec, places), begins, strict=True)
    ]
    return Board(*arrays)


def send(line: socket.socket, message: bytes) -> None:
    line.sendall(_LENGTH.pack(len(message)) + message)


def receive(line: socket.socket) -> bytes:
    """One whole message. `EOFError` when the other side is gone, `TimeoutError` when the socket's timeout passes."""
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    return _exactly(line, length)


def _exactly(line: socket.socket, count: int) -> bytes:
    pieces = []
    while count:
        piece = line.recv(count)
        if not piece:
            raise EOFError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
