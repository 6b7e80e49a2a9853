"""Episodic memory as a library of its own: numpy in, numpy out, no JAX unless `emu.memory.embedders` is imported."""

from emu.memory.episodic import EpisodicMemory, Learnt, MemoryOptions, Recall
from emu.memory.incentive import (
    elliptical_bonus,
    episodic_control_loss,
    episodic_control_reward,
    episodic_incentive,
)
from emu.memory.index import RadiusIndex
from emu.memory.projection import RandomProjection

__all__ = [
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
