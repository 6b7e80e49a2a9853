"""One process per run folder; the lock ends with its process, however that ends."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock, Timeout

from emu.errors import CheckpointError
from emu.files import reason
from emu.run.folder import RunFolder


class RunLock:
    def __init__(self, folder: Path) -> None:
        path = RunFolder(folder).lock
        self._lock = FileLock(path, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
            path.write_text(str(os.getpid()), "utf-8")
        except Timeout as error:
            owner = path.read_text("utf-8", errors="replace").strip()[:20] or "unknown"
            raise CheckpointError(
                f"{folder} is in use by another process (pid {owner}). Wait for it, stop it, or choose another folder."
            ) from error
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be locked: {reason(error)}. May you write there?") from error

    def release(self) -> None:
        self._lock.release()
