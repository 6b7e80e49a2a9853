"""Kills, signals, damaged files and full disks: what a run leaves must go on as if nothing had happened.

    python benchmarks/crash_test.py crashes/                      all of it: 200 kills, 40 signals, 80 files, 15 disks
    python benchmarks/crash_test.py crashes/ --kills 20 --signals 0 --files 10 --disks 0

Every trial ends by resuming the run to its last step; its `metrics.jsonl` must then hold the bytes of a run that nobody
disturbed, and `best/` the same parameters. Trials that are done are kept in `results.jsonl`, so the same command goes
on where it was stopped. Prints a table; exits with 1 if anything was lost. The full disks need a file system of their
own: as root a small tmpfs is mounted (otherwise: `unshare -rm python benchmarks/crash_test.py ...`).

Outcomes: `identical`; `said`: episodes of the replay were beyond repair, the run said so and went on without them;
`refused`: nothing was touched, and with the file put back the run ended identical; `FAILED`.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ALGOS = ("qmix", "emu_qmix")
SETTINGS = (
    "--env gridworld/tiny --steps 4000 --log-interval 40 --eval.interval 200 --eval.episodes 4 --rollout.envs 4 "
    "--replay.episodes 32 --learner.batch-size 4 --agent.hidden 8 --rollout.epsilon-steps 2000 --devices 1 "
    "--no-tensorboard --checkpoint.minutes 0"
)
MEMORY = (
    "--memory.capacity 1000 --memory.embedder.interval 300 --memory.embedder.samples 64 --memory.embedder.batch-size 32"
)
OFTEN, NEVER = "--checkpoint.interval 90", "--checkpoint.interval 1000000000"
KILLS_A_RUN, ROWS_A_LIFE = 8, 24
PATIENCE = 3600.0  # seconds that anything may take, on a busy machine too
STATUS = {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129, "a closed pipe": 141}
DAMAGES = ("one bit", "a block", "cut", "empty", "gone")


class Trial(NamedTuple):
    """What became of one disturbed run."""

    kind: str
    number: int
    what: str
    outcome: str  # identical, said, refused, FAILED
    times: int = 1  # disturbances
    detail: str = ""


class Failed(Exception):
    """A promise was broken."""


class Bench:
    """The folder of the trials, the undisturbed runs, and the results so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(folder.absolute() / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.environment = {**os.environ, **cache, "JAX_PLATFORMS": "cpu", "COLUMNS": "200", "NO_COLOR": "1"}
        self.results = folder / "results.jsonl"
        self.done = {(trial.kind, trial.number): trial for trial in self._read()}
        self.started: list[subprocess.Popen[bytes]] = []  # by the trial under way
        self.starting = 3.0  # seconds from a start to the first row, as last seen

    def _read(self) -> list[Trial]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return [Trial(**json.loads(line)) for line in lines]

    def trial(self, kind: str, number: int, go: Callable[[random.Random, Path], tuple[str, str, int, str]]) -> Trial:
        """Carry out one trial, unless it was; its folder is removed unless it failed."""
        if (kind, number) in self.done:
            return self.done[kind, number]
        folder = self.folder / f"{kind} {number} [it's; a] run"  # brackets, quotes, spaces: a hostile path
        shutil.rmtree(folder, ignore_errors=True)
        try:
            made = Trial(kind, number, *go(random.Random(f"{self.seed} {kind} {number}"), folder))
            shutil.rmtree(folder, ignore_errors=True)
        except Failed as error:
            made = Trial(kind, number, "", "FAILED", 1, str(error))
        finally:
            for process in self.started:  # nothing goes on that nobody watches
                process.kill()
                process.wait()
            self.started = []
        with self.results.open("a") as file:
            file.write(json.dumps(made._asdict()) + "\n")
        self.done[kind, number] = made
        print(f"{kind} {number}: {made.what} {made.outcome} {made.detail}", flush=True)
        return made

    # Processes

    def start(self, *words: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "emu", *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)
        self.started.append(process)
        return process

    def train(self, folder: Path, algo: str, saves: str) -> subprocess.Popen[bytes]:
        memory = MEMORY.split() if algo.startswith("emu") else []
        return self.start("train", "--algo", algo, *SETTINGS.split(), *memory, *saves.split(), "--run-dir", folder)

    def begin(self, folder: Path, algo: str, saves: str) -> subprocess.Popen[bytes]:
        """Train, or go on with what an earlier process left."""
        return self.start("resume", folder) if (folder / "config.json").exists() else self.train(folder, algo, saves)

    def finish(self, process: subprocess.Popen[bytes], expected: int = 0) -> str:
        """Wait; what it said on standard error."""
        _, stderr = process.communicate(timeout=PATIENCE)
        said = stderr.decode(errors="replace")
        if process.returncode != expected or "Traceback" in said:
            raise Failed(f"exit status {process.returncode} instead of {expected}: {said[-2000:]}")
        return said

    def reference(self, algo: str) -> Path:
        """The run that nobody disturbs; how often it saves changes no number."""
        folder = self.folder / f"whole {algo}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self.finish(self.train(folder, algo, OFTEN))
            (folder / "done").touch()
        return folder

    def require_identical(self, folder: Path, algo: str, damaged: bytes = b"") -> None:
        """As the undisturbed run; `damaged` is what was there of the metrics before the last resume cut and went on."""
        whole = self.reference(algo)
        found, expected = (path / "metrics.jsonl" for path in (folder, whole))
        if found.read_bytes() != damaged + expected.read_bytes()[len(damaged) :]:
            raise Failed(f"the metrics of {folder} differ")
        best, wanted = (json.loads((path / "best" / "summary.json").read_bytes()) for path in (folder, whole))
        if {**best, "file": ""} != {**wanted, "file": ""}:
            raise Failed(f"the best team of {folder} differs")

    def wait_for_rows(self, folder: Path, count: int, process: subprocess.Popen[bytes]) -> bool:
        """Until the process has written so many rows more; false if it ended before."""
        path, began, before = folder / "metrics.jsonl", time.monotonic(), None
        while process.poll() is None:
            if time.monotonic() - began > PATIENCE:
                raise Failed("the run wrote nothing")
            rows = path.read_bytes().count(b"\n") if path.exists() else 0
            if before is None or rows < before:  # a resume cuts what lies behind its checkpoint
                before = rows
            if rows >= before + count:
                return True
            time.sleep(0.005)
        return False

    def disturb(self, rng: random.Random, folder: Path, process: subprocess.Popen[bytes]) -> bool:
        """Wait for a random moment: mostly of training, testing and saving, sometimes of starting or restoring."""
        began = time.monotonic()
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0.0, 1.1 * self.starting))
            return process.poll() is None
        if not self.wait_for_rows(folder, 1, process):
            return False
        self.starting = time.monotonic() - began
        self.wait_for_rows(folder, rng.randrange(ROWS_A_LIFE), process)
        time.sleep(rng.uniform(0.0, 0.03))
        return process.poll() is None


