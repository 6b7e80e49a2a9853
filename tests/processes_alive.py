"""Which processes live, asked of /proc."""

from __future__ import annotations

import time
from pathlib import Path


def alive(pid: int) -> bool:
    """A zombie is dead, whoever forgot to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_gone(pids, seconds: float = 20.0) -> bool:
    """Whether all of them end within a while."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))
