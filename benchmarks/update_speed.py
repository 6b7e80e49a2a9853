"""Processor time of one update on one core, by algorithm and map; and of this version beside another one.

    python benchmarks/update_speed.py                                  # this version
    python benchmarks/update_speed.py --before ../emu-0.2.0            # in turns with another checkout's
    python benchmarks/update_speed.py --train smac/3m --before …       # whole training instead: steps a second

Batches of 32 episodes are drawn from a replay that random play has filled, so lengths are those of early training. An
update is what the loop does with a batch: the memory's answers, the copy to the device, the compiled program. Rows are
measured in processes of their own, in turns, each on one core, after a first process has left the compiled programs on
disk; processor time, because other work on the machine stretches it less than wall time. Medians are printed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

PLAIN, CURIOUS = {"curiosity.scale": 0.0}, {"curiosity.scale": 0.001}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "qmix": ("qmix", PLAIN),
    "qplex": ("qplex", PLAIN),
    "emu_qplex without curiosity": ("emu_qplex", PLAIN),
    "qplex with curiosity": ("qplex", CURIOUS),
}
HERE = Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class Args:
    """Measure the processor time of an update."""

    maps: tuple[str, ...] = ("smac/5m_vs_6m", "smac/3s5z")
    before: Path | None = None  # another checkout of this repository, to be measured in turns
    repeats: int = 3  # processes of each version
    updates: int = 40  # timed in each process, for every row
    train: tuple[str, ...] = ()  # maps to train on instead, measuring steps per second of processor time
    steps: int = 10_000  # of training that are timed, after as many that are not
    measured: str = ""  # what a process of this program measures for its parent, as JSON


def main(args: Args) -> None:
    if args.measured:
        print(json.dumps(measure(**json.loads(args.measured))))
        return
    out = Console(width=120)
    versions = {"here": HERE} if args.before is None else {"before": args.before.resolve(), "here": HERE}
    training = bool(args.train)
    for name in args.train or args.maps:
        job = {"env": name, "amount": args.steps if training else args.updates, "training": training}
        for folder in versions.values():  # leaves compiled programs behind, and is not counted
            child(folder, job if training else job | {"amount": 1})
        runs: dict[str, list[dict[str, float]]] = {version: [] for version in versions}
        for _ in range(args.repeats):
            for version, folder in versions.items():
                runs[version].append(child(folder, job))
        show(out, name, runs, training)


def child(folder: Path, job: dict[str, Any]) -> dict[str, float]:
    """What a process of its own measures with the package of `folder`."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measured", json.dumps(job)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def show(out: Console, name: str, runs: dict[str, list[dict[str, float]]], training: bool) -> None:
    """A table of the versions, how many times as fast the last is as the first, and each row over QPLEX's."""
    unit = "steps per second of processor time" if training else "ms of processor time an update"
    table = Table("algorithm", *runs, "times as fast", "over qplex", title=f"{name}: {unit}, one core")
    medians = {
        version: {row: statistics.median(run[row] for run in all_) for row in ROWS} for version, all_ in runs.items()
    }
    first, *_, last = (medians[version] for version in (next(iter(runs)), *runs))
    for row in ROWS:
        speed_up, over = first[row] / last[row], last[row] / last["qplex"]
        speed_up, over = (1 / speed_up, 1 / over) if training else (speed_up, over)
        cells = [f"{figures[row]:,.0f}" if training else f"{figures[row]:.1f}" for figures in medians.values()]
        table.add_row(row, *cells, f"{speed_up:.2f}" if len(runs) > 1 else "", f"{over:.2f}")
    out.print(table)


def measure(env: str, amount: int, training: bool) -> dict[str, float]:
    """In a process of its own: the median time of an update in milliseconds, or steps a second, for every row."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from emu.config.presets import preset
    from emu.devices import configure_cpu_devices
    from emu.training.loop import Trainer
    from emu.training.progress import Progress

    configure_cpu_devices(1)
    found = {}
    for row, (algo, overrides) in ROWS.items():
        config = preset(algo, env, **{"steps": 10**9, "tensorboard": False, "devices": 1, **overrides})
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config, Path(folder), Progress(quiet=True))
            found[row] = steps_a_second(trainer, amount) if training else update_time(trainer, amount)
    return found


def update_time(trainer: Any, updates: int) -> float:
    """Milliseconds of an update, the first of each batch length not counted."""
    while len(trainer.replay) < 256:
        trainer.remember(trainer.collect())
    times, seen = [], set()
    while len(times) < updates:
        batches = trainer.draw(1)[0]
        trainer.settle()
        started = time.process_time()
        trainer.update(batches)
        trainer.settle()
        if batches.reward.shape in seen:
            times.append(1e3 * (time.process_time() - started))
        seen.add(batches.reward.shape)
    return statistics.median(times)


def steps_a_second(trainer: Any, steps: int) -> float:
    """Of the whole loop with its evaluations, after as many steps that are not counted."""
    from emu.training.reporting import report

    trainer.open_writer()
    started, begun = 0.0, 0
    for _ in range(2):
        started, begun = time.process_time(), trainer.counters.step
        while trainer.counters.step < begun + steps:
            trainer.remember(trainer.collect())
            trainer.learn()
            trainer.train_embedder()
            report(trainer)
        trainer.settle()
    return (trainer.counters.step - begun) / (time.process_time() - started)


if __name__ == "__main__":
    main(tyro.cli(Args))
