"""The loop, top to bottom: collect a chunk of episodes, remember them, learn from the replay, evaluate, save.

    collect -> remember -> learn -> report (log, evaluate, snapshot, checkpoint)

`emu.training.session` starts and resumes runs; both end in `Trainer.run`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from emu import envs
from emu.config import Config
from emu.devices import Devices
from emu.envs.check import check_shapes
from emu.envs.started import end_noted_processes
from emu.learners.build import build_learner
from emu.play.build import build_players
from emu.replay.build import build_replay
from emu.replay.episodes import Replay
from emu.run.checkpoint import Checkpoints
from emu.run.loggers import build_loggers
from emu.run.metrics import MetricsWriter
from emu.seeds import training_keys
from emu.training.best_team import log_best_team
from emu.training.budget import require_memory
from emu.training.build import build_memory
from emu.training.callbacks import Callbacks
from emu.training.clock import Clock
from emu.training.means import Means
from emu.training.progress import Progress
from emu.training.reporting import evaluate, report
from emu.training.saving import save
from emu.training.schedule import Schedule, exploration
from emu.training.snapshots import SnapshotWriter
from emu.types import Batch, Episode, clipped


@dataclasses.dataclass
class Counters:
    """Where a run stands."""

    step: int = 0  # environment steps
    episodes: int = 0
    updates: int = 0
    owed: float = 0  # updates that collected episodes have earned and that are still to be done
    best: tuple[float, float] = (-1.0, -np.inf)  # win rate and return of the best evaluation
    last_checkpoint: int = 0


class Stopped(Exception):
    """The run was asked to stop, by a signal or by `BY_CALLBACK`; its state is saved."""


class Trainer:
    """One run: the stores, the compiled pieces, and the loop that connects them."""

    def __init__(self, config: Config, folder: Path, progress: Progress, callbacks: Callbacks | None = None) -> None:
        self.config, self.folder, self.progress = config, folder, progress
        self.callbacks = callbacks or Callbacks()
        self.env = envs.make(config.env, **config.env_args)
        check_shapes(self.env)
        spec, devices = self.env.spec, Devices.of(config.devices)
        self.learner = build_learner(config, spec, devices)
        require_memory(config, spec, self.learner)
        self.rollout, self.evaluator = build_players(self.env, self.learner, config, devices, progress.warn)
        self.replay = build_replay(config, spec, self.learner.shards.size)
        self.memory = build_memory(config, spec, self.learner)
        self.snapshots = SnapshotWriter(folder, self.evaluator, config.seed)
        self.loggers = build_loggers(config)
        self.checkpoints = Checkpoints(folder, config.checkpoint.keep)
        self.means, self.counters, self.clock = Means(), Counters(), Clock(progress)
        self.schedules = {
            "log": Schedule(config.log_interval),
            "evaluation": Schedule(config.eval.interval, end=config.steps, done=-1),
            "snapshot": Schedule(config.memory.snapshot_interval, end=config.steps),
        }
        learner_key, rollout_key = training_keys(config.seed)
        self.state = self.learner.shards.replicate(jax.jit(self.learner.init)(learner_key))
        self.rollout_state: Any = self.rollout.init(rollout_key)
        self.last_row: dict[str, float] = {}  # the newest row of training
        self.stop_signal: str | None = None  # who asked the run to stop: a signal's name, or BY_CALLBACK

    def run(self, keep_bytes: int = 0) -> dict[str, float]:
        """Train until the last step. Returns the last evaluation; `keep_bytes` of metrics were there before."""
        self.open_writer(keep_bytes)
        summary: dict[str, float] = {}
        try:
            with self.progress.watching(self.config.steps, self.counters.step):
                if self.counters.step == 0:
                    save(self)  # before the first row, so that whatever was written can be gone on with
                if self.schedules["evaluation"].due(0):  # before the first step
                    summary = evaluate(self)
                    self.stop_if_asked()
                while self.counters.step < self.config.steps:
                    self.remember(self.collect())
                    self.learn()
                    self.train_embedder()
                    summary = report(self) or summary
                    self.stop_if_asked()
                save(self)
            log_best_team(self)
        finally:
            self.writer.close()
            self.rollout.close()
            end_noted_processes()
        return summary

    def stop_if_asked(self) -> None:
        if stopped_by := self.stop_signal or self.progress.closed_by:
            save(self)
            raise Stopped(stopped_by)

    def open_writer(self, keep_bytes: int = 0) -> None:
        for logger in self.loggers:
            logger.open(self.folder, self.config, self.counters.step)
        self.writer = MetricsWriter(self.folder, self.loggers, keep_bytes)

    @property
    def policy(self) -> Any:
        """The parameters to act with, once all updates under way are done."""
        self.settle()
        return self.learner.policy(self.state)

    def settle(self) -> None:
        """Wait for the updates under way, which whatever comes next needs anyway; the wait is learning time."""
        with self.clock("learner"):
            jax.block_until_ready(self.state)

    @property
    def epsilon(self) -> float:
        return exploration(self.config.rollout, self.counters.step)

    # Collecting and learning

    def collect(self) -> list[Episode]:
        """One chunk of experience; the episodes that ended in it."""
        policy = self.policy
        with self.clock("rollout"):
            self.rollout_state, episodes, steps = self.rollout.collect(policy, self.rollout_state, self.epsilon)
            self.counters.step += steps
            self.counters.episodes += len(episodes)
            for episode in episodes:
                total, length, won = episode.reward.sum(), episode.length, episode.won
                self.means.add({"train_return": total, "train_length": length, "train_win_rate": won})
        return episodes

    def remember(self, episodes: list[Episode]) -> None:
        """Finished episodes go into the memory and the replay, and earn updates once a batch can be drawn."""
        learner, counters = self.config.learner, self.counters
        with self.clock("memory"):
            if learner.reward_clip:
                episodes = [clipped(episode, learner.reward_clip) for episode in episodes]
            if self.memory:
                self.memory.remember(episodes)
            self.replay.add(episodes)
        if self.learner.on_policy:
            counters.owed = len(self.replay) // learner.batch_size
        elif counters.step >= self.config.rollout.random_steps and self.replay.holds(learner.batch_size):
            steps = sum(episode.length for episode in episodes)
            counters.owed += len(episodes) * learner.updates_per_episode + steps * learner.updates_per_step

    def learn(self) -> None:
        """The updates owed, as many at a time as one compiled call does."""
        per_call = self.config.learner.updates_per_call
        while self.counters.owed >= per_call:
            with self.clock("sampling"):
                drawn = self.draw(per_call)
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
        with self.clock("memory"):
            recall = self.memory.recall(batches) if self.memory else None
        with self.clock("learner"):
            inputs = self.learner.shards.put((batches, recall), axis=1)
            self.state, metrics = self.learner.update(self.state, *inputs, np.int32(self.counters.step))
            self.means.add(metrics)
        self.counters.updates += len(batches.reward)
        self.counters.owed -= len(batches.reward)

    def train_embedder(self) -> None:
        """Every so many steps the memory's embedder is trained, and every key computed anew."""
        if self.memory:
            with self.clock("memory"):
                if metrics := self.memory.train_if_due(self.counters.step):
                    self.means.add(metrics)
