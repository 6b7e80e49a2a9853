"""A whole run on the real football engine: trained, tested and drawn, as a user would."""

import importlib.util

import pytest
from PIL import Image

from emu.cli.app import main
from emu.run.metrics import read_rows
from emu.training.session import train
from toys import silent, tiny_config

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gfootball_engine") is None, reason="gfootball is not installed: make football"
)


@pytest.mark.slow
def test_emu_on_cds_trains_on_football_and_its_team_can_be_watched(tmp_path, capsys):
    changes = {"steps": 600, "eval.interval": 600, "eval.episodes": 2, "rollout.workers": 2, "env_args": {"limit": 40}}
    train(tiny_config("emu_cds", "football/3_vs_1_with_keeper", **changes), tmp_path / "run", silent())
    rows = read_rows(tmp_path / "run")
    learned = [row for row in rows if "td_loss" in row]
    assert learned and learned[-1]["worker_failures"] == 0 and learned[-1]["memory_size"] > 0
    assert 1 <= rows[-1]["test_length"] <= 40
    assert main(["render", str(tmp_path / "run"), "--tries", "1"]) == 0
    with Image.open(tmp_path / "run" / "team.gif") as gif:
        assert 2 <= gif.n_frames <= 41
    assert f"{tmp_path / 'run' / 'team.gif'}: {gif.n_frames - 1} steps" in capsys.readouterr().out
