"""Golden runs: the bytes of `metrics.jsonl` of a dozen short runs, to show that a refactoring changed no number.

    python benchmarks/golden.py record before/          # at the old commit
    python benchmarks/golden.py record after/           # at the new one
    python benchmarks/golden.py compare before/ after/  # exits with 1 and names the first row that differs

Bytes depend on the machine (its vector instructions) and on the versions of JAX and NumPy, so both sides are recorded
on one machine, in one virtual environment; nothing of it is committed. To record another commit, put a worktree of it
on the path: `PYTHONPATH=other/src python benchmarks/golden.py record before/`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SHORT = (
    "--log-interval 400 --eval.interval 1000 --eval.episodes 8 --checkpoint.interval 1000 --no-tensorboard --devices 1"
)
SMALL = "--learner.batch-size 8 --rollout.envs 4"
MEMORY = (
    "--memory.capacity 3000 "
    "--memory.embedder.interval 500 --memory.embedder.samples 1024 --memory.embedder.batch-size 256"
)
SINGLE = "--steps 3000 --rollout.random-steps 400 --rollout.envs 2 --rollout.workers 1 --learner.batch-size 32"

# Name, and what follows `emu train`. A later option overrides an earlier one.
RUNS: dict[str, str] = {
    "qmix": f"--algo qmix --env gridworld/tiny --steps 3000 {SHORT} {SMALL}",
    "qplex_lambda": f"--algo qplex --env gridworld/tiny --steps 3000 {SHORT} {SMALL} --learner.td-lambda 0.6",
    "emu_qplex": f"--algo emu_qplex --env gridworld/tiny --steps 3000 {SHORT} {SMALL} {MEMORY}",
    "emc": f"--algo emc --env gridworld/tiny --steps 3000 {SHORT} {SMALL} {MEMORY}",
    "emu_cds": f"--algo emu_cds --env gridworld/tiny --steps 3000 {SHORT} {SMALL} {MEMORY}",
    "e3b": f"--algo qplex_e3b --env gridworld/tiny --steps 2000 {SHORT} {SMALL} {MEMORY}",
    "mappo": f"--algo mappo --env gridworld/tiny --steps 3000 {SHORT} {SMALL}",
    "matrix_vdn": f"--algo vdn --env matrix/climbing --steps 3000 {SHORT} {SMALL}",
    "emu_td3": f"--algo emu_td3 --env gymnasium:Pendulum-v1 {SHORT} {SINGLE} {MEMORY} --memory.return-threshold -1000",
    "emu_dqn": f"--algo emu_dqn --env gymnasium:CartPole-v1 {SHORT} {SINGLE} {MEMORY} --memory.return-threshold 20",
    "workers": f"--algo qmix --env pettingzoo:mpe2.simple_spread_v3 --steps 1500 {SHORT} {SMALL} --rollout.workers 2",
    "two_devices": f"--algo emu_qplex --env gridworld/tiny --steps 2000 {SHORT} {SMALL} {MEMORY} --devices 2",
    "smac": f"--algo emu_qplex --env smac/3m --steps 2000 {SHORT} {SMALL} {MEMORY}",
}
KILLED = "emu_qplex"  # this run is also killed after its first checkpoint and resumed; the bytes must be the same


def emu(*words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen([sys.executable, "-m", "emu", *words], env=environment, stdout=subprocess.DEVNULL)


def train(folder: Path, options: str) -> None:
    if emu("train", *options.split(), "--run-dir", str(folder), "--quiet").wait():
        sys.exit(f"{folder.name}: training failed")


def train_killed(folder: Path, options: str) -> None:
    """The same run, killed without warning once a checkpoint exists besides that of its beginning, then resumed."""
    process = emu("train", *options.split(), "--run-dir", str(folder), "--quiet")
    while process.poll() is None and not any(p.name.isdigit() and int(p.name) for p in folder.glob("checkpoints/*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if emu("resume", str(folder), "--quiet").wait():
        sys.exit(f"{folder.name}: resuming failed")


def record(out: Path, only: list[str]) -> None:
    runs = {name: options for name, options in RUNS.items() if not only or name in only}
    for name, options in runs.items():
        train(out / name, options)
        print(f"{name:14} {digest(out / name)}", flush=True)
    if KILLED in runs:
        train_killed(out / "killed", RUNS[KILLED])
        print(f"{'killed':14} {digest(out / 'killed')}", flush=True)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()[:16]


def compare(before: Path, after: Path) -> int:
    """Print a line a run; 1 if any differs."""
    names = sorted({p.name for root in (before, after) for p in root.iterdir() if p.is_dir()})
    differing = 0
    for name in names:
        files = [root / name / "metrics.jsonl" for root in (before, after)]
        if not all(file.exists() for file in files):
            print(f"{name:14} only on one side")
            continue
        if files[0].read_bytes() == files[1].read_bytes():
            print(f"{name:14} {digest(before / name)}  equal")
            continue
        differing += 1
        print(f"{name:14} DIFFERS at {first_difference(*(file.read_text() for file in files))}")
    return int(differing > 0)


def first_difference(before: str, after: str) -> str:
    rows = zip(before.splitlines(), after.splitlines(), strict=False)
    for number, (old, new) in enumerate(rows, 1):
        if old != new:
            return f"row {number}\n    before {old[:300]}\n    after  {new[:300]}"
    return "the number of rows"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of the runs to record")
    words = parser.parse_args()
    if words.what == "compare":
        return compare(*words.folders[:2])
    record(words.folders[0], words.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
