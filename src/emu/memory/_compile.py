"""One way to compile a kernel: numba, without the interpreter lock, kept on disk where a disk can be written.

Kernels allocate nothing, so they need no reference counts (`_nrt=False`): counting the dozen arrays of an index in
and out of every call would take longer than the look-up itself. No fast-math: the same operations in the same order
give the same bits in every kernel and in the test oracles.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

njit: Any = numba.njit  # its type stubs leave out some options
OPTIONS = {"nogil": True, "_nrt": False, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that other kernels call. Without a door to Python it compiles in a fraction of the time."""
    return njit(**OPTIONS, no_cpython_wrapper=True)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel on the way of every look-up, written out where it is called.

    A call hands over the arrays of an index number by number, a hundred in all: it takes longer than the kernel itself.
    """
    return njit(**OPTIONS, no_cpython_wrapper=True, forceinline=True)(function)


def entry_point(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that Python calls: compiled on first use, its machine code kept for the next process.

    A read-only installation without a writable home has nowhere to keep machine code: numba raises, we go without.
    """
    try:
        kernel = njit(**OPTIONS, cache=True)(function)
    except RuntimeError:
        return njit(**OPTIONS)(function)
    cache_file = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _stamp()  # type: ignore[union-attr]
    return kernel


def _stamp() -> tuple[tuple[str, float, int], ...]:
    """Numba renews kept code when the kernel's own file changes; ours calls kernels in all files of this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((f.name, f.stat().st_mtime, f.stat().st_size) for f in files)
