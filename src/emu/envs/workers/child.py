"""What runs in a worker process: environments, one for each of its copies, made when first needed.

    python -m emu.envs.workers.child SOCKET MEMORY        two inherited file descriptors

The first message says what to make; each further one is a list of orders (a copy, and the seed of a new episode or
STEP), answered when what followed all of them is in the shared arrays. An empty message asks to close. The worker
leads a process group of its own, and the whole group ends with the supervisor, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import traceback

import numpy as np

from emu.envs.protocols import PythonEnv, Recipe
from emu.envs.registry import make_from
from emu.envs.spec import EnvSpec, View
from emu.envs.workers.shared_arrays import DONE, ORDER, RAISED, STEP, SharedArrays, open_arrays, receive, send
from emu.errors import EnvError


def main(descriptor: int, memory: int) -> None:
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=end_with_supervisor, args=(descriptor,), daemon=True).start()
    try:
        task = json.loads(receive(connection))
        sys.path[:] = task["path"]
        arrays = open_arrays(memory, EnvSpec(**task["spec"]), task["copies"])
        serve(connection, arrays, Recipe(*task["recipe"]))
    except EOFError:
        pass  # the supervisor is gone
    except BaseException:
        send(connection, RAISED + traceback.format_exc().encode())
        raise


def end_with_supervisor(descriptor: int) -> None:
    """Wait for the other end of the socket to close; then end this process and whatever its environments started."""
    poll = select.poll()
    poll.register(descriptor, 0)  # no event but the hang-up
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def serve(connection: socket.socket, arrays: SharedArrays, recipe: Recipe) -> None:
    envs: dict[int, PythonEnv] = {}
    while message := receive(connection):
        for copy, seed in np.frombuffer(message, ORDER).tolist():
            if copy not in envs:
                seed_globals(seed)
                envs[copy] = make_from(recipe)
            carry_out(envs[copy], arrays, copy, seed)
        send(connection, DONE)
    for env in envs.values():
        with contextlib.suppress(Exception):  # it is leaving anyway
            env.close()


def carry_out(env: PythonEnv, arrays: SharedArrays, copy: int, seed: int) -> None:
    """One order: what followed goes into the arrays."""
    if seed == STEP:
        view, outcome = env.step(arrays.action[copy].copy())
        arrays.reward[copy] = outcome.reward
        arrays.terminated[copy] = outcome.terminated
        arrays.truncated[copy] = outcome.truncated
        arrays.won[copy] = outcome.won
    else:
        seed_globals(seed)
        view = env.reset(seed)
    write_view(view, arrays, copy)


def write_view(view: View, arrays: SharedArrays, copy: int) -> None:
    for name, value in zip(View._fields, view, strict=True):
        row, value = getattr(arrays, name)[copy], np.asarray(value)
        if value.shape != row.shape:
            raise EnvError(
                f"The environment returned {name} of shape {value.shape}; its specification says {row.shape}. "
                "Run `emu check` on it."
            )
        row[...] = value


def seed_globals(seed: int) -> None:
    """For environments that draw from the global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
