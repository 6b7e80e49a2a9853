"""State and observations out of the engine's raw numbers: everyone's place and direction, and the ball's.

    state            agents' xy, agents' directions, opponents' xy, opponents' directions, ball xyz, ball's direction
    observation i    own xy, teammates' xy, own direction, teammates' directions,
                     opponents' xy, opponents' directions, ball xy, ball z, ball's direction

The state is absolute; in an observation the places of others and the ball's are relative to agent i's own. Our keeper
(player 0) is in neither, the opponents' keeper in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from emu.envs.football.scenarios import Scenario


class Pitch(NamedTuple):
    """Where everybody is, and how far they move in a step."""

    agents: np.ndarray  # (n, 2)
    agents_direction: np.ndarray  # (n, 2)
    opponents: np.ndarray  # (k, 2), the keeper first
    opponents_direction: np.ndarray  # (k, 2)
    ball: np.ndarray  # (3,)
    ball_direction: np.ndarray  # (3,)


def read(raw: Mapping[str, Any]) -> Pitch:
    """The engine's observation without our keeper."""
    return Pitch(
        raw["left_team"][1:],
        raw["left_team_direction"][1:],
        raw["right_team"],
        raw["right_team_direction"],
        raw["ball"],
        raw["ball_direction"],
    )


def state_of(pitch: Pitch) -> np.ndarray:
    """(S,) float32"""
    return np.concatenate([part.ravel() for part in pitch], dtype=np.float32)


def observations_of(pitch: Pitch) -> np.ndarray:
    """(n, O) float32, with O = S"""
    n = len(pitch.agents)
    others = np.array([[j for j in range(n) if j != i] for i in range(n)])  # (n, n-1)
    own = pitch.agents[:, None]
    parts = (
        pitch.agents,
        pitch.agents[others] - own,
        pitch.agents_direction,
        pitch.agents_direction[others],
        pitch.opponents - own,
        np.broadcast_to(pitch.opponents_direction, (n, *pitch.opponents.shape)),
        pitch.ball[:2] - pitch.agents,
        np.broadcast_to(pitch.ball[2:], (n, 1)),
        np.broadcast_to(pitch.ball_direction, (n, 3)),
    )
    return np.concatenate([part.reshape(n, -1) for part in parts], axis=1, dtype=np.float32)


def pitch_of(states: np.ndarray, scenario: Scenario) -> Pitch:
    """The inverse of `state_of`, for (..., S) states at once."""
    n, k = scenario.n_agents, scenario.n_opponents
    ends = np.cumsum([2 * n, 2 * n, 2 * k, 2 * k, 3])
    parts = np.split(np.asarray(states, np.float32), ends, axis=-1)
    players = [part.reshape(*part.shape[:-1], -1, 2) for part in parts[:4]]
    return Pitch(*players, *parts[4:])
