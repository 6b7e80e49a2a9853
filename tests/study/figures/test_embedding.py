"""The picture of a memory's embedding, which needs a trained team and its memory."""

import numpy as np
import pytest

from emu.errors import EmuError
from emu.study.analysis.runs import load_run, load_runs
from emu.study.figures import embedding
from emu.training.session import train
from study.synthetic import write_run
from toys import silent, tiny_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(tiny_config("emu_qplex"), folder, silent())
    return folder


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
