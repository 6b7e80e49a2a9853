"""A task without a goal: what `won` says decides neither the best team nor what the terminal shows."""

import dataclasses
import io
import json

import jax.numpy as jnp
from rich.console import Console

from emu.config.presets import preset
from emu.run.metrics import read_rows
from emu.training.progress import Progress
from emu.training.session import train
from toys import TINY, Point


@dataclasses.dataclass(frozen=True)
class Contrary(Point):
    """`won` where the return is bad: whoever goes by it keeps the worst team."""

    @property
    def spec(self):
        return dataclasses.replace(super().spec, has_goal=False)

    def step(self, state, action, key):
        state, outcome = super().step(state, action, key)
        return state, outcome._replace(won=jnp.sum(state.place**2) > 1.0)


def test_without_a_goal_the_return_decides(tmp_path):
    changes = {"steps": 400, "eval.interval": 50, "td3.hidden": 8, "rollout.random_steps": 50, "learner.batch_size": 16}
    config = preset("td3", "training.test_goal:Contrary", **{**TINY, "replay.steps": 1_000, **changes})
    text = io.StringIO()
    train(config, tmp_path / "run", Progress(Console(file=text, width=120)))
    tests = [row for row in read_rows(tmp_path / "run") if "test_return" in row]
    assert len({row["test_win_rate"] for row in tests}) > 1  # so that it could mislead
    best = json.loads((tmp_path / "run" / "best" / "summary.json").read_text())
    assert best["test_return"] == max(row["test_return"] for row in tests)
    assert best["test_win_rate"] < max(row["test_win_rate"] for row in tests)
    assert "return" in text.getvalue() and "win " not in text.getvalue()
    assert json.loads((tmp_path / "run" / "meta.json").read_text())["env"]["has_goal"] is False
