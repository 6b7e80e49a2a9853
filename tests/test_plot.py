"""Learning curves: which runs are found, how they are put together, and that a picture comes out."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emu.config import to_dict
from emu.errors import EmuError
from emu.presets import preset
from emu.study.plot import aligned, find_runs, plot_curves, read_curve

POINTS = ((0, 0.0), (100, 0.5), (200, 1.0))


def fake_run(folder: Path, algo="qmix", env="gridworld", seed=0, version="1", points=POINTS):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(to_dict(preset(algo, env, seed=seed))))
    (folder / "meta.json").write_text(json.dumps({"env": {"name": env, "version": version}}))
    rows = [{"step": step, "test_win_rate": value, "test_return": 10 * value} for step, value in points]
    rows.insert(1, {"step": 50, "loss": 0.1})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_curves_hold_one_metric(tmp_path):
    curve = read_curve(fake_run(tmp_path / "a"), "test_return")
    assert (curve.label, curve.env, curve.version) == ("qmix", "gridworld", "gridworld 1")
    np.testing.assert_array_equal(curve.steps, [0, 100, 200])
    np.testing.assert_array_equal(curve.values, [0, 5, 10])


def test_seeds_are_compared_as_far_as_all_of_them_got(tmp_path):
    short = read_curve(fake_run(tmp_path / "a", points=((0, 0.0), (100, 1.0))), "test_win_rate")
    long = read_curve(fake_run(tmp_path / "b", points=((0, 0.0), (50, 0.0), (200, 1.0))), "test_win_rate")
    steps, values = aligned([short, long])
    np.testing.assert_array_equal(steps, [0, 50, 100])
    np.testing.assert_allclose(values, [[0, 0.5, 1], [0, 0, 1 / 3]])


def test_runs_are_found_below_a_folder_and_once(tmp_path):
    first, second = fake_run(tmp_path / "x" / "a"), fake_run(tmp_path / "x" / "b")
    assert find_runs([tmp_path, first]) == [first, second]
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmuError, match="No run was found"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(EmuError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_comes_out(tmp_path, suffix):
    runs = [fake_run(tmp_path / f"{algo}{seed}", algo, seed=seed) for algo in ("vdn", "qmix") for seed in range(2)]
    path = plot_curves(runs, tmp_path / "deep" / f"curves.{suffix}")
    assert path.stat().st_size > 5_000
    if suffix == "png":
        assert Image.open(path).size == (1050, 630)


def test_different_environments_are_not_mixed_by_accident(tmp_path):
    runs = [fake_run(tmp_path / "a"), fake_run(tmp_path / "b", version="2")]
    with pytest.raises(EmuError, match="--mix-versions"):
        plot_curves(runs, tmp_path / "x.png")
    assert plot_curves(runs, tmp_path / "x.png", mix_versions=True).exists()


def test_an_unknown_metric_is_refused_with_a_hint(tmp_path):
    with pytest.raises(EmuError, match="Did you mean 'test_return'"):
        plot_curves([fake_run(tmp_path / "a")], tmp_path / "x.png", metric="test_retrun")


def test_an_unknown_kind_of_picture_is_refused(tmp_path):
    with pytest.raises(EmuError, match=r"\.png, \.pdf or \.svg"):
        plot_curves([fake_run(tmp_path / "a")], tmp_path / "x.xyz")
