"""Pictures of a memory while it grows: a sample of its entries and one greedy episode, small enough to keep.

    run/snapshots/000000100000.npz      (n, D) keys, (n, S) states as float16, returns, visits, ... and a path

Taking one reads the run without touching it: the sample and the episode have random streams of their own, and looking
up the episode's states counts as no use of the entries. The same step of the same run always gives the same file, so a
run that was killed and resumed overwrites what lay beyond its checkpoint with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.config import Config, replace
from emu.envs.spec import Env
from emu.errors import CheckpointError, EmuError
from emu.learners.base import Learner
from emu.run.folder import RunFolder, read_config
from emu.run.lock import RunLock
from emu.run.snapshots import Memories, Snapshot, Trail, write_snapshot
from emu.run.trust import require_trusted
from emu.types import Array, PyTree

if TYPE_CHECKING:
    from emu.memory import EpisodicMemory

MAX_MEMORIES = 2_000
MAX_STATE_BYTES = 1 << 20  # of all sampled states; wide states lower the number of memories
MAX_PLACES = 512  # of the episode's path; longer episodes are thinned out evenly
HALF_RANGE = float(np.finfo(np.float16).max)


class Photographer:
    """Takes the snapshots of one run."""

    def __init__(self, run: Path, env: Env, learner: Learner, seed: int) -> None:
        self.run, self.env, self.learner, self.seed = run, env, learner, seed
        self.play: Callable[[PyTree, Array], Any] = jax.jit(self._episode)  # a greedy episode, given policy and key

    def take(self, step: int, policy: PyTree, memory: EpisodicMemory) -> Path:
        """Write the snapshot of a step, whole or not at all."""
        episode, won = self._walk(memory, jax.device_get(policy), step)
        return write_snapshot(
            self.run, Snapshot(step, len(memory), memory.radius, won, self._sample(memory, step), episode)
        )

    def _sample(self, memory: EpisodicMemory, step: int) -> Memories:
        fitting = max(1, MAX_STATE_BYTES // (2 * memory.options.state_dim))
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[2, 0, 0, step]))
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

    def _walk(self, memory: EpisodicMemory, policy: PyTree, step: int) -> tuple[Trail, bool]:
        key = jax.random.fold_in(jax.random.PRNGKey(self.seed ^ 0x54A9), step)
        states, rewards, going, won = jax.device_get(self.play(policy, key))
        length = int(going.sum())
        total = np.concatenate([[0.0], np.cumsum(rewards[:length], dtype=np.float64)]).astype(np.float32)
        shown = np.unique(np.linspace(0, length, min(length + 1, MAX_PLACES)).round().astype(np.int32))
        states = states[shown]
        recall, keys = memory.peek(states, shown)
        answers = {"found": recall.found, "best_return": recall.best_return, "desirable": recall.desirable}
        return Trail(keys, _half(states), shown, total[shown], **answers), bool(won.any())

    def _episode(self, policy: PyTree, key: Array) -> tuple[Array, Array, Array, Array]:
        """(L+1, S) states, (L,) rewards, whether each step was still part of the episode, whether it won there."""
        first, key = jax.random.split(key)
        state = self.env.reset(first)

        def step(loop: Any, _: None) -> tuple[Any, Any]:
            state, carry, over, key = loop
            act_key, step_key, key = jax.random.split(key, 3)
            obs, avail = self.env.observe(state)[None], self.env.avail(state)[None]
            action, carry = self.learner.act(policy, carry, obs, avail, jnp.float32(0), act_key)
            state, outcome = self.env.step(state, action[0], step_key)
            shown = (self.env.state(state), outcome.reward, ~over, outcome.won & ~over)
            return (state, carry, over | outcome.terminated | outcome.truncated, key), shown

        loop = state, self.learner.initial_carry(1), jnp.zeros((), bool), key
        _, (after, reward, going, won) = jax.lax.scan(step, loop, None, length=self.env.spec.episode_limit)
        return jnp.concatenate([self.env.state(state)[None], after]), reward, going, won


def _half(states: np.ndarray) -> np.ndarray:
    return np.clip(states, -HALF_RANGE, HALF_RANGE).astype(np.float16)


def snapshot_of(run: Path) -> Path:
    """The snapshot of a run as its newest checkpoint left it, for runs that took none while they trained."""
    from emu.train.loop import Trainer
    from emu.train.progress import Progress
    from emu.train.saving import restore

    config: Config = replace(read_config(run), {"devices": 1})
    require_trusted(run, config, trust=False)
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
        return trainer.take_snapshot()
    finally:
        lock.release()
