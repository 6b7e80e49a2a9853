"""`emu demo`: EMU beside the QPLEX it builds on, trained within minutes.

A table of how they did, the curves of their test returns (both soon win; the detours they still make cost return),
and a GIF of the best team.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from emu.config import Config
from emu.config.presets import preset
from emu.errors import EmuError
from emu.play.build import recorder
from emu.play.gif import best_of, save_gif
from emu.run.folder import is_run
from emu.run.metrics import read_rows
from emu.run.team import load_team
from emu.study.figures.plot import plot_curves
from emu.training.session import train

ENV = "gridworld/tiny"
ALGOS = ("emu_qplex", "qplex")
SEED = 0
SETTINGS: dict[str, Any] = {"steps": 16_000, "rollout.epsilon_steps": 8_000, "eval.interval": 500}
GIF_EPISODES = 8


class Result(NamedTuple):
    """One trained team."""

    algo: str
    folder: Path
    best: dict[str, float]
    last: dict[str, float]
    seconds: float


def run_demo(out: Path, console: Console | None = None) -> list[Result]:
    """Train every algorithm of `ALGOS` on `ENV`; write curves.png and team.gif into `out`."""
    console = console or Console()
    results = []
    for algo in ALGOS:
        console.rule(f"{algo} on {ENV}")
        results.append(train_one(algo, fresh_folder(out / "runs" / algo)))
    curves = plot_curves([result.folder for result in results], out / "curves.png", metric="test_return")
    gif = render_best(results, out / "team.gif")
    console.print(table_of(results))
    console.print(f"learning curves  {curves}\nthe best team    {gif}", highlight=False)
    return results


def train_one(algo: str, folder: Path) -> Result:
    started = time.perf_counter()
    last = train(demo_config(algo), folder)
    tests = [row for row in read_rows(folder) if "test_return" in row]
    best = max(tests, key=lambda row: (row["test_win_rate"], row["test_return"], -row["step"]))
    return Result(algo, folder, best, last, time.perf_counter() - started)


def demo_config(algo: str) -> Config:
    return preset(algo, ENV, seed=SEED, **SETTINGS)


def fresh_folder(folder: Path) -> Path:
    """Remove what an earlier demo left, and nothing else."""
    if folder.exists():
        if any(folder.iterdir()) and not is_run(folder):
            raise EmuError(f"{folder} is not a run of an earlier demo. Choose another place with `emu demo --out`.")
        shutil.rmtree(folder)
    return folder


def render_best(results: list[Result], path: Path) -> Path:
    """A GIF of the team with the best test."""
    best = max(results, key=lambda result: (result.best["test_win_rate"], result.best["test_return"]))
    team = load_team(best.folder)
    episode = best_of(GIF_EPISODES, recorder(team.env, team.learner, team.policy))
    return save_gif(team.env, episode.frames or [], path)


def table_of(results: list[Result]) -> Table:
    table = Table(title=f"{ENV}, seed {SEED}, {SETTINGS['steps']:,} steps", title_justify="left")
    for name in ("algorithm", "last win rate", "last return", "best return", "at step", "time"):
        table.add_column(name, justify="left" if name == "algorithm" else "right")
    for result in results:
        table.add_row(
            result.algo,
            f"{result.last['test_win_rate']:.2f}",
            f"{result.last['test_return']:.2f}",
            f"{result.best['test_return']:.2f}",
            f"{result.best['step']:,}",
            f"{result.seconds:.0f} s",
        )
    return table
