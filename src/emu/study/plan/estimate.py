"""How long a study may take on this machine: from speeds that were measured here, or roughly from those of another.

Speeds are kept per kind of run (everything of a configuration that costs time) in a file of the user's cache folder.
They come from `emu study NAME --measure`, which trains each kind for a few seconds, and from every run that a sweep on
this machine finished, which says more: a memory that fills up makes a run slower than its first seconds. Before any of
that, `reference_speed` says what such a run did on one core of the machine that this project was built on.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from emu.config import Config, replace, to_dict
from emu.errors import EmuError
from emu.files import cache_folder, parse_json, replace_json
from emu.run.folder import RunFolder
from emu.run.metrics import read_rows, read_timing
from emu.study.plan import run_one
from emu.study.plan.plans import Planned

SECONDS = 15.0  # of training that one measurement takes, after compiling
PATIENCE = 300.0  # seconds until a run must have done its first updates
REFERENCE = (
    ("gridworld", 900.0),
    ("matrix/", 2_000.0),
    ("smac/", 1_000.0),  # with three agents
    ("football/", 95.0),
    ("gymnasium:", 220.0),
    ("atari/", 60.0),
    ("", 300.0),
)
NEUTRAL: dict[str, Any] = {
    "algo": "",
    "seed": 0,
    "steps": 1,
    "memory.radius": 0.0,
    "memory.embedder.reconstruction_weight": 0.0,
}


class Estimate(NamedTuple):
    """The time of a plan, as far as it is known."""

    steps: int  # of all runs
    seconds: float  # of all runs, shared out among the workers
    known: int  # kinds of runs whose speed was measured here
    kinds: int

    def text(self) -> str:
        """`3 h`, or `~3 h` where some speeds are those of another machine."""
        return f"{'' if self.known == self.kinds else '~'}{about(self.seconds)}"


def about(seconds: float) -> str:
    """A rough length of time."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def kind(config: Config) -> str:
    """What makes two runs equally fast."""
    content = json.dumps(to_dict(replace(config, NEUTRAL)), sort_keys=True)
    return f"{config.env} {hashlib.sha1(content.encode()).hexdigest()[:12]}"


def machine() -> str:
    return f"{platform.node()} {platform.machine()} {os.cpu_count()} cores"


def store() -> Path:
    return cache_folder() / "speed.json"


def known_speeds() -> dict[str, float]:
    """Steps a second by kind, as measured on this machine."""
    try:
        content = parse_json(store().read_bytes())
        return dict(content["speeds"]) if content["machine"] == machine() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def remember(speeds: dict[str, float]) -> None:
    if speeds:
        store().parent.mkdir(parents=True, exist_ok=True)
        replace_json(store(), {"machine": machine(), "speeds": known_speeds() | speeds}, indent=1)


def estimate(runs: Iterable[Planned], workers: int, speeds: dict[str, float]) -> Estimate:
    """Steps over speed, summed and shared out evenly."""
    curves = collections.defaultdict(list)
    for run in runs:
        curves[run.env, run.label].append(run)
    seconds, steps, kinds = 0.0, 0, set()
    for group in curves.values():  # seeds differ in nothing that matters here, and a configuration takes time to make
        config = group[0].config()
        kinds.add(kind(config))
        steps += config.steps * len(group)
        seconds += config.steps * len(group) / (speeds.get(kind(config)) or reference_speed(config))
    return Estimate(steps, seconds / workers, len(kinds & speeds.keys()), len(kinds))


def reference_speed(config: Config) -> float:
    """Steps a second, roughly: what runs of this kind did on one core of a shared server (2.8 GHz, no GPU).

    From the timing of this project's own runs with QMIX and QPLEX (docs/results.md). A battle's time grows with the
    number of agents: 3m 1,000, 2s3z 550, 3s5z 170, 8m 150 steps/s.
    """
    speed = next(speed for name, speed in REFERENCE if config.env.startswith(name))
    if config.env.startswith("smac/"):
        speed *= (3 / _agents(config.env)) ** 1.8
    if config.memory.use != "none" and config.replay.unit == "episodes":
        speed *= 0.6 if config.memory.embedder.interval < 5_000 else 0.9
    for scale in (config.curiosity.scale, config.diversity.beta):
        speed *= 0.45 if scale else 1.0
    return speed


def _agents(env: str) -> int:
    """Agents of a battle, as its map's name tells: 3s5z has eight; ten where the name does not."""
    numbers = re.findall(r"\d+", env.partition("/")[2].partition("_vs_")[0])
    return sum(map(int, numbers)) if numbers and "MMM" not in env else 10


def speed_of(folder: Path) -> float:
    """Steps a second of a whole run, compiling left out: time that passed between two evaluations of one process."""
    rows = [[row[name] for name in ("step", "wall", "rollout")] for row in read_timing(folder) if "rollout" in row]
    steps = seconds = 0.0
    for (step, wall, spent), (next_step, next_wall, next_spent) in itertools.pairwise(rows[1:]):  # first: compiling
        if next_step > step and next_spent >= spent:
            steps += next_step - step
            seconds += next_wall - wall
    return steps / seconds if seconds > 0 else 0.0


def remember_runs(runs: Iterable[Planned], out: Path) -> None:
    """Keep the speeds of finished runs of this machine."""
    found = {kind(run.config()): speed_of(out / run.folder) for run in runs}
    remember({key: speed for key, speed in found.items() if speed > 0})


def measure(runs: Iterable[Planned], say: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Train one run of each kind for a few seconds, one after the other, and keep their speeds."""
    curves = {(run.env, run.label): run for run in runs}
    kinds = {kind(run.config()): run for run in curves.values()}
    for key, run in kinds.items():
        speed = measure_one(run, seconds)
        remember({key: speed})
        say(f"{run.env} {run.label}: {speed:,.0f} steps/s at the beginning of training")


def measure_one(run: Planned, seconds: float) -> float:
    config = replace(
        run.config(),
        {"log_interval": 200, "checkpoint.interval": 2**30, "eval.interval": 2**30, "checkpoint.minutes": 0},
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        process = run_one.start(
            run_one.Job(str(folder), to_dict(config), [], ["emu", "study", "--measure"]), folder.with_suffix(".log")
        )
        try:
            points = list(_progress(folder, process.poll, seconds))
        finally:
            process.kill()
            process.wait()
        if len(points) < 2:
            log = folder.with_suffix(".log").read_text("utf-8", errors="replace").strip().splitlines()
            raise EmuError(f"{run.name} could not be measured: {log[-1] if log else 'it never began to learn'}")
    (then, first), (now, last) = points[0], points[-1]
    return (last - first) / (now - then)


def _progress(folder: Path, ended: Callable[[], int | None], seconds: float) -> Iterable[tuple[float, int]]:
    """(time, step) whenever a row is new, from some rows with learning in them on, for so many seconds."""
    began, first, step = time.monotonic(), None, 0
    while ended() is None:
        now = time.monotonic()
        rows = read_rows(folder) if RunFolder(folder).metrics.exists() else []
        learning = [row for row in rows if "td_loss" in row]
        if len(learning) > 3 and learning[-1]["step"] > step:
            first, step = first or now, int(learning[-1]["step"])
            yield now, step
        if now - (first or began) > (seconds if first else PATIENCE):
            return
        time.sleep(0.1)