# kill -9


def kills(bench: Bench, rng: random.Random, folder: Path, number: int) -> tuple[str, str, int, str]:
    """One run, killed several times."""
    algo, count = ALGOS[number % 2], 0
    while count < KILLS_A_RUN:
        process = bench.begin(folder, algo, OFTEN)
        alive = bench.disturb(rng, folder, process)
        process.kill()
        if not alive and process.wait() != -signal.SIGKILL:
            bench.finish(process)
            break
        process.communicate()
        count += 1
    if not (folder / "metrics.jsonl").exists() or count == KILLS_A_RUN:
        bench.finish(bench.begin(folder, algo, OFTEN))
    bench.require_identical(folder, algo)
    return algo, "identical", count, ""


# Signals and closed pipes


def signals(bench: Bench, rng: random.Random, folder: Path, number: int) -> tuple[str, str, int, str]:
    """One run that saves only when it is stopped, stopped in every way."""
    algo, early, ways = ALGOS[number % 2], 0, list(STATUS)
    rng.shuffle(ways)
    for count, way in enumerate(ways):
        process = bench.begin(folder, algo, NEVER)
        if not bench.disturb(rng, folder, process):
            bench.finish(process)
            ways = ways[:count]
            break
        early += not _stop(bench, folder, process, way)
    if not (folder / "config.json").exists() or len(ways) == len(STATUS):
        bench.finish(bench.begin(folder, algo, NEVER))
    bench.require_identical(folder, algo)
    return f"{algo}: {', '.join(ways)}", "identical", len(ways), f"{early} before training began" if early else ""


