"""The absolute metric of a trained team."""

import pytest

from emu.cli.app import main
from emu.study.analysis.absolute import EVALUATION, measure_absolute, read_absolute
from emu.study.analysis.runs import load_run
from emu.training.session import train
from toys import silent, tiny_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(tiny_config("emu_qplex"), folder, silent())
    return folder


def test_the_absolute_metric_is_ten_times_the_episodes_and_repeats(trained, capsys):
    content = measure_absolute(trained)
    assert content["episodes"] == 40 == len(content["win_rate"]) == len(content["return"]) == len(content["length"])
    assert content == read_absolute(trained)
    assert content == measure_absolute(trained)
    tests = [row["step"] for row in load_run(trained).rows if "test_return" in row]
    assert content["step"] in tests and len(tests) < EVALUATION
    assert main(["absolute", str(trained)]) == 0
    assert "measured before" in capsys.readouterr().out
