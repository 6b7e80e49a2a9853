"""What makes an episode desirable where there is no goal: a fixed return, a quantile of the last ones, the mean H."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from emu.config import Config, replace
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.memory import EpisodicMemory
from emu.memory.desirability import WINDOW, Judge
from emu.training.memory import TrainingMemory

SPEC = EnvSpec("plain", "1", 1, 2, 2, 2, 5, unit_dim=2, has_goal=False, return_range=(0.0, 50.0))


def episode(*rewards: float, won: bool = False, at: float = 0.0) -> SimpleNamespace:
    states = np.full((len(rewards) + 1, 2), at, np.float32) + np.arange(len(rewards) + 1)[:, None]
    return SimpleNamespace(state=states.astype(np.float32), reward=np.array(rewards, np.float32), won=won)


def test_a_goal_decides_alone_and_a_threshold_counts_the_undiscounted_return() -> None:
    goal, threshold = Judge(), Judge(threshold=3.0)
    assert goal(episode(0, 0, won=True)) and not goal(episode(50, 50))
    assert threshold(episode(1, 2)) and not threshold(episode(1, 1.9, won=True))


def test_a_quantile_is_of_the_returns_before_the_episode() -> None:
    judge = Judge(quantile=0.5)
    # medians before each: none, 4, 3 (of 4 2), 4 (of 4 2 9), 6.5 (of 4 2 9 9)
    assert [judge(episode(r)) for r in (4, 2, 9, 9, 6)] == [False, False, True, True, False]
    assert judge.current() == 6  # of 4 2 9 9 6


def test_a_quantile_follows_the_last_returns_only() -> None:
    judge = Judge(quantile=1.0)
    judge(episode(100))
    for _ in range(WINDOW - 1):
        judge(episode(1))
    assert judge.current() == 100 and not judge(episode(50))
    assert judge.current() == 50 and judge(episode(50))  # the 100 has left the window


def test_quantiles_outside_0_and_1_and_two_judges_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Judge(quantile=1.5)
    with pytest.raises(ConfigError, match="give one of them"):
        EpisodicMemory(state_dim=2, return_threshold=1.0, return_quantile=0.5)
    with pytest.raises(ConfigError, match="excludes"):
        replace(Config(), {"memory.return_quantile": 0.5, "memory.return_threshold": 2.0})


def test_the_returns_survive_saving(tmp_path: Path) -> None:
    memory = EpisodicMemory(state_dim=2, key_dim=1, capacity=50, return_quantile=0.75)
    memory.update([episode(1, at=10), episode(5, at=20), episode(3, at=30)])
    memory.save(tmp_path / "memory")
    again = EpisodicMemory.open(tmp_path / "memory")
    assert again.judge.current() == memory.judge.current() == 4  # of 1 3 5
    for subject in (memory, again):
        subject.update([episode(4, at=40)])
    assert again.export()["desirable"].tolist() == memory.export()["desirable"].tolist()
    assert again.export()["desirable"][-1]


def training_memory(**memory: object) -> TrainingMemory:
    changes = {f"memory.{name}": value for name, value in memory.items()}
    base = {"memory.use": "incentive", "memory.embedder.kind": "random", "memory.embedder.interval": 10}
    return TrainingMemory(replace(Config(), base | {"memory.capacity": 100, "learner.gamma": 1.0} | changes), SPEC)


def test_the_training_memory_rejudges_at_every_interval_and_says_the_threshold() -> None:
    subject = training_memory(rejudge=True, radius=1e-6)
    subject.remember([episode(1, at=10), episode(5, at=20)])  # H of the entries: 0 1 0 5, mean 1.5
    assert not subject.memory.export()["desirable"].any()
    subject.train_if_due(9)
    assert not subject.memory.export()["desirable"].any()
    subject.train_if_due(10)
    assert subject.memory.export()["desirable"].tolist() == [False, False, False, True]
    assert "memory_return_threshold" not in subject.stats()
    assert training_memory(return_threshold=7.0).stats()["memory_return_threshold"] == 7.0


def test_without_a_goal_something_must_say_what_is_desirable() -> None:
    with pytest.raises(ConfigError, match=r"return_quantile or memory\.rejudge"):
        training_memory()
