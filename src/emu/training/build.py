"""The memory of a run, where its learner reads from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.config import Config
from emu.envs.spec import EnvSpec
from emu.learners.base import Learner

if TYPE_CHECKING:
    from emu.training.memory import TrainingMemory


def build_memory(config: Config, spec: EnvSpec, learner: Learner) -> TrainingMemory | None:
    """The episodic memory, where any term reads from it; imported only then, for numba takes a while to load."""
    if not learner.needs_memory:
        return None
    from emu.training.memory import TrainingMemory

    return TrainingMemory(config, spec)
