"""Starting the `emu` command as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from toys import TINY

ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "emu", *map(str, words)]


def emu(*words: Any, **environment: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(command(*words), capture_output=True, text=True, env=around(environment), timeout=900)


def start(*words: Any, **environment: Any) -> subprocess.Popen[str]:
    """Start a command and leave it running."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command(*words), **pipes, text=True, env=around(environment))


def around(changes: dict[str, Any]) -> dict[str, str]:
    return ENVIRONMENT | {name: str(value) for name, value in changes.items()}


def tiny_train(folder: Path, algo: str = "qmix", env: str = "gridworld/tiny", **changes: Any) -> list[str]:
    """The words of `emu train` for a run of seconds."""
    words = ["train", "--algo", algo, "--env", env, "--run-dir", str(folder)]
    for name, value in {**TINY, **changes}.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words
