"""What a memory takes as an episode: any object or mapping with `state`, `reward` and `won`, checked field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from emu.errors import EmuError

LARGEST_REWARD = 1e30  # returns are kept as float32, which ends at 3e38


class EpisodeLike(Protocol):
    """What `EpisodicMemory.update` needs of an episode."""

    @property
    def state(self) -> Any: ...  # (T+1, S)
    @property
    def reward(self) -> Any: ...  # (T,) or (T, 1)
    @property
    def won(self) -> Any: ...  # whether the goal was reached; not needed where a return decides


class Finished(NamedTuple):
    """An episode, checked."""

    state: np.ndarray  # (T+1, S) float32
    reward: np.ndarray  # (T,) float64
    won: bool | None  # None: not said


def finished(episodes: Any, state_dim: int) -> list[Finished]:
    """One episode, or several, as plain arrays."""
    if isinstance(episodes, Mapping) or hasattr(episodes, "reward"):
        return [_checked(episodes, state_dim, "the episode")]
    if not isinstance(episodes, Iterable):
        raise EmuError(f"update takes an episode or a list of episodes, got {type(episodes).__name__}")
    return [_checked(episode, state_dim, f"episode {number}") for number, episode in enumerate(episodes)]


def _checked(episode: Any, state_dim: int, name: str) -> Finished:
    state, reward, won = (_field(episode, field) for field in ("state", "reward", "won"))
    if state is None or reward is None:
        raise EmuError(
            f"{name} needs state (T+1, S), reward (T,) and won, as attributes or keys; "
            f"{'state' if state is None else 'reward'} is missing"
        )
    states, rewards = _numbers(state, np.float32, f"{name}: state"), _numbers(reward, np.float64, f"{name}: reward")
    if rewards.ndim == 2 and rewards.shape[1] == 1:
        rewards = rewards[:, 0]
    if states.ndim != 2 or states.shape[1] != state_dim:
        raise EmuError(f"{name}: state must have shape (T+1, {state_dim}), got {states.shape}")
    if rewards.ndim != 1:
        raise EmuError(f"{name}: reward must have shape (T,), one for the whole team, got {rewards.shape}")
    if len(states) != len(rewards) + 1:
        raise EmuError(
            f"{name}: {len(rewards)} rewards need {len(rewards) + 1} states (one more: where it ended), "
            f"got {len(states)}"
        )
    if not (rewards.dot(rewards) <= LARGEST_REWARD**2 or np.all(np.abs(rewards) <= LARGEST_REWARD)):
        raise EmuError(f"{name}: rewards must be finite and within ±{LARGEST_REWARD:g}")
    return Finished(states, rewards, _flag(won, name))


def _field(episode: Any, name: str) -> Any:
    return episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)


def _numbers(values: Any, dtype: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError) as error:
        raise EmuError(f"{name} must be an array of numbers: {error}") from error


def _flag(won: Any, name: str) -> Any:
    if won is None or isinstance(won, bool | np.bool_):
        return won
    flag = np.asarray(won)
    if flag.size != 1:
        raise EmuError(f"{name}: won must be one flag for the episode, got shape {flag.shape}")
    return bool(flag.reshape(()))
