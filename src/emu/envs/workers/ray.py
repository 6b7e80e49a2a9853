"""The backend of a Ray cluster, workers on its nodes: `--rollout.where ray --rollout.workers 64`.

An actor on a node supervises one worker process, the same as on one machine, so that the environment and all that it
started end with the actor, however that ends. Orders and actions go to the actor, what the environments show comes
back and is copied into the trainer's arrays; actions are found in the trainer, for many workers in one compiled call.
An actor that is lost, with its node or alone, is a worker that died: the pool starts another.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from emu.envs.spec import EnvSpec
from emu.envs.workers.guarded import GRACE
from emu.envs.workers.process import ProcessBackend
from emu.envs.workers.shared_arrays import SharedArrays, make_memory, open_arrays
from emu.errors import EmuError

SLACK = 10.0  # seconds beyond a worker's own time for the way to it and back


def load_ray(needed_by: str) -> Any:
    try:
        import ray
    except ImportError as error:
        raise EmuError(f"{needed_by} needs Ray, which is not installed: pip install 'emu-marl[cluster]'") from error
    return ray


@contextlib.contextmanager
def connecting(address: str) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EmuError(
            f"No Ray cluster was reached at '{address}' ({str(error).strip().splitlines()[0]}). Start one with "
            "`ray start --head`, join it from other machines with `ray start --address=HEAD:6379`."
        ) from error


def connect(address: str) -> Any:
    """Ray, connected to a cluster; a connection that is already there is used."""
    ray = load_ray("--rollout.where ray")
    if not ray.is_initialized():
        ours = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        with connecting(address):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        if ours:
            signal.signal(signal.SIGTERM, before)  # a run saves before it ends; Ray would end it at once
    return ray


class NodeWorker:
    """The actor that runs on a node: one worker process and the arrays that it writes to."""

    def __init__(self, task: dict[str, Any], timeout: float) -> None:
        # Modules are looked for where this node has them, then where the trainer has them (a shared file system).
        path = [*sys.path, *(entry for entry in task["path"] if entry not in sys.path)]
        self.backend = ProcessBackend({**task, "path": path}, timeout)
        self.worker = self.backend.launch()

    def carry_out(self, orders: np.ndarray, action: np.ndarray) -> str | list[np.ndarray]:
        """Carry out orders. Returns what was wrong, or the arrays' rows of the copies that were named."""
        copies = orders["copy"]
        self.backend.arrays.action[copies] = action
        self.worker.ask(orders)
        return self.worker.answer() or [array[copies] for array in self.backend.arrays]

    def pids(self) -> tuple[int, int]:
        """Of this process and of its worker."""
        return os.getpid(), self.worker.process.pid

    def close(self) -> None:
        self.worker.ask_to_close()
        self.worker.wait(GRACE)
        self.worker.kill()


class RayBackend:
    """The trainer's arrays, and how an actor whose answers go into them is started."""

    def __init__(self, task: dict[str, Any], timeout: float, address: str = "auto") -> None:
        self.ray, self.task, self.timeout = connect(address), task, timeout
        spec, copies = EnvSpec(**task["spec"]), task["copies"]
        memory = make_memory(spec, copies)
        self.arrays = open_arrays(memory, spec, copies)
        os.close(memory)  # nobody else writes to it
        self.actor_class = self.ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(NodeWorker)

    def launch(self) -> RayHandle:
        return RayHandle(self.ray, self.actor_class.remote(self.task, self.timeout), self.arrays, self.timeout + SLACK)

    def close(self) -> None:
        """Nothing but the actors is held, and they have been killed."""


class RayHandle:
    """One worker on a node, as the pool sees it."""

    def __init__(self, ray: Any, actor: Any, arrays: SharedArrays, timeout: float) -> None:
        self.ray, self.actor, self.arrays, self.timeout = ray, actor, arrays, timeout
        self.asked: collections.deque[tuple[np.ndarray, Any]] = collections.deque()
        self.leaving: Any = None

    def ask(self, orders: np.ndarray) -> None:
        copies = orders["copy"]
        self.asked.append((copies, self.actor.carry_out.remote(orders, self.arrays.action[copies])))

    def answer(self) -> str | None:
        copies, answer = self.asked.popleft()
        try:
            shown = self.ray.get(answer, timeout=self.timeout)
        except self.ray.exceptions.GetTimeoutError:
            return f"It did not answer within {self.timeout:g} seconds (has the cluster a free core for every worker?)."
        except self.ray.exceptions.RayError as error:
            return f"It died ({type(error).__name__}). Ray says:\n{str(error).strip()}"
        if isinstance(shown, str):
            return shown
        for name, rows in zip(SharedArrays._fields, shown, strict=True):
            if name != "action":  # the next ones may be there already
                getattr(self.arrays, name)[copies] = rows
        return None

    def ask_to_close(self) -> None:
        with contextlib.suppress(Exception):  # Ray may be gone
            self.leaving = self.actor.close.remote()

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(Exception):
            self.ray.wait([self.leaving], timeout=seconds)

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(self.actor)
