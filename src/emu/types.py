"""What flows through the house: episodes, batches of them, and how their time indices line up.

Shape legend, used in every docstring:

    B batch (episodes)   T time steps   N agents   A actions   O observation   S state   D memory key   E environments

Time alignment, written once:

    index            0        1        2      ...     T-1        T
    obs, state     o_0      o_1      o_2             o_T-1      o_T        T+1 entries
    avail          m_0      m_1      m_2             m_T-1      m_T        T+1 entries
    action         a_0      a_1      a_2             a_T-1                 T entries
    reward         r_0      r_1      r_2             r_T-1                 T entries
    terminated      0        0        0                x                   T entries
    truncated       0        0        0                y                   T entries
    log_prob       l_0      l_1      l_2             l_T-1                 T entries, or None

`reward[t]`, `terminated[t]` and `truncated[t]` are what followed `action[t]`, taken in `state[t]`, and led to
`state[t+1]`. `terminated` means the task ended: nothing follows, so nothing is bootstrapped. `truncated` means only
that the clock ran out: the value of `state[t+1]` still counts. They are never folded into one "done".
`log_prob[t]` says how likely `action[t]` was when it was chosen; it is None unless the learner asks for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any  # a numpy or a JAX array; shapes are in the docstrings
PyTree = Any

SEEN = ("obs", "state", "avail")  # fields of an episode with T+1 entries
DONE = ("action", "reward", "terminated", "truncated", "log_prob")  # fields with T entries


class Episode(NamedTuple):
    """One finished episode on the host: written once, never changed, never padded."""

    obs: np.ndarray  # (T+1, N, O) float32
    state: np.ndarray  # (T+1, S) float32
    avail: np.ndarray  # (T+1, N, A) bool
    action: np.ndarray  # (T, N) int32; continuous actions: (T, N, A) float32
    reward: np.ndarray  # (T,) float32; rewards of the agents' own (`EnvSpec.own_rewards`): (T, N)
    terminated: np.ndarray  # (T,) bool
    truncated: np.ndarray  # (T,) bool
    won: np.ndarray  # () bool
    log_prob: np.ndarray | None = None  # (T, N) float32: how likely each agent's action was when it was chosen

    @property
    def length(self) -> int:
        return len(self.reward)

    @property
    def nbytes(self) -> int:
        return sum(field.nbytes for field in self if field is not None)

    def kept(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """The fields of these names that this episode has."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def clipped(episode: Episode, most: float) -> Episode:
    """The episode with rewards cut to ± `most`."""
    return episode._replace(reward=np.clip(episode.reward, -most, most))


def team_rewards(reward: np.ndarray) -> np.ndarray:
    """(T,) rewards of the team, from those or from the agents' own, (T, N)."""
    return reward if reward.ndim == 1 else reward.sum(axis=1, dtype=np.float32)


class Batch(NamedTuple):
    """Episodes side by side, padded with zeros to one length T; `filled` is false on the padding.

    A batch of single steps is the same thing with T = 1: every row shows one step and what followed it, and `time` says
    where in its episode it was.
    """

    obs: Array  # (B, T+1, N, O) float32
    state: Array  # (B, T+1, S) float32
    avail: Array  # (B, T+1, N, A) bool; every action is available on the padding
    action: Array  # (B, T, N) int32; continuous actions: (B, T, N, A) float32
    reward: Array  # (B, T) float32; rewards of the agents' own: (B, T, N)
    terminated: Array  # (B, T) bool
    truncated: Array  # (B, T) bool
    filled: Array  # (B, T) bool
    time: Array  # (B, T) int32: index of each step within its episode
    log_prob: Array | None = None  # (B, T, N) float32


class Outcome(NamedTuple):
    """What an environment answers to one joint action. All scalars, but for rewards of the agents' own."""

    reward: Array  # float32; where every agent has its own, (N,)
    terminated: Array  # bool
    truncated: Array  # bool
    won: Array  # bool: the goal was reached by this very step
