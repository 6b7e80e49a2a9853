"""The loop, top to bottom: collect a chunk of episodes, remember them, learn from the replay, test, save.

    collect -> remember -> learn -> report (log, test, checkpoint)

`train` starts a run in an empty folder, `resume` goes on with one; both end in `Trainer.run`.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from emu import envs
from emu.config import Config, replace
from emu.devices import Devices, configure_cpu_devices
from emu.envs.check import check_shapes
from emu.errors import EmuError
from emu.learners.build import build_keeper, build_learner, build_photographer, build_replay
from emu.play.build import build_players
from emu.play.evaluate import Evaluator
from emu.replay.episodes import Replay
from emu.run.checkpoint import Checkpoints, RunLock, replace_json, save_best
from emu.run.folder import (
    holds_more_than_a_beginning,
    last_test,
    read_config,
    remove_if_empty,
    run_folder,
    write_config,
)
from emu.run.metrics import Means, MetricsWriter
from emu.run.provenance import provenance
from emu.train.progress import Progress
from emu.types import Batch, Episode, clipped


@dataclasses.dataclass
class Counters:
    """Where a run stands."""

    step: int = 0  # environment steps
    episodes: int = 0
    updates: int = 0
    owed: float = 0  # updates that collected episodes have earned and that are still to be done
    tests: int = 0
    logs: int = 0  # training rows written
    snapshots: int = 0  # intervals of which a snapshot of the memory was taken
    best: tuple[float, float] = (-1.0, -np.inf)  # win rate and return of the best test
    last_checkpoint: int = 0


class Stopped(Exception):
    """The run was asked to stop; its state is saved."""


class Trainer:
    """One run: the stores, the compiled pieces, and the loop that connects them."""

    def __init__(self, config: Config, folder: Path, progress: Progress) -> None:
        self.config, self.folder, self.progress = config, folder, progress
        self.env = envs.make(config.env, **config.env_args)
        check_shapes(self.env)
        spec = self.env.spec
        devices = Devices.of(config.devices)
        self.learner = build_learner(config, spec, devices)
        self.rollout, self.evaluator = build_players(self.env, self.learner, config, devices, progress.warn)
        self.replay = build_replay(config, spec)
        self.keeper = build_keeper(config, spec)
        self.photographer = build_photographer(self.keeper, folder, self.env, self.learner, config.seed)
        if self.photographer and not isinstance(self.evaluator, Evaluator):
            self.photographer.play = self.evaluator.walk
        self.checkpoints = Checkpoints(folder, config.checkpoint.keep)
        self.means, self.counters = Means(), Counters()
        keys = jax.random.split(jax.random.PRNGKey(config.seed), 2)
        self.state = self.learner.shards.replicate(jax.jit(self.learner.init)(keys[0]))
        self.rollout_state: Any = self.rollout.init(keys[1])
        self.stop_signal: str | None = None
        self.seconds = dict.fromkeys(("rollout", "memory", "sampling", "learner", "evaluation", "checkpoint"), 0.0)

    # The loop

    def run(self, keep_bytes: int = 0) -> dict[str, float]:
        """Train until the last step. Returns the last test."""
        resumed = self.counters.step
        self.open_writer(keep_bytes)
        summary: dict[str, float] = {}
        try:
            with self.progress.watching(self.config.steps, resumed):
                if not resumed:
                    summary = self.test()
                while self.counters.step < self.config.steps:
                    self.remember(self.collect())
                    self.learn()
                    self.train_embedder()
                    summary = self.report() or summary
                    if self.stop_signal:
                        self.save()
                        raise Stopped(self.stop_signal)
                self.save()
        finally:
            self.writer.close()
            self.rollout.close()
        return summary

    def open_writer(self, keep_bytes: int = 0) -> None:
        self.writer = MetricsWriter(self.folder, self.config.tensorboard, keep_bytes, self.counters.step)

    def collect(self) -> list[Episode]:
        """One chunk of experience; the episodes that ended in it."""
        self.settle()
        started = time.perf_counter()
        policy = self.learner.policy(self.state)
        self.rollout_state, episodes, steps = self.rollout.collect(policy, self.rollout_state, self.epsilon)
        self.counters.step += steps
        self.counters.episodes += len(episodes)
        for episode in episodes:
            self.means.add(
                {
                    "train_return": episode.reward.sum(),
                    "train_length": episode.length,
                    "train_win_rate": episode.won,
                }
            )
        self.seconds["rollout"] += time.perf_counter() - started
        return episodes

    def remember(self, episodes: list[Episode]) -> None:
        """Finished episodes go into the memory and the replay, and earn updates once a batch can be drawn."""
        started, learner = time.perf_counter(), self.config.learner
        if learner.reward_clip:
            episodes = [clipped(episode, learner.reward_clip) for episode in episodes]
        if self.keeper:
            self.keeper.remember(episodes)
        self.replay.add(episodes)
        if self.learner.on_policy:
            self.counters.owed = len(self.replay) // learner.batch_size
        elif self.counters.step >= self.config.rollout.random_steps and self.replay.holds(learner.batch_size):
            steps = sum(episode.length for episode in episodes)
            self.counters.owed += len(episodes) * learner.updates_per_episode + steps * learner.updates_per_step
        self.seconds["memory"] += time.perf_counter() - started

    def settle(self) -> None:
        """Wait for the updates under way, which whatever comes next needs anyway; the wait is learning time."""
        started = time.perf_counter()
        jax.block_until_ready(self.state)
        self.seconds["learner"] += time.perf_counter() - started

    def learn(self) -> None:
        """The updates owed, as many at a time as one compiled call does."""
        per_call = self.config.learner.updates_per_call
        while self.counters.owed >= per_call:
            started = time.perf_counter()
            drawn = self.draw(per_call)
            self.seconds["sampling"] += time.perf_counter() - started
            for batches in drawn:
                self.update(batches)

    def draw(self, count: int) -> list[Batch]:
        """What the next `count` updates learn from. What a learner on policy draws is gone: nothing is used twice."""
        size = self.config.learner.batch_size
        if isinstance(self.replay, Replay) and self.learner.on_policy:
            return self.replay.batches([self.replay.take(size) for _ in range(count)])
        return self.replay.draw(size, self.config.seed, self.counters.updates, count)

    def update(self, batches: Batch) -> None:
        """One compiled call: an update for every leading entry of the batches, in turn."""
        started = time.perf_counter()
        recall = self.keeper.recall(batches) if self.keeper else None
        recalled = time.perf_counter()
        inputs = self.learner.shards.put((batches, recall), axis=1)
        self.state, metrics = self.learner.update(self.state, *inputs, np.int32(self.counters.step))
        self.means.add(metrics)
        self.counters.updates += len(batches.reward)
        self.counters.owed -= len(batches.reward)
        self.seconds["memory"] += recalled - started
        self.seconds["learner"] += time.perf_counter() - recalled

    def train_embedder(self) -> None:
        """Every so many steps the memory learns to see anew."""
        if not self.keeper:
            return
        started = time.perf_counter()
        metrics = self.keeper.train_if_due(self.counters.step)
        if metrics:
            self.means.add(metrics)
        self.seconds["memory"] += time.perf_counter() - started

    def report(self) -> dict[str, float] | None:
        """Log, test and save when due; the test's summary if there was one."""
        config, counters, summary = self.config, self.counters, None
        if counters.step // config.log_interval > counters.logs:
            self.log()
        if counters.step // config.eval.interval >= counters.tests or counters.step >= config.steps:
            summary = self.test()
        if self.snapshot_due():
            self.take_snapshot()
        if counters.step - counters.last_checkpoint >= config.checkpoint.interval:
            self.save()
        extra = f"memory {len(self.keeper.memory):,}" if self.keeper else ""
        self.progress.update(counters.step, epsilon=self.epsilon, episodes=counters.episodes, extra=extra)
        return summary

    @property
    def epsilon(self) -> float:
        r = self.config.rollout
        if self.counters.step < r.random_steps:
            return 1.0
        share = min(1.0, (self.counters.step - r.random_steps) / r.epsilon_steps)
        return r.epsilon_start + share * (r.epsilon_end - r.epsilon_start)

    def log(self) -> None:
        """A training row: means since the last one."""
        counters = self.counters
        counters.logs = counters.step // self.config.log_interval
        row = {"episodes": counters.episodes, "updates": counters.updates, "epsilon": self.epsilon}
        row |= self.replay.stats() | self.means.take()
        row |= self.rollout.stats() | (self.keeper.stats() if self.keeper else {})
        self.writer.row(counters.step, row)
        self.require_finite(row)

    def require_finite(self, values: dict[str, float]) -> None:
        """Stop before anything is saved that can no longer learn."""
        broken = [name for name, value in values.items() if not np.isfinite(value)]
        if broken:
            known = self.checkpoints.steps()
            last = f"step {known[-1]}" if known else "none yet"
            raise EmuError(
                f"Training diverged at step {self.counters.step}: {', '.join(broken)} is not finite. Nothing of it was "
                f"saved (last checkpoint: {last}). Try a smaller learner.learning_rate or learner.max_grad_norm."
            )

    def test(self) -> dict[str, float]:
        """Greedy episodes; remembers the best parameters."""
        self.settle()
        started, counters = time.perf_counter(), self.counters
        result = self.evaluator.test(self.learner.policy(self.state), self.config.seed, counters.tests)
        counters.tests = counters.step // self.config.eval.interval + 1
        summary = result.summary()
        self.writer.row(counters.step, summary)
        self.writer.timing(counters.step, {"wall": time.time(), **self.seconds})
        self.progress.tested(counters.step, summary)
        self.seconds["evaluation"] += time.perf_counter() - started
        score = (summary["test_win_rate"] if self.env.spec.has_goal else 0.0, summary["test_return"])
        if score > tuple(counters.best):
            counters.best = score
            save_best(self.folder, self.learner.policy(self.state), counters.step, summary)
        return summary

    def snapshot_due(self) -> bool:
        interval, step = self.config.memory.snapshot_interval, self.counters.step
        if not self.keeper or not interval or not len(self.keeper.memory):
            return False
        return step // interval > self.counters.snapshots or step >= self.config.steps

    def take_snapshot(self) -> Path:
        """A small picture of the memory for `emu report`; changes nothing that the run computes."""
        assert self.keeper and self.photographer
        self.settle()
        started = time.perf_counter()
        self.counters.snapshots = self.counters.step // (self.config.memory.snapshot_interval or self.counters.step)
        path = self.photographer.take(self.counters.step, self.learner.policy(self.state), self.keeper.memory)
        self.seconds["evaluation"] += time.perf_counter() - started
        return path

    # Saving and restoring

    @property
    def tree(self) -> dict[str, Any]:
        """Everything on the devices that a run needs to go on."""
        embedder = {"embedder": self.keeper.state} if self.keeper else {}
        return {"learner": self.state, "rollout": self.rollout_state, **embedder}

    def save(self) -> None:
        started = time.perf_counter()
        if self.counters.step == self.counters.last_checkpoint and self.checkpoints.steps():
            return
        means = self.means.save()
        self.require_finite({name: total for name, (total, _) in means.items()})
        self.counters.last_checkpoint = self.counters.step
        state = {
            "counters": dataclasses.asdict(self.counters),
            "means": means,
            "metrics_bytes": self.writer.sync(),
        }
        if self.keeper:
            state["trainings"] = self.keeper.trainings
        memory = self.keeper.save if self.keeper else None
        self.checkpoints.save(self.counters.step, self.tree, self.rollout.save(), state, self.replay, memory)
        self.seconds["checkpoint"] += time.perf_counter() - started

    def restore(self) -> int:
        """Load the newest whole checkpoint; the number of bytes of metrics.jsonl that belong to it."""
        tree, arrays, state, folder = self.checkpoints.load(self.tree, self.replay, self.progress.warn)
        self.state = self.learner.shards.replicate(tree["learner"])
        self.rollout_state = self.rollout.shards.put(tree["rollout"])
        self.rollout.load(arrays)
        if self.keeper:
            self.keeper.load(folder / "memory", tree["embedder"], state["trainings"])
        self.means.load(state["means"])
        self.counters = Counters(**state["counters"])
        return state["metrics_bytes"]


