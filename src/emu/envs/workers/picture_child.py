"""What runs in the process of an environment that is drawn: method calls come in, what they gave goes out.

    python -m emu.envs.workers.picture_child SOCKET        an inherited file descriptor

As `child`, but with one environment, and answers of any size.
"""

from __future__ import annotations

import json
import pickle
import socket
import sys
import threading
import traceback

from emu.envs.protocols import Recipe
from emu.envs.registry import make_from
from emu.envs.workers.child import end_with_supervisor, seed_globals
from emu.envs.workers.shared_arrays import DONE, RAISED, receive, send
from emu.errors import EmuError


def main(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=end_with_supervisor, args=(descriptor,), daemon=True).start()
    try:
        serve(connection)
    except EOFError:
        pass  # the supervisor is gone
    except BaseException as error:
        text = str(error) if isinstance(error, EmuError) else traceback.format_exc()
        send(connection, RAISED + text.encode())
        raise


def serve(connection: socket.socket) -> None:
    task = json.loads(receive(connection))
    sys.path[:] = task["path"]
    env = make_from(Recipe(*task["recipe"]))
    while message := receive(connection):
        method, arguments = pickle.loads(message)
        if method == "reset":
            seed_globals(*arguments)
        send(connection, DONE + pickle.dumps(getattr(env, method)(*arguments)))
    env.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
