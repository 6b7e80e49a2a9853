"""The supervisor of workers, wherever they are.

A worker that dies, raises, or does not answer in time is ended with everything it started, and another takes its
place after a pause that doubles with every failure in a row. After too many in a row the pool gives up with the
worker's own traceback. Whoever asked a worker learns from `answer` that its environments are gone.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from emu.envs.protocols import PythonEnv, Recipe
from emu.envs.started import noted_processes
from emu.envs.workers.guarded import GRACE
from emu.envs.workers.process import ProcessBackend
from emu.envs.workers.shared_arrays import ORDER, SharedArrays
from emu.errors import EnvError

LONGEST_PAUSE = 30.0


class WorkerHandle(Protocol):
    """One running worker, as the supervisor sees it. Questions are answered in the order in which they were asked."""

    def ask(self, orders: np.ndarray) -> None:
        """Begin episodes, take steps with the actions in the arrays; (n,) ORDER. It never fails: `answer` finds out."""
        ...

    def answer(self) -> str | None:
        """Wait until the answer to the next question is in the arrays. Returns what was wrong, if anything."""
        ...

    def ask_to_close(self) -> None:
        """Ask it to close its environments and end."""
        ...

    def wait(self, seconds: float) -> None:
        """Until it has ended, but no longer than this."""
        ...

    def kill(self) -> None:
        """End it, and all that it started."""
        ...


class Backend(Protocol):
    """Where workers come from, and the arrays that show what their environments show."""

    arrays: SharedArrays

    def launch(self) -> WorkerHandle: ...

    def close(self) -> None: ...


@dataclasses.dataclass
class Worker:
    """The position of one running worker after the other, and what is known of it."""

    handle: Any  # WorkerHandle
    generation: int = 0  # how many were here before
    failures: int = 0  # in a row
    asked: collections.deque[str] = dataclasses.field(default_factory=collections.deque)  # unanswered, by channel
    asked_in: dict[str, int] = dataclasses.field(default_factory=dict)  # channel -> generation it was asked in


class Pool:
    """Workers 0..W-1; copy p belongs to worker p % W. Channels keep the questions of different askers apart."""

    def __init__(
        self,
        env: PythonEnv,
        copies: int,
        workers: int,
        timeout: float = 120.0,
        max_failures: int = 5,
        pause: float = 0.25,
        warn: Callable[[str], None] = lambda message: None,
        backend: Callable[[dict[str, Any], float], Backend] = ProcessBackend,
    ) -> None:
        self.spec, self.copies = env.spec, copies
        self.max_failures, self.pause, self.warn = max_failures, pause, warn
        self.failures = 0  # in all
        env.require()
        self._backend = backend(task_of(env, copies), timeout)
        self.arrays = self._backend.arrays
        self.workers: list[Worker] = []
        self._end = weakref.finalize(self, _end, self.workers, self._backend)  # also at the interpreter's exit
        for _ in range(workers):
            self.workers.append(Worker(self._backend.launch()))

    def copies_of(self, worker: int, copies: range) -> np.ndarray:
        """Those of some copies that belong to a worker."""
        return np.array([p for p in copies if p % len(self.workers) == worker], np.int32)

    def ask(self, channel: str, number: int, copies: np.ndarray, seeds: np.ndarray) -> None:
        """Order a worker to begin episodes (a seed) or to take the steps in the arrays (STEP)."""
        worker = self.workers[number]
        orders = np.empty(len(copies), ORDER)
        orders["copy"], orders["seed"] = copies, seeds
        worker.asked.append(channel)
        worker.asked_in[channel] = worker.generation
        worker.handle.ask(orders)

    def answer(self, channel: str, number: int) -> bool:
        """Wait for the answer to what was asked last. False: the worker failed since, its episodes are lost."""
        worker = self.workers[number]
        while channel in worker.asked:
            problem = worker.handle.answer()
            if problem is None:
                worker.asked.popleft()
            else:
                self._replace(number, problem)
        return worker.asked_in[channel] == worker.generation

    def forgive(self, number: int) -> None:
        """A worker finished an episode: its failures are counted from zero again."""
        self.workers[number].failures = 0

    def close(self) -> None:
        """End all workers; environments get a moment to close themselves."""
        self._end()

    def _replace(self, number: int, problem: str) -> None:
        worker = self.workers[number]
        worker.handle.kill()
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
        worker.handle = self._backend.launch()
        worker.generation += 1
        worker.asked.clear()


def task_of(env: PythonEnv, copies: int) -> dict[str, Any]:
    """What a worker must know, ready for JSON."""
    return {
        "path": [os.getcwd() if entry == "" else entry for entry in sys.path],
        "spec": dataclasses.asdict(env.spec),
        "copies": copies,
        "recipe": _recipe_of(env),
        "also": noted_processes(),
    }


def _recipe_of(env: PythonEnv) -> Recipe:
    recipe = env.recipe
    if recipe is None:
        raise EnvError(f"'{env.spec.name}' was not made by `emu.envs.make`: worker processes need its name.")
    if "<" in recipe.factory or recipe.factory.startswith("__main__:"):
        raise EnvError(
            f"Worker processes cannot import '{recipe.factory}': move it to the top level of a module, "
            'and use it as "my_module:MyEnvironment".'
        )
    return recipe


def _end(workers: Iterable[Worker], backend: Backend) -> None:
    handles = [worker.handle for worker in workers]
    for handle in handles:
        handle.ask_to_close()
    deadline = time.monotonic() + GRACE
    for handle in handles:
        handle.wait(max(0.0, deadline - time.monotonic()))
    for handle in handles:
        handle.kill()
    backend.close()


def groups_of(workers: int) -> list[list[int]]:
    """Two groups, so that one steps while actions are found for the other; one group if there is one worker."""
    return [list(itertools.islice(range(workers), first, None, 2)) for first in range(min(2, workers))]