def train(config: Config, folder: Path | None = None, progress: Progress | None = None) -> dict[str, float]:
    """Start a run. The folder must not exist (or be empty, or hold a run that never began)."""
    configure_cpu_devices(config.devices)
    folder, progress = folder or run_folder(config), progress or Progress()
    if holds_more_than_a_beginning(folder):
        raise EmuError(
            f"{folder} already exists. Go on with it (`emu resume {folder}`), choose another (`--run-dir`), "
            "or remove it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmuError(f"{folder} cannot be made: {error.strerror}. Choose another with `--run-dir`.") from error
    lock = RunLock(folder)
    try:
        trainer = Trainer(config, folder, progress)
        replace_json(folder / "meta.json", provenance(trainer.env.spec), indent=2)
        write_config(folder, config)  # from here on it is a run that can be resumed
        progress.header(config, trainer)
        return _run(trainer, 0)
    finally:
        if not (folder / "config.json").exists():  # a bad configuration leaves nothing behind
            (folder / ".lock").unlink(missing_ok=True)
            remove_if_empty(folder / "replay", folder / "checkpoints", folder)
        lock.release()


def resume(folder: Path, steps: int | None = None, progress: Progress | None = None) -> dict[str, float]:
    """Go on with a run as if it had never stopped; `steps` may extend it."""
    config, progress = read_config(folder), progress or Progress()
    if steps is not None:
        config = replace(config, {"steps": steps})
    configure_cpu_devices(config.devices)
    lock = RunLock(folder)
    try:
        trainer = Trainer(config, folder, progress)
        keep_bytes = 0
        if trainer.checkpoints.steps():
            keep_bytes = trainer.restore()
        else:
            progress.warn("The run was stopped before its first checkpoint; it starts from the beginning.")
        if steps is not None:
            write_config(folder, config)
        progress.header(config, trainer)
        if trainer.counters.step >= config.steps:
            progress.warn(f"The run is complete ({trainer.counters.step:,} steps). `--steps` makes it longer.")
            return last_test(folder)
        return _run(trainer, keep_bytes)
    finally:
        lock.release()


def _run(trainer: Trainer, keep_bytes: int) -> dict[str, float]:
    """Run with Ctrl-C and SIGTERM turned into a save at the end of the current chunk."""

    def ask(number: int, _: Any) -> None:
        trainer.stop_signal = signal.Signals(number).name
        trainer.progress.warn(f"{trainer.stop_signal}: saving, then stopping.")

    previous: dict[int, Callable | int | None] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, ask)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        return trainer.run(keep_bytes)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
