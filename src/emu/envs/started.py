"""Processes that environments start in this process, when they are made here: noted, and ended when nobody needs them.

A run makes its Python environment once to read its specification; copies that play live in workers, which have
guardians. What the one here starts (a game, a server) is ended with the run, and at the latest with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator

from emu.envs.workers.guardian import PR_SET_CHILD_SUBREAPER, begun_at, control, descendants, end_others

_noted: dict[int, int | None] = {}  # number -> when it began
_owner = os.getpid()


@contextlib.contextmanager
def noting_processes() -> Iterator[None]:
    """Note the processes that are started meanwhile, orphans too (on Linux; elsewhere none is found).

    If it fails they are ended at once: nobody will use them.
    """
    me, before = os.getpid(), set(descendants(os.getpid()))
    adopting = control(PR_SET_CHILD_SUBREAPER, 1)
    failed = True
    try:
        yield
        failed = False
    finally:
        if os.getpid() != me:
            os._exit(1)  # the environment forked, and this is the copy: one of us is enough
        if adopting:
            control(PR_SET_CHILD_SUBREAPER, 0)
        begun = {pid: begun_at(pid) for pid in descendants(me) if pid not in before}
        if failed:
            _end(begun)
        else:
            _noted.update(begun)


def noted_processes() -> list[int]:
    """Those that still run."""
    return [pid for pid, begun in _noted.items() if begun is not None and begun_at(pid) == begun]


def end_noted_processes() -> None:
    """End them, with all that they started."""
    if os.getpid() == _owner:
        _end(_noted)
        _noted.clear()


def _end(processes: dict[int, int | None]) -> None:
    end_others(",".join(f"{pid}:{begun}" for pid, begun in processes.items() if begun is not None))


atexit.register(end_noted_processes)
