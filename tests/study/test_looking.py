"""The commands that look at runs, and what needs a trained team and its memory."""

import json

import numpy as np
import pytest

from emu.cli.app import main
from emu.errors import EmuError
from emu.study.analysis.absolute import TEST_NUMBER, measure_absolute, read_absolute
from emu.study.analysis.runs import load_run, load_runs
from emu.study.figures import embedding
from emu.train.session import train
from study.synthetic import make_study, write_run
from toys import silent, tiny_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(tiny_config("emu_qplex"), folder, silent())
    return folder


def test_plot_table_and_export_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = str(make_study(tmp_path / "study", seeds=2))
    assert main(["plot", folder]) == 0
    assert (tmp_path / "curves.png").exists()
    assert main(["plot", folder, "--kind", "improvement", "--measure", "last", "--out", "x.pdf"]) == 0
    assert (tmp_path / "x.pdf").exists()
    capsys.readouterr()
    assert main(["table", folder, "--out", "tables"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("**Summary (laptop scale)**") and shown == (tmp_path / "tables" / "summary.md").read_text()
    assert main(["export", folder, "out.json"]) == 0
    assert list(json.loads((tmp_path / "out.json").read_text())) == ["gridworld"]


def test_what_is_refused_ends_with_status_two(tmp_path, capsys):
    folder = str(make_study(tmp_path / "study", seeds=1, memory=False))
    assert main(["plot", folder, "--kind", "recall", "--out", str(tmp_path / "x.png")]) == 2
    assert "logged a memory" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "nowhere")]) == 2
    assert main(["plot"]) == 2
    assert "Name a run's folder" in capsys.readouterr().err
    assert main(["absolute", folder]) == 2  # runs without a trained team
    assert "no trained team" in capsys.readouterr().err


def test_the_absolute_metric_is_ten_times_the_episodes_and_repeats(trained, capsys):
    content = measure_absolute(trained)
    assert content["episodes"] == 40 == len(content["win_rate"]) == len(content["return"]) == len(content["length"])
    assert content == read_absolute(trained)
    assert content == measure_absolute(trained)
    tests = [row["step"] for row in load_run(trained).rows if "test_return" in row]
    assert content["step"] in tests and len(tests) < TEST_NUMBER
    assert main(["absolute", str(trained)]) == 0
    assert "measured before" in capsys.readouterr().out


def test_the_memory_is_read_from_the_newest_checkpoint_with_its_embedder(trained):
    config = load_run(trained).config
    keeper, step = embedding.load_memory(trained, config)
    assert step >= 400 and len(keeper.memory) > 10
    table = keeper.memory.export()
    states, times = keeper.memory.states(np.arange(len(keeper.memory))), table["t"]
    np.testing.assert_allclose(keeper.embedder.encode(keeper.state, states, times), table["embedding"], atol=1e-5)


def test_entries_and_episodes_are_laid_out_together(trained):
    before = sorted(path.name for path in trained.rglob("*"))
    cloud = embedding.cloud_of(load_run(trained), layout=lambda x: x[:, :2], samples=20)
    keeper, _ = embedding.load_memory(trained, load_run(trained).config)
    table = keeper.memory.export()
    assert cloud.points.shape == (20, 2) and cloud.size == len(keeper.memory)
    known = {(*row[:2].tolist(), value) for row, value in zip(table["embedding"], table["best_return"], strict=True)}
    assert {(*point.tolist(), value) for point, value in zip(cloud.points, cloud.returns, strict=True)} <= known
    assert 1 <= len(cloud.paths) <= 2
    for path in cloud.paths:
        assert len(path.points) == len(path.desirable) >= 2
    assert sorted(path.name for path in trained.rglob("*")) == before


def test_the_embedding_is_drawn(trained, tmp_path):
    pytest.importorskip("openTSNE")
    out = embedding.embeddings(load_runs([trained]), tmp_path / "x.png")
    assert out.stat().st_size > 10_000


def test_tsne_repeats_and_keeps_two_clusters_apart():
    pytest.importorskip("openTSNE")
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(40, 4)), rng.normal(size=(40, 4)) + 30])
    first = embedding.tsne(points)
    np.testing.assert_array_equal(first, embedding.tsne(points))
    distance = np.linalg.norm(first[:, None] - first[None], axis=-1) + np.diag(np.full(80, np.inf))
    assert ((distance.argmin(axis=1) < 40) == (np.arange(80) < 40)).all()


def test_runs_without_a_memory_or_a_checkpoint_cannot_be_drawn(tmp_path):
    plain, bare = write_run(tmp_path / "a", "qmix"), write_run(tmp_path / "b", "emu_qplex")
    with pytest.raises(EmuError, match="qmix keeps none"):
        embedding.cloud_of(load_run(plain))
    with pytest.raises(EmuError, match="no checkpoint"):
        embedding.cloud_of(load_run(bare))
    with pytest.raises(EmuError, match="too many for one figure"):
        embedding.embeddings([load_run(bare)] * 5, tmp_path / "x.png")
