"""Thinned results: every evaluation stays, and the training rows that stay speak for those that went."""

import importlib.util
import json
from pathlib import Path

import pytest

from emu.study.analysis.runs import load_run, load_runs
from emu.study.analysis.scores import summarise
from study.synthetic import make_study

SCRIPT = Path(__file__).parents[2] / "scripts" / "thin_results.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("thin_results", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_that_stays_holds_the_mean_over_the_episodes_it_stands_for(script):
    rows = [{"step": k, "episodes": 10 * k * k, "train_win_rate": k / 4, "loss": 1 / k} for k in (1, 2, 3, 4)]
    rows.insert(2, {"step": 2, "test_return": 1.23456789})
    first, test, last = script.thinned(rows, 2)
    assert test == {"step": 2, "test_return": 1.23456789}
    assert first == {
        "step": 2,
        "episodes": 40,
        "train_win_rate": pytest.approx((10 * 0.25 + 30 * 0.5) / 40),
        "loss": 0.5,
    }
    assert last["train_win_rate"] == pytest.approx((50 * 0.75 + 70 * 1.0) / 120, rel=1e-4)


def test_few_rows_stay_as_they_are(script):
    rows = [{"step": 1, "episodes": 3, "train_win_rate": 0.5}, {"step": 2, "episodes": 5}]
    assert script.thinned(rows) == rows
    assert script.thinned([]) == []


def test_a_study_says_the_same_after_thinning(script, tmp_path):
    folder = make_study(tmp_path, seeds=2, tests=101)
    run = folder / "runs/gridworld/qplex/seed0"
    for name in ("checkpoints", "snapshots"):
        (run / name).mkdir()
        (run / name / "x.npz").write_text("")
    before = summarise(load_runs([folder]))
    script.thin(folder, {run})
    after = summarise(load_runs([folder]))
    for old, new in zip(before, after, strict=True):
        assert (old.label, old.steps, old.best, old.last.value) == (new.label, new.steps, new.best, new.last.value)
        assert old.seeds.tolist() == new.seeds.tolist()
        assert old.training and new.training and new.training.value == pytest.approx(old.training.value, abs=0.02)
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "meta.json", "metrics.jsonl", "snapshots"]
    assert len([row for row in load_run(run).rows if "loss" in row]) == script.ROWS
    assert json.loads((folder / "study.json").read_text())["name"] == "synthetic"
