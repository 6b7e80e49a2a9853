"""Snapshots of a memory while it grows: a sample of its entries and one greedy episode, small enough to keep.

    run/snapshots/000000100000.npz      (n, D) keys, (n, S) states as float16, returns, visits, ... and a path

Taking one reads the run without touching it: the sample and the episode have random streams of their own, and looking
up the episode's states counts as no use of the entries. The same step of the same run always gives the same file, so a
run that was killed and resumed overwrites what lay beyond its checkpoint with the same bytes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from emu.config import Config, replace
from emu.errors import CheckpointError, EmuError
from emu.play.episode import Evaluator
from emu.run.checkpoint import STEP_DIGITS, RunLock, replace_arrays
from emu.seeds import snapshot_episode, snapshot_sample
from emu.types import PyTree

if TYPE_CHECKING:
    from emu.memory import EpisodicMemory

FORMAT = 1
MAX_MEMORIES = 2_000
MAX_STATE_BYTES = 1 << 20  # of all sampled states; wide states lower the number of memories
MAX_PLACES = 512  # of the episode's path; longer episodes are thinned out evenly
HALF_RANGE = float(np.finfo(np.float16).max)


class Memories(NamedTuple):
    """Sampled entries, a row each."""

    key: np.ndarray  # (n, D) float32
    state: np.ndarray  # (n, S) float16
    best_return: np.ndarray
    desirable: np.ndarray
    visits: np.ndarray
    desirable_visits: np.ndarray
    time: np.ndarray  # step of its episode at which the state was seen


class Trail(NamedTuple):
    """A greedy episode, a row a state, and what the memory knows of each."""

    key: np.ndarray  # (T+1, D) float32
    state: np.ndarray  # (T+1, S) float16
    time: np.ndarray
    total: np.ndarray  # reward collected before this state
    found: np.ndarray  # the memory has an entry nearer than its radius
    best_return: np.ndarray  # of that entry, 0 where there is none
    desirable: np.ndarray  # whether that entry is


class Snapshot(NamedTuple):
    step: int
    size: int  # entries of the whole memory
    radius: float
    won: bool  # the episode
    memories: Memories
    episode: Trail


class SnapshotWriter:
    """Takes the snapshots of one run; `evaluator` plays their episodes."""

    def __init__(self, run: Path, evaluator: Evaluator, seed: int) -> None:
        self.run, self.evaluator, self.seed = run, evaluator, seed

    def take(self, step: int, policy: PyTree, memory: EpisodicMemory) -> Path:
        """Write the snapshot of a step, whole or not at all."""
        episode, won = self._episode(memory, jax.device_get(policy), step)
        return write_snapshot(
            self.run, Snapshot(step, len(memory), memory.radius, won, self._sample(memory, step), episode)
        )

    def _sample(self, memory: EpisodicMemory, step: int) -> Memories:
        fitting = max(1, MAX_STATE_BYTES // (2 * memory.options.state_dim))
        rng = snapshot_sample(self.seed, step)
        ids = np.sort(rng.choice(len(memory), min(MAX_MEMORIES, fitting, len(memory)), replace=False))
        table = memory.export(ids)
        return Memories(
            key=table["key"],
            state=_half(memory.states(ids)),
            best_return=table["best_return"],
            desirable=table["desirable"],
            visits=table["visits"],
            desirable_visits=table["desirable_visits"],
            time=table["t"],
        )

    def _episode(self, memory: EpisodicMemory, policy: PyTree, step: int) -> tuple[Trail, bool]:
        """A greedy episode, and what the memory knows of its states."""
        (played,) = self.evaluator.play(policy, snapshot_episode(self.seed, step), states=True)
        assert played.states is not None
        total = np.concatenate([[0.0], np.cumsum(played.reward, dtype=np.float64)]).astype(np.float32)
        places = min(played.length + 1, MAX_PLACES)
        shown = np.unique(np.linspace(0, played.length, places).round().astype(np.int32))
        states = played.states[shown]
        recall, keys = memory.peek(states, shown)
        answers = {"found": recall.found, "best_return": recall.best_return, "desirable": recall.desirable}
        return Trail(keys, _half(states), shown, total[shown], **answers), played.won


def _half(states: np.ndarray) -> np.ndarray:
    return np.clip(states, -HALF_RANGE, HALF_RANGE).astype(np.float16)


def write_snapshot(run: Path, shot: Snapshot) -> Path:
    """One file, replaced in one step."""
    arrays = {f"memory_{name}": column for name, column in shot.memories._asdict().items()}
    arrays |= {f"episode_{name}": column for name, column in shot.episode._asdict().items()}
    arrays |= {name: np.array(getattr(shot, name)) for name in ("step", "size", "radius", "won")}
    path = run / "snapshots" / f"{shot.step:0{STEP_DIGITS}d}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
        replace_arrays(path, {**arrays, "format": np.array(FORMAT)})
    except OSError as error:
        raise EmuError(
            f"Could not write a snapshot of the memory in {path.parent}: {error.strerror or error}. The checkpoints "
            f"are intact. Make room, then go on with `emu resume {run}`."
        ) from error
    return path


def snapshot_paths(run: Path) -> list[Path]:
    """A run's snapshots, oldest first."""
    return sorted(path for path in (run / "snapshots").glob("*.npz") if path.stem.isdigit())


def read_snapshot(path: Path) -> Snapshot:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if int(stored["format"]) != FORMAT:
                raise EmuError(f"{path} has format {int(stored['format'])}, expected {FORMAT}: remove it.")
            memories = Memories(*(stored[f"memory_{name}"] for name in Memories._fields))
            episode = Trail(*(stored[f"episode_{name}"] for name in Trail._fields))
            step, size, radius, won = (stored[name].item() for name in ("step", "size", "radius", "won"))
            return Snapshot(step, size, radius, won, memories, episode)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise EmuError(f"{path} is damaged ({error}): remove it.") from error


def snapshot_of(run: Path) -> Path:
    """The snapshot of a run as its newest checkpoint left it, for runs that took none while they trained."""
    from emu.run.folder import read_config
    from emu.train.loop import Trainer
    from emu.train.progress import Progress

    config: Config = replace(read_config(run), {"devices": 1})
    if not any(path.name.isdigit() for path in (run / "checkpoints").glob("*")):
        raise CheckpointError(f"{run} has no checkpoint to take a snapshot of its memory from.")
    lock = RunLock(run)
    try:
        trainer = Trainer(config, run, Progress(quiet=True))
        if trainer.keeper is None:
            raise EmuError(f"{run} has no episodic memory: {config.algo} keeps none.")
        trainer.restore()
        if not len(trainer.keeper.memory):
            raise EmuError(f"The memory of {run} is still empty at its newest checkpoint.")
        return trainer.take_snapshot()
    finally:
        lock.release()
