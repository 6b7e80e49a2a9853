"""What runs in a worker process: environments, one for each of its places, made when first needed.

    python -m emu.envs.workers.child SOCKET MEMORY        two inherited file descriptors

The first message says what to make; each further one is a list of orders (a place, and the seed of a new episode or
STEP), answered when all of them are on the board. An empty message asks to close. The worker leads a process group of
its own, and the whole group ends with the supervisor, however that ends.
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
from emu.envs.workers.shared_arrays import DONE, ORDER, RAISED, STEP, Board, open_board, receive, send
from emu.errors import EnvError


def main(line_number: int, memory: int) -> None:
    line = socket.socket(fileno=line_number)
    threading.Thread(target=_end_with, args=(line_number,), daemon=True).start()
    try:
        task = json.loads(receive(line))
        sys.path[:] = task["path"]
        board = open_board(memory, EnvSpec(**task["spec"]), task["places"])
        serve(line, board, Recipe(*task["recipe"]))
    except EOFError:
        pass  # the supervisor is gone
    except BaseException:
        send(line, RAISED + traceback.format_exc().encode())
        raise


def _end_with(line_number: int) -> None:
    """Wait for the other end of the socket to close; then end this process and whatever its environments started."""
    poll = select.poll()
    poll.register(line_number, 0)  # no event but the hang-up
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def serve(line: socket.socket, board: Board, recipe: Recipe) -> None:
    envs: dict[int, PythonEnv] = {}
    while message := receive(line):
        for place, seed in np.frombuffer(message, ORDER).tolist():
            if place not in envs:
                _seed_globals(seed)
                envs[place] = make_from(recipe)
            obey(envs[place], board, place, seed)
        send(line, DONE)
    for env in envs.values():
        with contextlib.suppress(Exception):  # it is leaving anyway
            env.close()


def obey(env: PythonEnv, board: Board, place: int, seed: int) -> None:
    """One order: what followed goes onto the board."""
    if seed == STEP:
        view, outcome = env.step(board.action[place].copy())
        board.reward[place] = outcome.reward
        board.terminated[place] = outcome.terminated
        board.truncated[place] = outcome.truncated
        board.won[place] = outcome.won
    else:
        _seed_globals(seed)
        view = env.reset(seed)
    show(view, board, place)


def show(view: View, board: Board, place: int) -> None:
    for name, value in zip(View._fields, view, strict=True):
        row, value = getattr(board, name)[place], np.asarray(value)
        if value.shape != row.shape:
            raise EnvError(
                f"The environment returned {name} of shape {value.shape}; its specification says {row.shape}. "
                "Run `emu check` on it."
            )
        row[...] = value


def _seed_globals(seed: int) -> None:
    """For environments that draw from the global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
