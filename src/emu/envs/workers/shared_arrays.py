"""What supervisor and workers share: arrays in shared memory, and short messages over a socket.

Every copy of the environment has a row of each array. The memory has no name in the file system: it is
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
ORDER = np.dtype([("copy", np.int32), ("seed", np.int64)])
DONE, RAISED = b"+", b"!"  # first byte of an answer; a traceback follows the second
_LENGTH = struct.Struct("<I")
_ALIGNMENT = 64


class SharedArrays(NamedTuple):
    """A row for each of P copies."""

    obs: np.ndarray  # (P, N, O) float32
    state: np.ndarray  # (P, S) float32
    avail: np.ndarray  # (P, N, A) bool
    action: np.ndarray  # (P, N) int32 or (P, N, A) float32: the only one that the supervisor writes
    reward: np.ndarray  # (P,) float32
    terminated: np.ndarray  # (P,) bool
    truncated: np.ndarray  # (P,) bool
    won: np.ndarray  # (P,) bool


def _layout(spec: EnvSpec, copies: int) -> list[tuple[tuple[int, ...], type]]:
    fields = {**spec.step_fields, "won": ((), np.bool_)}
    return [((copies, *fields[name][0]), fields[name][1]) for name in SharedArrays._fields]


def _ends(spec: EnvSpec, copies: int) -> np.ndarray:
    """Where each array ends, rounded up so that no two arrays share a cache line."""
    sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in _layout(spec, copies)]
    return np.cumsum([-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes])


def make_memory(spec: EnvSpec, copies: int) -> int:
    """A file descriptor of nameless memory that is large enough."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("emu-arrays")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, int(_ends(spec, copies)[-1]))
    return descriptor


def open_arrays(descriptor: int, spec: EnvSpec, copies: int) -> SharedArrays:
    memory = mmap.mmap(descriptor, 0)
    begins = [0, *_ends(spec, copies)[:-1].tolist()]
    arrays = [
        np.frombuffer(memory, kind, int(np.prod(shape)), begin).reshape(shape)
        for (shape, kind), begin in zip(_layout(spec, copies), begins, strict=True)
    ]
    return SharedArrays(*arrays)


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes:
    """One whole message. `EOFError` when the other side is gone, `TimeoutError` when the socket's timeout passes."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    pieces = []
    while count:
        piece = connection.recv(count)
        if not piece:
            raise EOFError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
