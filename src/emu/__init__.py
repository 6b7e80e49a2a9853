"""EMU: cooperative multi-agent reinforcement learning with episodic memory.

    run = emu.train("emu_qplex", "smac/3m", steps=150_000, seed=1)
    team = emu.load(run)
    emu.evaluate(team, episodes=320)

Importing `emu` stays light: JAX comes with the first name that needs it, and `emu.memory` is usable from any trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.api import Callback, Run, Team, evaluate, export_team, load, make_env, resume, train

__version__ = "0.2.0"

__all__ = [
    "Callback",
    "Run",
    "Team",
    "__version__",
    "evaluate",
    "export_team",
    "load",
    "make_env",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """The API is imported when something of it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'emu' has no attribute {name!r}")
    from emu import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
