"""The commands `emu study` and `emu sweep`. Importing this stays light: JAX comes with the first command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emu.cli.output import say
from emu.errors import EmuError

if TYPE_CHECKING:
    from emu.study.plan.plans import Plan
    from emu.study.plan.sweep import Launcher, Outcome

OutFolder = Annotated[Path | None, tyro.conf.arg(name="out")]


def study(
    name: Annotated[str, tyro.conf.Positional] = "",
    list_all: Annotated[bool, tyro.conf.arg(name="list")] = False,
    scale: Literal["paper", "laptop"] = "paper",
    out_folder: OutFolder = None,
    workers: int = 0,
    seeds: str = "",
    tasks: tuple[str, ...] = (),
    cluster: str = "",
    measure: bool = False,
) -> int:
    """Run an experiment of the paper, or go on with it; --list shows them all.

    Args:
        name: The study's name.
        list_all: List the studies with their size and their time on this machine.
        scale: paper, or laptop: fewer steps and seeds, an easy map.
        out_folder: Where everything goes (default: results/NAME, at laptop scale results/NAME-laptop).
        workers: Runs at a time on this machine (default: one per core).
        seeds: Other seeds than the study's: 0-5, 3 or 0,2,7-9.
        tasks: Only these tasks of the study; at laptop scale any.
        cluster: Run on a Ray cluster: auto, or an address.
        measure: Only measure how fast this machine trains the study's runs, for --list.
    """
    from emu.study.plan.experiments import plan
    from emu.study.plan.plans import parse_seeds

    if list_all:
        return _list(workers)
    if not name:
        raise EmuError("Which study? `emu study --list` lists them.")
    chosen = plan(name, scale, parse_seeds(seeds) if seeds else None, tasks)
    if measure:
        return _measure(chosen, workers)
    words = [name] + ([] if scale == "paper" else ["--scale", scale])
    words += (["--seeds", seeds] if seeds else []) + (["--tasks", *tasks] if tasks else [])
    out = out_folder or Path("results") / (name if scale == "paper" else f"{name}-{scale}")
    return carry_out(chosen, out, ["emu", "study", *words, "--out", str(out)], workers, cluster)


def sweep(
    algos: tuple[str, ...],
    envs: tuple[str, ...],
    out_folder: Annotated[Path, tyro.conf.arg(name="out")],
    seeds: str = "0",
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    workers: int = 0,
    cluster: str = "",
) -> int:
    """Run all combinations of algorithms, environments, settings and seeds.

    The same command goes on where it was stopped.

    Args:
        algos: Algorithms: `emu algos` lists them.
        envs: Environments: `emu envs` lists them.
        out_folder: Where everything goes.
        seeds: 0-5, 3 or 0,2,7-9.
        settings: key=value or key=value,value: learner.gamma=0.9,0.99
        workers: Runs at a time on this machine (default: one per core).
        cluster: Run on a Ray cluster: auto, or an address.
    """
    from emu.study.plan.plans import Plan, grid, parse_seeds, parse_settings

    runs = grid(envs, algos, parse_seeds(seeds), parse_settings(settings))
    words = ["--algos", *algos, "--envs", *envs, "--seeds", seeds] + (["--set", *settings] if settings else [])
    command = ["emu", "sweep", *words, "--out", str(out_folder)]
    plan = Plan(out_folder.name, f"Sweep {out_folder.name}", "", runs)
    return carry_out(plan, out_folder, command, workers, cluster)


def carry_out(chosen: Plan, out: Path, command: list[str], workers: int = 0, cluster_address: str = "") -> int:
    """Run what is not finished of a plan, and say how it ended; the exit status."""
    from emu.study.plan.sweep import run_plan

    outcome = run_plan(chosen, out, command, _launcher(chosen, out, command, workers, cluster_address))
    if not cluster_address and outcome.finished:
        from emu.study.plan.estimate import remember_runs

        remember_runs(chosen.runs, out)
    return _report(outcome, out, command)


def _launcher(chosen: Plan, out: Path, command: list[str], workers: int, address: str) -> Callable[[], Launcher]:
    from emu.study.plan.sweep import local

    if not address:
        return local(out, chosen.runs, workers, command)
    if workers:
        raise EmuError("--workers is for this machine; on a cluster, Ray starts as many runs as there are cores.")
    from emu.study.plan.cluster import cluster

    return cluster(address, out, chosen.runs, command)


def _report(outcome: Outcome, out: Path, command: Sequence[str]) -> int:
    """Say how it ended; the exit status."""
    console = Console(emoji=False)
    failed, stopped = outcome.failed, outcome.stopped
    text = f"{outcome.finished} runs finished, {outcome.found} were finished before, {len(failed)} failed: {out}"
    say(text)
    for run, why in failed:
        line = f"[red]failed[/] {escape(run.name)}: {escape(why)} ({escape(str(out / run.log))})"
        console.print(line, highlight=False, soft_wrap=True)
    if stopped or failed:
        say(f"The same command goes on with it: {shlex.join(command)}")
    if stopped:
        return 130 if stopped == "SIGINT" else 143
    return 1 if failed else 0


def _measure(chosen: Plan, workers: int) -> int:
    from emu.study.plan import estimate as speed
    from emu.study.plan.sweep import default_workers

    speed.measure(chosen.runs, say)
    workers = workers or default_workers(chosen.runs)
    time = speed.estimate(chosen.runs, workers, speed.known_speeds()).text()
    text = f"{chosen.name} ({chosen.scale}): {len(chosen.runs)} runs in about {time} with {workers} at a time"
    say(text)
    return 0


def _list(workers: int) -> int:
    from emu.study.plan import estimate as speed
    from emu.study.plan.experiments import EXPERIMENTS, SCALES, plan
    from emu.study.plan.sweep import default_workers

    speeds, console = speed.known_speeds(), Console(emoji=False)
    table = Table("study", "scale", box=None)
    for title in ("runs", "steps", "time here"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("what it asks")
    for name, experiment in EXPERIMENTS.items():
        for scale in SCALES:
            runs = plan(name, scale).runs
            size = speed.estimate(runs, workers or default_workers([]), speeds)
            title = experiment.title if scale == "paper" else ""
            head = f"[bold]{name}[/]" if scale == "paper" else ""
            table.add_row(head, scale, str(len(runs)), f"{size.steps / 1e6:,.1f}M", size.text(), escape(title))
    console.print(table)
    console.print(
        "\nTimes are steps over speeds measured on this machine, in `emu study NAME --measure` or in finished studies; "
        f"~: not all measured here, so roughly. {workers or default_workers([])} runs at a time.",
        highlight=False,
    )
    return 0
