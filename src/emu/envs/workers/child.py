"""What runs in a worker process: environments, one for each of its copies, made when first needed.

    python -m emu.envs.workers.child SOCKET MEMORY        two inherited file descriptors

The first message says what to make; each further one is a list of orders (a copy, and the seed of a new episode or
STEP), answered when what followed all of them is in the shared arrays. An empty message asks to close. The worker
leads a process group of its own, and the whole group ends with the supervisor, however that ends; its guardian sees to
the rest (see `guardian`). A copy of this process that an environment forked ends as soon as it comes back to us.
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

from emu.envs.faults import NUMBERS, Fault, answer_fault, outcome_type_faults, view_faults
from emu.envs.protocols import PythonEnv, Recipe
from emu.envs.registry import make_from
from emu.envs.spec import EnvSpec, View
from emu.envs.workers.shared_arrays import DONE, ORDER, RAISED, STEP, SharedArrays, open_arrays, receive, send
from emu.errors import EnvError

_ME = os.getpid()


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
        _end_copies()
        send(connection, RAISED + traceback.format_exc().encode(errors="replace"))
        raise


def end_with_supervisor(descriptor: int) -> None:
    """Wait for the other end of the socket to close; then end this process and whatever its environments started."""
    poll = select.poll()
    poll.register(descriptor, 0)  # no event but the hang-up
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def _end_copies() -> None:
    """One process speaks to the supervisor; a fork of it must not."""
    if os.getpid() != _ME:
        os._exit(1)


def serve(connection: socket.socket, arrays: SharedArrays, recipe: Recipe) -> None:
    envs: dict[int, PythonEnv] = {}
    while message := receive(connection):
        for copy, seed in np.frombuffer(message, ORDER).tolist():
            if copy not in envs:
                seed_globals(seed)
                envs[copy] = make_from(recipe)
            carry_out(envs[copy], arrays, copy, seed)
            _end_copies()
        send(connection, DONE)
    for env in envs.values():
        with contextlib.suppress(Exception):  # it is leaving anyway
            env.close()


def carry_out(env: PythonEnv, arrays: SharedArrays, copy: int, seed: int) -> None:
    """One order: what followed goes into the arrays."""
    if seed == STEP:
        answer = env.step(arrays.action[copy].copy())
        _refuse(answer_fault(answer))
        view, outcome = answer
        _refuse(*outcome_type_faults(outcome, env.spec))
        arrays.reward[copy] = outcome.reward
        arrays.terminated[copy] = outcome.terminated
        arrays.truncated[copy] = outcome.truncated
        arrays.won[copy] = outcome.won
    else:
        seed_globals(seed)
        view = env.reset(seed)
    write_view(view, arrays, copy, env)


def write_view(view: View, arrays: SharedArrays, copy: int, env: PythonEnv) -> None:
    """NaN and infinity pass: the supervisor stops for them. What the arrays cannot hold does not."""
    if not isinstance(view, View):
        _refuse(*view_faults(view, env.spec))
    with np.errstate(over="ignore"):
        for name, value in zip(View._fields, view, strict=True):
            row, value = getattr(arrays, name)[copy], np.asarray(value)
            if value.shape != row.shape or value.dtype.kind not in NUMBERS:
                _refuse(*(fault for fault in view_faults(view, env.spec) if fault.ends_episode))
            if row.dtype.kind in "iu" and value.dtype != row.dtype:
                _refuse(*view_faults(view, env.spec))  # a cast would wrap around
            row[...] = value


def _refuse(*faults: Fault | None) -> None:
    found = [f"{fault.text}{': ' * bool(fault.detail)}{fault.detail}" for fault in faults if fault is not None]
    if found:
        raise EnvError(f"The environment breaks its contract: {'; '.join(found)}. Run `emu check` on it.")


def seed_globals(seed: int) -> None:
    """For environments that draw from the global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
