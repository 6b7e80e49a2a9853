"""The backend of this machine: a process for each worker, a socket to talk through, and memory that all of them see."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from typing import Any

import numpy as np

from emu.envs.spec import EnvSpec
from emu.envs.workers.guarded import GRACE, Guarded, cause_of
from emu.envs.workers.shared_arrays import RAISED, make_memory, open_arrays, receive, send

LOG_TAIL = 2_000  # characters of a dead worker's standard error that are shown


class ProcessBackend:
    """The shared arrays, and how a process that writes to them is started."""

    def __init__(self, task: dict[str, Any], timeout: float) -> None:
        spec, copies = EnvSpec(**task["spec"]), task["copies"]
        self.task, self.timeout = task, timeout
        self.memory = make_memory(spec, copies)
        self.arrays = open_arrays(self.memory, spec, copies)

    def launch(self) -> ProcessHandle:
        return ProcessHandle(self.task, self.memory, self.timeout)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.memory)


class ProcessHandle:
    """One worker process. It is started by `exec`, never by a plain fork: JAX has threads, and a copy would hang."""

    def __init__(
        self,
        task: dict[str, Any],
        memory: int | None,
        timeout: float,
        module: str = "emu.envs.workers.child",
        settings: dict[str, str] | None = None,
    ) -> None:
        self.timeout = timeout
        self.connection, childs_end = socket.socketpair()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  what it writes to its standard error
        with childs_end:
            numbers = (childs_end.fileno(),) if memory is None else (childs_end.fileno(), memory)
            self.guarded = Guarded(
                ["-m", module, *map(str, numbers)],
                numbers,
                also=task.get("also", ()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.log,
                env={**(settings or {}), **_environment()},
            )
        self.process = self.guarded.process
        self.connection.settimeout(timeout)
        self.send(json.dumps(task).encode())

    def ask(self, orders: np.ndarray) -> None:
        self.send(orders.tobytes())

    def answer(self) -> str | None:
        return self.reply()[0]

    def send(self, message: bytes) -> None:
        """It never fails: `reply` finds out."""
        with contextlib.suppress(OSError):
            send(self.connection, message)

    def reply(self) -> tuple[str | None, bytes]:
        """Wait for the next answer: what was wrong, if anything, and what came with it."""
        try:
            message = receive(self.connection)
        except TimeoutError:
            return f"It did not answer within {self.timeout:g} seconds.", b""
        except (EOFError, OSError):
            return f"It died ({cause_of(self.guarded.wait(GRACE))}).{self._stderr_tail()}", b""
        if message[:1] == RAISED:
            return f"It raised:\n{message[1:].decode(errors='replace').rstrip()}", b""
        return None, message[1:]

    def ask_to_close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.settimeout(0.1)
            send(self.connection, b"")

    def wait(self, seconds: float) -> None:
        self.guarded.wait(seconds)

    def kill(self) -> None:
        self.guarded.end()
        self.connection.close()
        self.log.close()

    def _stderr_tail(self) -> str:
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip()[-LOG_TAIL:]
        return f" The end of its standard error:\n{text}" if text else ""


def _environment() -> dict[str, str]:
    """Workers share the cores among themselves and leave accelerators to the learner."""
    quiet = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    return quiet | {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
