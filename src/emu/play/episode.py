"""Episodes that nobody learns from: evaluations, snapshots, GIFs, figures, scripted players.

However an episode is played, it comes out as one `PlayedEpisode`. Whoever plays greedy episodes with a learner is an
`Evaluator`, one for each kind of environment:

    compiled.CompiledEvaluator     many copies in one compiled loop
    episode.InProcessEvaluator     a Python environment in this process, one episode after the other
    workers.WorkerEvaluator        Python environments in worker processes
    batched.BatchedEvaluator       an environment that steps many copies at once

Which episodes are played is said by `emu.seeds.EpisodeSeeds`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.protocols import PythonEnv
from emu.envs.spec import View
from emu.envs.stepping import Act, episode_steps
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.play.slots import require_limit
from emu.seeds import EpisodeSeeds, evaluation_episodes
from emu.types import PyTree, team_rewards


class PlayedEpisode(NamedTuple):
    """One whole episode, as those who only look on need it."""

    reward: np.ndarray  # (T,) float32
    total: float  # the undiscounted return
    won: bool
    states: np.ndarray | None = None  # (T+1, S) float32 state vectors, where they were asked for
    frames: list[Any] | None = None  # T+1 times what the environment's `draw` takes, where they were asked for
    final: dict[str, float] | None = None  # what `final_counts` says of the last state, where the environment has it

    @property
    def length(self) -> int:
        return len(self.reward)


class Evaluation(NamedTuple):
    """One entry per episode."""

    total: np.ndarray  # float32: undiscounted return
    won: np.ndarray
    length: np.ndarray
    replaced_seeds: int = 0  # episodes whose own seed the environment could not play

    @classmethod
    def of(cls, episodes: Sequence[PlayedEpisode], replaced_seeds: int = 0) -> Evaluation:
        total = np.array([episode.total for episode in episodes], np.float32)
        won = np.array([episode.won for episode in episodes], bool)
        return cls(total, won, np.array([episode.length for episode in episodes], np.int32), replaced_seeds)

    def summary(self) -> dict[str, float]:
        """For the metrics; replaced seeds are an exception, and appear only then."""
        replaced = {"test_replaced_seeds": self.replaced_seeds} if self.replaced_seeds else {}
        return {
            "test_win_rate": float(self.won.mean()),
            "test_return": float(self.total.mean(dtype=np.float64)),
            "test_return_std": float(self.total.std(dtype=np.float64)),
            "test_length": float(self.length.mean()),
            **replaced,
        }


class Evaluator(abc.ABC):
    """Plays greedy episodes with a learner in one kind of environment."""

    episodes: int  # of an evaluation
    replaced_seeds = 0  # so far: episodes whose own seed the environment could not play

    @abc.abstractmethod
    def play(self, policy: PyTree, seeds: EpisodeSeeds, states: bool = False) -> list[PlayedEpisode]:
        """A greedy episode for each of the seeds, in their order; with `states`, also the state vectors."""

    def evaluate(self, policy: PyTree, seed: int, number: int) -> Evaluation:
        """The `number`-th evaluation of a run: its episodes depend on nothing but the seed and this number."""
        before = self.replaced_seeds
        episodes = self.play(policy, evaluation_episodes(seed, number, self.episodes))
        return Evaluation.of(episodes, self.replaced_seeds - before)


class InProcessEvaluator(Evaluator):
    """A Python environment in this process, where what it draws can be reached."""

    def __init__(self, env: PythonEnv, learner: Learner, episodes: int = 1) -> None:
        self.env, self.learner, self.episodes = env, learner, episodes
        self._act = jax.jit(learner.act)

    def play(
        self, policy: PyTree, seeds: EpisodeSeeds, states: bool = False, frames: bool = False
    ) -> list[PlayedEpisode]:
        return [play_one(self.env, self._greedy(policy, seed), seed, states, frames) for seed in seeds.numbers()]

    def _greedy(self, policy: PyTree, seed: int) -> Act:
        """Acts through one episode; what it has seen of it so far is kept in `carry`."""
        carry, key = self.learner.initial_carry(1), jax.random.PRNGKey(seed)

        def act(view: View) -> np.ndarray:
            nonlocal carry, key
            key, now = jax.random.split(key)
            action, carry = self._act(policy, carry, view.obs[None], view.avail[None], jnp.float32(0), now)
            return np.asarray(action[0])

        return act


def play_one(env: PythonEnv, act: Act, seed: int, states: bool = False, frames: bool = False) -> PlayedEpisode:
    """One episode of a Python environment in this process."""
    snapshot = snapshots_of(env) if frames else None
    shown: list[np.ndarray] = []
    drawn: list[Any] = []
    outcomes = []
    for view, outcome in episode_steps(env, act, seed):
        if outcome is not None:
            outcomes.append(outcome)
            if not (outcome.terminated or outcome.truncated):
                require_limit(env.spec, len(outcomes) + 1)
        if states:
            shown.append(np.array(view.state, np.float32))
        if snapshot:
            drawn.append(snapshot())
    return PlayedEpisode(
        reward=team_rewards(np.array([outcome.reward for outcome in outcomes], np.float32)),
        total=sum(float(np.sum(outcome.reward)) for outcome in outcomes),
        won=any(bool(outcome.won) for outcome in outcomes),
        states=np.stack(shown) if states else None,
        frames=drawn if snapshot else None,
    )


def snapshots_of(env: PythonEnv) -> Callable[[], Any]:
    """What gives the present moment to be drawn."""
    snapshot = getattr(env, "snapshot", None)
    if snapshot is None or not hasattr(env, "draw"):
        raise EnvError(
            f"Environment '{env.spec.name}' cannot be drawn: a Python environment needs `snapshot()` and `draw(state)`."
        )
    return snapshot


def summary_of(episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
    """Mean and standard deviation of length, return and what the last states tell; how often the goal was reached."""
    columns: dict[str, list[float]] = {
        "length": [episode.length for episode in episodes],
        "return": [episode.total for episode in episodes],
    }
    for name in episodes[0].final or {}:
        columns[name] = [(episode.final or {})[name] for episode in episodes]
    summary: dict[str, float] = {"episodes": len(episodes)}
    for name, values in columns.items():
        summary |= {f"{name}_mean": float(np.mean(values)), f"{name}_std": float(np.std(values))}
    return summary | {"win_rate": float(np.mean([episode.won for episode in episodes]))}
