"""Whether a long run stays as it is: memory, open files, threads and the size of its folder, watched from outside.

    python benchmarks/endurance.py                     # ten minutes
    python benchmarks/endurance.py --minutes 30 --algo qmix --env smac/3m

The run is `emu train` in a process of its own, with a checkpoint every few seconds, a small replay buffer and no end.
It is looked at through /proc (Linux) while it trains, and stopped by SIGTERM, as a cluster would. "Flat" compares the
last third of the time with the third before it: no more files or threads, memory and folder within a few per cent. The
logs (metrics, timing, snapshots) have a row for every interval, so they are counted apart, as bytes a million steps.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import tyro
from rich.console import Console
from rich.table import Table

LOGS = ("metrics.jsonl", "metrics.crc", "timing.jsonl", "snapshots", "tensorboard")
TOLERANCE = {"memory": 0.02, "folder": 0.05, "files": 0.0, "threads": 0.0}
SETTINGS = {
    "rollout.envs": 16,
    "replay.episodes": 500,
    "log-interval": 2_000,
    "eval.interval": 10_000,
    "checkpoint.interval": 5_000,
    "memory.capacity": 20_000,
    "memory.snapshot-interval": 100_000,
}


class Sample(NamedTuple):
    """What a look at the run showed."""

    seconds: float
    step: int
    memory: float  # resident, MB
    files: int  # open file descriptors
    threads: int
    folder: float  # of the run without its logs, MB
    logs: float  # MB


def main(
    minutes: float = 10.0, every: float = 5.0, algo: str = "emu_qplex", env: str = "gridworld/tiny", rows: int = 12
) -> None:
    """Train and watch.

    Args:
        minutes: How long.
        every: Seconds between two looks.
        algo: The algorithm; one with a memory has more that could grow.
        env: The environment.
        rows: How many rows the table has.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
        words = ["train", "--algo", algo, "--env", env, "--run-dir", str(run), "--steps", str(10**9), *options]
        process = subprocess.Popen([sys.executable, "-m", "emu", *words, "--quiet"])
        try:
            samples = watch(process, run, minutes * 60, every)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    print_samples(samples, rows)
    sys.exit(not print_verdict(samples))


def watch(process: subprocess.Popen[bytes], run: Path, seconds: float, every: float) -> list[Sample]:
    """Look until the time is over; the clock starts when the first row of training is there."""
    samples: list[Sample] = []
    begun = None
    while process.poll() is None and (begun is None or time.monotonic() - begun < seconds):
        time.sleep(every if begun else 0.2)
        if begun is None and newest_step(run / "metrics.jsonl") > 0:
            begun = time.monotonic()
        if begun is not None:
            samples.append(look(process.pid, run, time.monotonic() - begun))
    if process.poll() is not None:
        raise SystemExit(f"The run ended by itself, with status {process.returncode}.")
    return samples


def look(pid: int, run: Path, seconds: float) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    logs, rest = 0, 0
    for path in run.rglob("*"):
        try:
            size = path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # an old checkpoint that was just removed
            continue
        if path.relative_to(run).parts[0] in LOGS:
            logs += size
        else:
            rest += size
    return Sample(
        seconds=seconds,
        step=newest_step(run / "metrics.jsonl"),
        memory=int(status["VmRSS"].split()[0]) / 1e3,
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=int(status["Threads"]),
        folder=rest / 1e6,
        logs=logs / 1e6,
    )


def newest_step(path: Path) -> int:
    lines = path.read_bytes()[-10_000:].splitlines() if path.exists() else []
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError):  # half a row
            continue
    return 0


def print_samples(samples: list[Sample], rows: int) -> None:
    table = Table("minutes", "steps", "resident MB", "open files", "threads", "folder MB", "logs MB")
    for number in sorted({round(i * (len(samples) - 1) / max(rows - 1, 1)) for i in range(rows)}):
        s = samples[number]
        shown = f"{s.seconds / 60:.1f}", f"{s.step:,}", f"{s.memory:.0f}", str(s.files), str(s.threads)
        table.add_row(*shown, f"{s.folder:.2f}", f"{s.logs:.2f}")
    Console().print(table)


def print_verdict(samples: list[Sample]) -> bool:
    """Middle third against last third, by medians: a look may fall into the writing of a checkpoint."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    flat = True
    for name, tolerance in TOLERANCE.items():
        before, after = (statistics.median(getattr(s, name) for s in part) for part in (middle, last))
        fine = after <= before * (1 + tolerance)
        flat &= fine
        print(f"{name:8} {before:10.2f} -> {after:10.2f}  {after / before - 1:+.2%}  {'flat' if fine else 'GROWS'}")
    steps = samples[-1].step - samples[0].step
    print(f"logs     {(samples[-1].logs - samples[0].logs) / steps * 1e6:.2f} MB a million steps, {steps:,} steps")
    return flat


if __name__ == "__main__":
    tyro.cli(main)
