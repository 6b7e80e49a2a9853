"""DQN, with and without the memory, learns small tasks of one agent."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from emu.config.presets import preset
from emu.envs import EnvSpec
from emu.training.session import train
from emu.types import Outcome
from toys import silent


class Place(NamedTuple):
    cell: Any
    time: Any


@dataclasses.dataclass(frozen=True)
class Corridor:
    """Nine cells; the left end pays 0.2 and is nearer than the right end, which pays 1 and is the goal."""

    cells: int = 9
    limit: int = 20

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("corridor", "1", 1, 2, self.cells, self.cells, self.limit, 0, True, (0.0, 1.0))

    def reset(self, key: Any) -> Place:
        return Place(jax.random.randint(key, (), 2, 5), jnp.int32(0))

    def step(self, place: Place, action: Any, key: Any) -> tuple[Place, Outcome]:
        cell, time = place.cell + 2 * action[0] - 1, place.time + 1
        left, right = cell == 0, cell == self.cells - 1
        reward = jnp.where(right, 1.0, jnp.where(left, 0.2, 0.0)).astype(jnp.float32)
        return Place(cell, time), Outcome(reward, left | right, (time >= self.limit) & ~(left | right), right)

    def observe(self, place: Place) -> Any:
        return jax.nn.one_hot(place.cell, self.cells)[None]

    def avail(self, place: Place) -> Any:
        return jnp.ones((1, 2), bool)

    def state(self, place: Place) -> Any:
        return jax.nn.one_hot(place.cell, self.cells)


SMALL = {
    "steps": 6_000,
    "tensorboard": False,
    "devices": 1,
    "log_interval": 1_000,
    "dqn.hidden": 32,
    "learner.gamma": 0.95,
    "learner.learning_rate": 2e-3,
    "dqn.target_interval": 50,
    "learner.updates_per_call": 8,
    "replay.steps": 5_000,
    "rollout.random_steps": 500,
    "rollout.epsilon_steps": 2_000,
    "memory.capacity": 2_000,
    "memory.embedder.interval": 1_000,
    "memory.embedder.samples": 1_024,
    "memory.embedder.batch_size": 64,
    "eval.interval": 2_000,
    "eval.episodes": 8,
}


@pytest.mark.parametrize("algo", ["dqn", "emu_dqn"])
def test_the_far_end_is_preferred_to_the_near_one(tmp_path, algo):
    result = train(preset(algo, f"{__name__}:Corridor", **SMALL), tmp_path / "run", silent())
    assert result["test_win_rate"] == 1.0 and result["test_return"] == 1.0


@pytest.mark.slow
def test_a_pole_is_balanced(tmp_path):
    """CartPole-v1 through Gymnasium, seed 0: random play lasts about 20 steps."""
    pytest.importorskip("gymnasium")
    changes = {
        "steps": 60_000,
        "devices": 1,
        "tensorboard": False,
        "dqn.hidden": 64,
        "learner.learning_rate": 1e-3,
        "dqn.target_interval": 250,
        "learner.updates_per_step": 0.5,
        "learner.updates_per_call": 8,
        "learner.batch_size": 64,
        "replay.steps": 50_000,
        "rollout.envs": 4,
        "rollout.epsilon_steps": 15_000,
        "eval.episodes": 10,
        "eval.interval": 5_000,
    }
    train(preset("dqn", "gymnasium:CartPole-v1", **changes), tmp_path / "run", silent())
    from emu.run.metrics import read_rows

    returns = [row["test_return"] for row in read_rows(tmp_path / "run") if "test_return" in row]
    assert returns[0] < 60 and max(returns) > 180
