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


def all_gone(pids, seconds: float = 90.0) -> bool:
    """Whether all of them end within a while; those that do not are printed, for whoever reads the failure."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        print(f"still there: {pid}", *(_shown(Path(f"/proc/{pid}/{name}")) for name in ("stat", "wchan", "cmdline")))
    return not left


def _shown(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ").strip()[:200]
    except OSError as error:
        return str(error)
