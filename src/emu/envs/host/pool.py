"""The supervisor of worker processes.

A worker that dies, raises, or does not answer in time is ended with everything it started, and another takes its
place after a pause that doubles with every failure in a row. After too many in a row the pool gives up with the
worker's own traceback. Whoever asked a worker learns from `answer` that its environments are gone.

Workers are started by `exec`, never by a plain fork: JAX has threads, and a forked copy of them would hang.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np

from emu.envs.base import HostEnv, Recipe
from emu.envs.host.board import ORDER, RAISED, make_memory, open_board, receive, send
from emu.errors import EnvError

GRACE = 3.0  # seconds that environments get to close themselves
LONGEST_PAUSE = 30.0
LOG_TAIL = 2_000  # characters of a dead worker's last words


@dataclasses.dataclass
class Worker:
    """One process and what is known of it."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    log: IO[bytes]  # what it writes to its standard error
    generation: int = 0  # how many processes were here before
    failures: int = 0  # in a row
    asked: collections.deque[str] = dataclasses.field(default_factory=collections.deque)  # unanswered, by channel
    asked_in: dict[str, int] = dataclasses.field(default_factory=dict)  # channel -> generation it was asked in


class Pool:
    """Workers 0..W-1; place p belongs to worker p % W. Channels keep the questions of different askers apart."""

    def __init__(
        self,
        env: HostEnv,
        places: int,
        workers: int,
        timeout: float = 120.0,
        max_failures: int = 5,
        pause: float = 0.25,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.spec, self.places, self.timeout = env.spec, places, timeout
        self.max_failures, self.pause, self.warn = max_failures, pause, warn
        self.recipe = _recipe_of(env)
        env.require()
        self.failures = 0  # in all
        self._memory = make_memory(env.spec, places)
        self.board = open_board(self._memory, env.spec, places)
        self.workers: list[Worker] = []
        self._end = weakref.finalize(self, _end, self.workers, self._memory)  # also at the interpreter's exit
        for _ in range(workers):
            self.workers.append(Worker(*self._launch()))

    def places_of(self, worker: int, places: range) -> np.ndarray:
        """Those of some places that belong to a worker."""
        return np.array([p for p in places if p % len(self.workers) == worker], np.int32)

    def ask(self, channel: str, number: int, places: np.ndarray, seeds: np.ndarray) -> None:
        """Order a worker to begin episodes (a seed) or to take the steps on the board (STEP)."""
        worker = self.workers[number]
        orders = np.empty(len(places), ORDER)
        orders["place"], orders["seed"] = places, seeds
        worker.asked.append(channel)
        worker.asked_in[channel] = worker.generation
        with contextlib.suppress(OSError):  # it died: `answer` finds out
            send(worker.line, orders.tobytes())

    def answer(self, channel: str, number: int) -> bool:
        """Wait for the answer to what was asked last. False: the worker failed since, its episodes are lost."""
        worker = self.workers[number]
        while channel in worker.asked:
            problem = self._receive(worker)
            if problem is None:
                worker.asked.popleft()
            else:
                self._replace(number, problem)
        return worker.asked_in[channel] == worker.generation

    def praise(self, number: int) -> None:
        """An episode was finished: earlier failures are forgiven."""
        self.workers[number].failures = 0

    def close(self) -> None:
        """End all workers; environments get a moment to close themselves."""
        self._end()

    def _receive(self, worker: Worker) -> str | None:
        """The next answer; what was wrong, if anything."""
        try:
            message = receive(worker.line)
        except TimeoutError:
            return f"It did not answer within {self.timeout:g} seconds."
        except (EOFError, OSError):
            return f"It died ({_cause(worker.process)}).{_last_words(worker.log)}"
        if message[:1] == RAISED:
            return f"It raised:\n{message[1:].decode(errors='replace').rstrip()}"
        return None

    def _replace(self, number: int, problem: str) -> None:
        worker = self.workers[number]
        _kill(worker)
        self.failures += 1
        worker.failures += 1
        if worker.failures >= self.max_failures:
            raise EnvError(
                f"Worker {number} of '{self.spec.name}' failed {worker.failures} times without finishing an episode. "
                f"{problem}\nRun `emu check` on the environment to see it play outside of a worker."
            )
        pause = min(self.pause * 2 ** (worker.failures - 1), LONGEST_PAUSE)
        first_line, _, rest = problem.partition("\n")
        reason = rest.splitlines()[-1] if rest else first_line
        self.warn(f"Worker {number} failed and is started again; its unfinished episodes are dropped. {reason}")
        time.sleep(pause)
        worker.process, worker.line, worker.log = self._launch()
        worker.generation += 1
        worker.asked.clear()

    def _launch(self) -> tuple[subprocess.Popen[bytes], socket.socket, IO[bytes]]:
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            numbers = (theirs.fileno(), self._memory)
            process = subprocess.Popen(
                [sys.executable, "-m", "emu.envs.host.worker", *map(str, numbers)],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=_surroundings(),
                start_new_session=True,  # Ctrl-C is for the supervisor; a worker ends with all that it started
            )
        ours.settimeout(self.timeout)
        task = {
            "path": [os.getcwd() if entry == "" else entry for entry in sys.path],
            "spec": dataclasses.asdict(self.spec),
            "places": self.places,
            "recipe": self.recipe,
        }
        with contextlib.suppress(OSError):  # it died at once: `answer` finds out
            send(ours, json.dumps(task).encode())
        return process, ours, log


def _recipe_of(env: HostEnv) -> Recipe:
    recipe = env.recipe
    if recipe is None:
        raise EnvError(f"'{env.spec.name}' was not made by `emu.envs.make`: worker processes need its name.")
    if "<" in recipe.factory or recipe.factory.startswith("__main__:"):
        raise EnvError(
            f"Worker processes cannot import '{recipe.factory}': move it to the top level of a module, "
            'and use it as "my_module:MyEnvironment".'
        )
    return recipe


def _surroundings() -> dict[str, str]:
    """Workers share the cores among themselves and leave accelerators to the learner."""
    quiet = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    return quiet | {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}


def _cause(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(GRACE)
    except subprocess.TimeoutExpired:
        return "it closed its line"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    text = log.read().decode(errors="replace").strip()[-LOG_TAIL:]
    return f" Its last words:\n{text}" if text else ""


def _kill(worker: Worker) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    worker.line.close()
    worker.log.close()


def _end(workers: Iterable[Worker], memory: int) -> None:
    workers = list(workers)
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.line.settimeout(0.1)
            send(worker.line, b"")
    deadline = time.monotonic() + GRACE
    for worker in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        _kill(worker)
    with contextlib.suppress(OSError):
        os.close(memory)


def seed_of(*words: Any) -> int:
    """A seed of 31 bits that depends on every word."""
    return int(np.random.SeedSequence([int(word) for word in words]).generate_state(1)[0] >> 1)


def groups_of(workers: int) -> list[list[int]]:
    """Two groups, so that one steps while actions are found for the other; one group if there is one worker."""
    return [list(itertools.islice(range(workers), first, None, 2)) for first in range(min(2, workers))]
