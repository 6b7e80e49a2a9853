"""Episodic memory as a library of its own: numpy in, numpy out, no JAX unless `emu.memory.embedders` is imported.

Names are imported when they are first used: a configuration needs the options, not the kernels.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.memory.episodic import EpisodicMemory, Learnt, Recall
    from emu.memory.incentive import (
        elliptical_bonus,
        episodic_control_loss,
        episodic_control_reward,
        episodic_incentive,
    )
    from emu.memory.index import RadiusIndex
    from emu.memory.options import EmbedderOptions, MemoryOptions
    from emu.memory.projection import RandomProjection

__all__ = [
    "EmbedderOptions",
    "EpisodicMemory",
    "Learnt",
    "MemoryOptions",
    "RadiusIndex",
    "RandomProjection",
    "Recall",
    "elliptical_bonus",
    "episodic_control_loss",
    "episodic_control_reward",
    "episodic_incentive",
]

_HOMES = {
    "episodic": ("EpisodicMemory", "Learnt", "Recall"),
    "incentive": ("elliptical_bonus", "episodic_control_loss", "episodic_control_reward", "episodic_incentive"),
    "index": ("RadiusIndex",),
    "options": ("EmbedderOptions", "MemoryOptions"),
    "projection": ("RandomProjection",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
