"""Do the mixers learn what they can represent, and fail where the literature says they must?

Exploration stays uniform, so that the fit is to the whole payoff table (the setting in which the failure is proven).
MAPPO, which has no mixer and explores by its policy, is asked to solve the game that all can.
"""

from pathlib import Path

import pytest

from emu.config.presets import preset
from emu.training.session import train
from toys import silent

SETTINGS = {
    "steps": 2_000,
    "tensorboard": False,
    "learner.learning_rate": 2e-3,
    "eval.episodes": 2,
    "eval.interval": 1_000,
}


def learned_return(algo: str, game: str, seed: int, folder: Path) -> float:
    config = preset(algo, f"matrix/{game}", seed=seed, **SETTINGS)
    assert config.rollout.epsilon_end == 1.0
    return train(config, folder, silent())["test_return"]


cases = pytest.mark.parametrize("algo", ["vdn", "qmix"])
seeds = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])


@pytest.mark.parametrize("algo", ["iql", "vdn", "qmix", "qplex", "mappo", "ippo"])
@seeds
def test_a_game_that_can_be_represented_is_solved(tmp_path, algo, seed):
    assert learned_return(algo, "coordination", seed, tmp_path / "run") == 8.0


@cases
@seeds
def test_the_nonmonotonic_game_defeats_monotonic_mixing(tmp_path, algo, seed):
    """8 for the pair (0, 0), but both agents learn to fear action 0 and settle for 0."""
    assert learned_return(algo, "nonmonotonic", seed, tmp_path / "run") == 0.0


@seeds
def test_qplex_solves_the_nonmonotonic_game(tmp_path, seed):
    assert learned_return("qplex", "nonmonotonic", seed, tmp_path / "run") == 8.0
