"""`emu demo`: EMU beside the QPLEX it builds on, five seeds each, as many at a time as there are cores.

Then a table, who is ahead and how surely, the learning curves, and a GIF of the best team. It is a sweep like any
other: what was finished before is not trained again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from emu.cli.output import say
from emu.cli.study import carry_out
from emu.cli.tables import print_tables
from emu.play.build import best_recorded
from emu.play.gif import save_gif
from emu.run.team import load_team
from emu.study.analysis.runs import Run, load_runs
from emu.study.analysis.scores import run_scores, summarise
from emu.study.analysis.tables import improvement_tables, summary_tables
from emu.study.analysis.verdict import verdict
from emu.study.figures.curves import learning_curves
from emu.study.plan.plans import Plan, grid

ENV = "gridworld/tiny"
ALGOS = ("emu_qplex", "qplex")
SEEDS = range(5)  # the fewest that allow an interval
SETTINGS: dict[str, Any] = {
    "steps": 16_000,
    "rollout.epsilon_steps": 8_000,
    "eval.interval": 500,
    "memory.snapshot_interval": 4_000,  # for the report's memory explorer
}
GIF_EPISODES = 8


def run_demo(out: Path, settings: dict[str, Any] = SETTINGS, seeds: Iterable[int] = SEEDS) -> int:
    """Train every algorithm of `ALGOS` on `ENV`, then show how they did; the exit status."""
    runs = grid([ENV], ALGOS, seeds, {name: [value] for name, value in settings.items()})
    plan = Plan("demo", f"EMU beside QPLEX on {ENV}", "", runs)
    status = carry_out(plan, out, ["emu", "demo", "--out", str(out)])
    if status == 0:
        show(load_runs([out / run.folder for run in plan.runs]), out)
    return status


def show(runs: list[Run], out: Path) -> None:
    """The tables and the verdict; curves.png and team.gif in `out`."""
    print_tables([*summary_tables(runs), *improvement_tables(runs)])
    say(f"\n{verdict(summarise(runs))}\n")
    say(f"learning curves  {learning_curves(runs, out / 'curves.png')}")
    say(f"the best team    {render_best(runs, out / 'team.gif')}")
    say(f"more             emu report {out}")


def render_best(runs: list[Run], path: Path) -> Path:
    """A GIF of the team of the run that did best overall."""
    team = load_team(runs[int(run_scores(runs, "overall").argmax())].folder)
    episode = best_recorded(team.env, team.learner, team.policy, GIF_EPISODES)
    return save_gif(team.env, episode.frames or [], path)
