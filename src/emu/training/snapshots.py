"""Snapshots of a memory while it grows: a sample of its entries and one greedy episode, small enough to keep.

    run/snapshots/000000100000.npz      (n, D) keys, (n, S) states as float16, returns, visits, ... and a path

Taking one reads the run without touching it: the sample and the episode have random streams of their own, and looking
up the episode's states counts as no use of the entries. The same step of the same run always gives the same file, so a
run that was killed and resumed overwrites what lay beyond its checkpoint with the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from emu.config import Config, replace
from emu.errors import CheckpointError, EmuError
from emu.play.episode import Evaluator
from emu.run.folder import RunFolder, read_config
from emu.run.lock import RunLock
from emu.run.snapshots import Memories, Snapshot, Trail, write_snapshot
from emu.run.trust import require_registered
from emu.seeds import snapshot_episode, snapshot_sample
from emu.types import PyTree

if TYPE_CHECKING:
    from emu.memory import EpisodicMemory

MAX_MEMORIES = 2_000
MAX_STATE_BYTES = 1 << 20  # of all sampled states; wide states lower the number of memories
MAX_PLACES = 512  # of the episode's path; longer episodes are thinned out evenly
HALF_RANGE = float(np.finfo(np.float16).max)


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
        fitting = max(1, MAX_STATE_BYTES // (2 * memory.state_dim))
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


def snapshot_of(run: Path) -> Path:
    """The snapshot of a run as its newest checkpoint left it, for runs that took none while they trained."""
    from emu.training.loop import Trainer
    from emu.training.progress import Progress
    from emu.training.reporting import take_snapshot
    from emu.training.saving import restore

    config: Config = replace(read_config(run), {"devices": 1})
    require_registered(run, config)
    if not RunFolder(run).checkpoint_steps():
        raise CheckpointError(f"{run} has no checkpoint to take a snapshot of its memory from.")
    lock = RunLock(run)
    try:
        trainer = Trainer(config, run, Progress(quiet=True))
        if trainer.memory is None:
            raise EmuError(f"{run} has no episodic memory: {config.algo} keeps none.")
        restore(trainer, read_only=True)
        if not len(trainer.memory.memory):
            raise EmuError(f"The memory of {run} is still empty at its newest checkpoint.")
        return take_snapshot(trainer)
    finally:
        lock.release()
