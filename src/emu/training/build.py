"""The memory of a run, where its learner reads from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.config import Config
from emu.envs.spec import EnvSpec
from emu.learners.base import Learner

if TYPE_CHECKING:
    from emu.training.memory import MemoryKeeper


def build_keeper(config: Config, spec: EnvSpec, learner: Learner) -> MemoryKeeper | None:
    """The episodic memory, where any term reads from it; imported only then, for numba takes a while to load."""
    if not learner.needs_memory:
        return None
    from emu.training.memory import MemoryKeeper

    return MemoryKeeper(config, spec)
