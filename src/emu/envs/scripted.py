"""Scripted players of Python environments: `emu play` lets them play in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emu.envs.protocols import PythonEnv
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError, did_you_mean
from emu.types import Outcome


def random_action(spec: EnvSpec, avail: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A joint action drawn uniformly from what is available."""
    if spec.action_dim:
        return rng.uniform(-1, 1, (spec.n_agents, spec.action_dim)).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in avail], np.int32)


Player = Callable[[View, np.random.Generator], np.ndarray]


def random(view: View, rng: np.random.Generator) -> np.ndarray:
    """Any available action, all equally likely."""
    return np.where(view.avail, rng.random(view.avail.shape), -1.0).argmax(axis=1).astype(np.int32)


PLAYERS: dict[str, Player] = {"random": random}


def play(env: PythonEnv, policy: str, episodes: int, seed: int = 0) -> dict[str, float]:
    """Mean and standard deviation of length and return, and how often the goal was reached."""
    if episodes < 1:
        raise EnvError(f"--episodes must be at least 1, not {episodes}.")
    lengths, totals, wins = [], [], []
    for number in range(episodes):
        outcomes = [outcome for outcome in _episode(env, policy, (seed, number)) if outcome]
        lengths.append(len(outcomes))
        totals.append(sum(float(outcome.reward) for outcome in outcomes))
        wins.append(any(bool(outcome.won) for outcome in outcomes))
    summary: dict[str, float] = {"episodes": episodes}
    for name, values in (("length", lengths), ("return", totals)):
        summary |= {f"{name}_mean": float(np.mean(values)), f"{name}_std": float(np.std(values))}
    return summary | {"win_rate": float(np.mean(wins))}


def record(env: PythonEnv, policy: str, seed: int = 0) -> list[Any]:
    """The moments of one episode, for drawing."""
    snapshot = snapshots_of(env)
    return [snapshot() for _ in _episode(env, policy, (seed, 0))]


def snapshots_of(env: PythonEnv) -> Callable[[], Any]:
    """What gives the present moment to be drawn."""
    snapshot = getattr(env, "snapshot", None)
    if snapshot is None or not hasattr(env, "draw"):
        raise EnvError(
            f"Environment '{env.spec.name}' cannot be drawn: a Python environment needs `snapshot()` and `draw(state)`."
        )
    return snapshot


def _episode(env: PythonEnv, policy: str, seeds: tuple[int, int]) -> Iterator[Outcome | None]:
    """Nothing when the episode has begun, then what followed each step."""
    if policy not in PLAYERS:
        raise EnvError(f"No scripted player of '{env.spec.name}' is called '{policy}'. {did_you_mean(policy, PLAYERS)}")
    rng = np.random.default_rng(seeds)
    view, over = env.reset(int(rng.integers(2**31))), False
    yield None
    while not over:
        view, outcome = env.step(PLAYERS[policy](view, rng))
        over = bool(outcome.terminated or outcome.truncated)
        yield outcome
