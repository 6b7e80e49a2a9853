"""The episodic memory inside the loop: when its embedder is trained, and what a batch of next states is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from emu.config import Config, replace
from emu.envs.spec import EnvSpec
from emu.training.memory import TrainingMemory

SPEC = EnvSpec(
    name="toy",
    version="1",
    n_agents=1,
    n_actions=2,
    obs_dim=2,
    state_dim=2,
    episode_limit=9,
    unit_dim=2,
    has_goal=True,
    return_range=(0, 1),
)


def training_memory(**embedder: Any) -> TrainingMemory:
    settings = {
        "memory.use": "incentive",
        "memory.capacity": 200,
        "memory.radius": 1e-6,
        "memory.embedder.interval": 10,
    }
    settings |= {"memory.embedder.samples": 64, "memory.embedder.batch_size": 16}
    return TrainingMemory(replace(Config(), settings | {f"memory.embedder.{k}": v for k, v in embedder.items()}), SPEC)


def episode(seed: int, steps: int = 9) -> SimpleNamespace:
    rng = np.random.default_rng(seed)
    return SimpleNamespace(state=rng.normal(size=(steps + 1, 2)), reward=rng.normal(size=steps), won=True)


def weights(subject: TrainingMemory) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(subject.state.params)])


def test_the_embedder_waits_for_enough_memories_while_keys_are_normalised_all_the_same() -> None:
    subject = training_memory(min_entries=25)
    before = weights(subject)
    subject.remember([episode(0), episode(1)])
    assert len(subject.memory) == 20
    assert subject.train_if_due(10) == {} and np.array_equal(weights(subject), before)
    np.testing.assert_allclose(subject.memory.export()["key"].std(axis=0), 1, atol=1e-3)
    subject.remember([episode(2)])
    assert subject.train_if_due(19) is None  # the interval is not over
    assert "embedder_loss" in (subject.train_if_due(20) or {})
    assert not np.array_equal(weights(subject), before)


def test_a_skipped_interval_is_not_made_up_for() -> None:
    subject = training_memory(kind="random")
    subject.remember([episode(0)])
    assert subject.train_if_due(35) == {} and subject.trainings == 3
    assert subject.train_if_due(39) is None and subject.train_if_due(40) == {}


def test_a_batch_is_asked_about_its_next_states_and_padding_is_not() -> None:
    subject = training_memory(kind="random")
    lived = episode(0)
    subject.remember([lived])
    states = np.zeros((1, 2, 10, 2), np.float32)
    states[0, 0] = lived.state
    filled = np.zeros((1, 2, 9), bool)
    filled[0, 0, :7] = True
    batch: Any = SimpleNamespace(state=states, time=np.arange(9), filled=filled)
    recall = subject.recall(batch)
    assert recall.found.shape == (1, 2, 9) and recall.found.sum() == 7
    assert recall.found[0, 0, :7].all()
    returns = [sum(0.99**k * r for k, r in enumerate(lived.reward[t:])) for t in range(1, 8)]
    assert recall.best_return[0, 0, :7] == pytest.approx(returns, rel=1e-5)
