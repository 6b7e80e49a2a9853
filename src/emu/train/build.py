"""The pieces of a run that exist only where its learner reads from a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emu.config import Config
from emu.envs.spec import Env, EnvSpec
from emu.learners.base import Learner

if TYPE_CHECKING:
    from emu.train.memory import MemoryKeeper
    from emu.train.snapshots import Photographer


def build_keeper(config: Config, spec: EnvSpec, learner: Learner) -> MemoryKeeper | None:
    """The episodic memory, where any term reads from it; imported only then, for numba takes a while to load."""
    if not learner.needs_memory:
        return None
    from emu.train.memory import MemoryKeeper

    return MemoryKeeper(config, spec)


def build_photographer(
    keeper: MemoryKeeper | None, run: Path, env: Env, learner: Learner, seed: int
) -> Photographer | None:
    """What takes pictures of the memory, where there is one."""
    if keeper is None:
        return None
    from emu.train.snapshots import Photographer

    return Photographer(run, env, learner, seed)
