"""Battles of scripted players, as tests want them."""

from __future__ import annotations

from typing import Any

from emu.play.build import play_scripted
from emu.play.episode import summary_of


def play(env: Any, policy: str, episodes: int, seed: int = 0) -> dict[str, float]:
    """Mean and spread of many battles."""
    return summary_of(play_scripted(env, policy, episodes, seed))


def record(env: Any, policy: str, seed: int = 0) -> list[Any]:
    """The states of one battle, from the reset to the end."""
    frames = play_scripted(env, policy, 1, seed, frames=True)[0].frames
    assert frames is not None
    return frames
