"""Where a result came from: versions of everything that could change it."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import emu
from emu.envs.spec import EnvSpec

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "numba")


def provenance(spec: EnvSpec) -> dict[str, Any]:
    """Versions of package, libraries and environment, the git commit, the machine, the command."""
    import jax

    return {
        "emu": emu.__version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "env": {"name": spec.name, "version": spec.version, "has_goal": spec.has_goal},
        "devices": [str(device) for device in jax.devices()],
        "machine": f"{platform.system()} {platform.machine()}",
        "command": sys.argv,
    }


def resumption() -> dict[str, Any]:
    """When and by what a run was taken up again."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"time": now, "emu": emu.__version__, "git_commit": git_commit(), "command": sys.argv}


def git_commit() -> str | None:
    """The commit the package runs from, with '+changes' if the tree differs from it; None outside a checkout."""
    where = Path(__file__).parent
    try:
        head = _git(where, "rev-parse", "HEAD")
        return head + ("+changes" if _git(where, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