def _stop(bench: Bench, folder: Path, process: subprocess.Popen[bytes], way: str) -> bool:
    """Whether it was training and saved; everything up to its last row must then be in a checkpoint."""
    if way == "a closed pipe":
        assert process.stdout and process.stderr
        process.stdout.close()
        process.stderr.close()
        status, said = process.wait(timeout=PATIENCE), ""
    else:
        process.send_signal(signal.Signals[way])
        _, stderr = process.communicate(timeout=PATIENCE)
        status, said = process.returncode, stderr.decode(errors="replace")
    if status == 0:  # the last chunk was under way
        return True
    if "saving, then stopping" not in said and way != "a closed pipe":
        return False  # it was still starting, and nothing was to be saved
    if status != STATUS[way] or "Traceback" in said:
        raise Failed(f"{way}: exit status {status}: {said[-2000:]}")
    rows = (folder / "metrics.jsonl").read_bytes().splitlines()
    saved = max(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
    if rows and json.loads(rows[-1])["step"] > saved:
        raise Failed(f"{way}: the last row is of step {json.loads(rows[-1])['step']}, the checkpoint of step {saved}")
    return True


# Damaged files


def half_way(bench: Bench, algo: str) -> Path:
    """A run killed in the middle, with two checkpoints."""
    folder = bench.folder / f"half {algo}"
    while not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        process = bench.train(folder, algo, OFTEN)
        bench.wait_for_rows(folder, 60, process)
        process.kill()
        process.communicate()
        if len([path for path in (folder / "checkpoints").iterdir() if path.name.isdigit()]) == 2:
            (folder / "done").touch()
    return folder


def victims(folder: Path) -> list[Path]:
    """The files of checkpoints, replay, best team and metrics, without the folder."""
    chosen = [path for name in ("checkpoints", "replay", "best") for path in (folder / name).rglob("*")]
    chosen += [folder / name for name in ("metrics.jsonl", "metrics.crc", "meta.json")]
    return sorted(path.relative_to(folder) for path in chosen if path.is_file() and path.name[0] != ".")


def damage(path: Path, way: str, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if way == "gone":
        path.unlink()
        return
    if way == "one bit":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif way == "a block":
        start = rng.randrange(len(content) * 3 // 4 + 1)
        length = max(1, len(content) // 4)
        content[start : start + length] = rng.randbytes(len(content[start : start + length]))
    path.write_bytes(content[: len(content) // 2] if way == "cut" else b"" if way == "empty" else content)


def files(bench: Bench, rng: random.Random, folder: Path, number: int) -> tuple[str, str, int, str]:
    """One damaged file, then a resume."""
    algo = "emu_qmix"
    half = half_way(bench, algo)
    every = victims(half)
    random.Random(bench.seed).shuffle(every)
    name, way = every[number % len(every)], DAMAGES[(number + number // len(every)) % len(DAMAGES)]
    shutil.copytree(half, folder)
    damage(folder / name, way, rng)
    what, before = f"{name}: {way}", _metrics(folder)
    process = bench.start("resume", folder)
    _, stderr = process.communicate(timeout=PATIENCE)
    said = stderr.decode(errors="replace")
    if "Traceback" in said:
        raise Failed(f"{what}: {said[-2000:]}")
    if process.returncode == 2 and _metrics(folder) == before:
        shutil.copyfile(half / name, folder / name)
        bench.finish(bench.start("resume", folder))
        bench.require_identical(folder, algo)
        return what, "refused", 1, said.strip().splitlines()[-1][:300]
    if process.returncode:
        raise Failed(f"{what}: exit status {process.returncode}: {said[-2000:]}")
    if name.parts[0] == "replay" and "WITHOUT" in said and "lost_episodes" in (folder / "meta.json").read_text():
        return what, "said", 1, ""
    kept = _kept(folder, half, before) if name.name == "metrics.jsonl" else b""
    bench.require_identical(folder, algo, kept)
    return what, "identical", 1, ""


def _metrics(folder: Path) -> bytes:
    path = folder / "metrics.jsonl"
    return path.read_bytes() if path.exists() else b""


def _kept(folder: Path, half: Path, damaged: bytes) -> bytes:
    """The damaged metrics as far as the checkpoint had seen them: those rows stay as they are, and are named."""
    checkpoint = max(path for path in (half / "checkpoints").iterdir() if path.name.isdigit())
    return damaged[: json.loads((checkpoint / "state.json").read_bytes())["metrics_bytes"]]


# Full disks


def disks(bench: Bench, rng: random.Random, folder: Path, number: int) -> tuple[str, str, int, str]:
    """A run on a disk that is too small; then there is room, and it goes on."""
    algo = ALGOS[number % 2]
    size = 120 + 90 * (number // 2) if algo == "qmix" else 300 + 200 * (number // 2)
    disk = bench.folder / "disk"
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
    try:
        place = disk / folder.name
        process = bench.train(place, algo, OFTEN)
        _, stderr = process.communicate(timeout=PATIENCE)
        said, full = stderr.decode(errors="replace"), process.returncode != 0
        if "Traceback" in said or process.returncode not in (0, 2):
            raise Failed(f"{size} kB: exit status {process.returncode}: {said[-2000:]}")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        if full:
            bench.finish(bench.begin(place, algo, OFTEN))
        bench.require_identical(place, algo)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    return f"{algo} on {size} kB", "identical", int(full), said.strip().splitlines()[-1][:200] if full else "it fitted"


# The whole


def table(trials: list[Trial]) -> str:
    """Rows for the kinds of disturbances, columns for the outcomes, numbers of disturbances."""
    kinds = dict.fromkeys(trial.kind for trial in trials)
    lines = [f"{'':<10}{'runs':>6}{'times':>7}{'identical':>11}{'said':>6}{'refused':>9}{'FAILED':>8}"]
    for kind in kinds:
        own = [trial for trial in trials if trial.kind == kind]
        counts = collections.Counter({"identical": 0})
        for trial in own:
            counts[trial.outcome] += trial.times
        columns = (counts[name] for name in ("identical", "said", "refused", "FAILED"))
        row = [len(own), sum(counts.values()), *columns]
        lines.append(f"{kind:<10}" + "".join(f"{n:>{w}}" for n, w in zip(row, (6, 7, 11, 6, 9, 8), strict=True)))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    for name, count in (("kills", 200), ("signals", 40), ("files", 80), ("disks", 15)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):  # a script in the background ignores them, and so would its runs
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    bench, trials = Bench(asked.folder, asked.seed), []
    kinds = {"kills": (kills, asked.kills), "signals": (signals, asked.signals)}
    kinds |= {"files": (files, asked.files), "disks": (disks, asked.disks)}
    for kind, (go, wanted) in kinds.items():
        count = number = 0
        while count < wanted:
            trials.append(bench.trial(kind, number, lambda rng, folder: go(bench, rng, folder, number)))  # noqa: B023
            count, number = count + (1 if kind == "disks" else trials[-1].times), number + 1
    print(table(trials))
    lost = [trial for trial in trials if trial.outcome == "FAILED"]
    for trial in lost:
        print(f"{trial.kind} {trial.number}: {trial.detail}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
