"""Do VDN and QMIX solve the small gridworld?"""

import pytest

from emu.metrics import read_rows
from emu.presets import preset
from emu.train import train
from toys import silent

SETTINGS = {
    "steps": 6_000,
    "tensorboard": False,
    "rollout.epsilon_steps": 4_000,
    "learner.learning_rate": 1e-3,
    "learner.updates_per_call": 4,
    "learner.target_interval": 100,
    "eval.interval": 1_000,
    "eval.episodes": 8,
    "checkpoint.interval": 100_000,
}


@pytest.mark.parametrize("algo", ["vdn", "qmix"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_team_learns_to_arrive_together(tmp_path, algo, seed):
    train(preset(algo, "gridworld/tiny", seed=seed, **SETTINGS), tmp_path / "run", silent())
    wins = [row["test_win_rate"] for row in read_rows(tmp_path / "run") if "test_win_rate" in row]
    assert wins[0] == 0.0 and max(wins[-3:]) == 1.0
