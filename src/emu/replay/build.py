"""Which replay a configuration asks for."""

from __future__ import annotations

from emu.config import Config
from emu.envs.spec import EnvSpec
from emu.replay.episodes import Replay
from emu.replay.steps import Transitions


def build_replay(config: Config, spec: EnvSpec, shares: int = 1) -> Replay | Transitions:
    """What keeps episodes for learning, and draws batches of what the learner learns from, on so many devices."""
    kept, max_bytes = config.replay, int(config.replay.gigabytes * 1e9)
    if kept.unit == "steps":
        return Transitions(spec, kept.steps, max_bytes)
    return Replay(spec, kept.episodes, max_bytes, config.learner.length_buckets, shares)
