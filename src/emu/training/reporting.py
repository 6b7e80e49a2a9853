"""What a run tells of itself after every chunk: training rows, evaluations, snapshots of its memory, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emu.run.best import save_best
from emu.training.saving import require_finite, save

if TYPE_CHECKING:
    from emu.training.loop import Trainer

BY_CALLBACK = "a callback"


def report(trainer: Trainer) -> dict[str, float] | None:
    """Log, evaluate, take a snapshot and save when due; the evaluation's summary if there was one."""
    step, summary = trainer.counters.step, None
    if trainer.schedules["log"].due(step):
        log(trainer)
    if trainer.schedules["evaluation"].due(step):
        summary = evaluate(trainer)
    if trainer.memory and len(trainer.memory.memory) and trainer.schedules["snapshot"].due(step):
        take_snapshot(trainer)
    if checkpoint_due(trainer):
        save(trainer)
    extra = f"memory {len(trainer.memory.memory):,}" if trainer.memory else ""
    trainer.progress.update(step, epsilon=trainer.epsilon, episodes=trainer.counters.episodes, extra=extra)
    if trainer.callbacks.chunk(step, trainer.last_row | counts(trainer)):
        trainer.stop_signal = trainer.stop_signal or BY_CALLBACK
    return summary


def checkpoint_due(trainer: Trainer) -> bool:
    """By steps, or by time where steps are slow; which of them it was changes no number of the run."""
    wanted, unsaved = trainer.config.checkpoint, trainer.counters.step - trainer.counters.last_checkpoint
    return unsaved >= wanted.interval or (0 < wanted.minutes <= trainer.clock.minutes_unsaved)


def counts(trainer: Trainer) -> dict[str, float]:
    return {"episodes": trainer.counters.episodes, "updates": trainer.counters.updates, "epsilon": trainer.epsilon}


def log(trainer: Trainer) -> None:
    """A training row: means since the last one."""
    trainer.schedules["log"].mark(trainer.counters.step)
    row = counts(trainer) | trainer.replay.stats() | trainer.means.take()
    row |= trainer.rollout.stats() | (trainer.memory.stats() if trainer.memory else {})
    trainer.writer.row(trainer.counters.step, row)
    trainer.last_row = row
    require_finite(trainer, row)


def evaluate(trainer: Trainer) -> dict[str, float]:
    """Greedy episodes; remembers the best parameters."""
    policy, step, schedule = trainer.policy, trainer.counters.step, trainer.schedules["evaluation"]
    with trainer.clock("evaluation"):
        summary = trainer.evaluator.evaluate(policy, trainer.config.seed, schedule.done + 1).summary()
        schedule.mark(step)
        trainer.writer.row(step, summary)
        trainer.writer.timing(step, trainer.clock.row())
        trainer.progress.tested(step, summary)
    score = (summary["test_win_rate"] if trainer.env.spec.has_goal else 0.0, summary["test_return"])
    if score > tuple(trainer.counters.best):
        trainer.counters.best = score
        save_best(trainer.folder, policy, step, summary)
    if trainer.callbacks.evaluation(step, summary):
        trainer.stop_signal = trainer.stop_signal or BY_CALLBACK
    return summary


def take_snapshot(trainer: Trainer) -> Path:
    """A small picture of the memory for `emu report`; changes nothing that the run computes."""
    assert trainer.memory
    policy, step = trainer.policy, trainer.counters.step
    with trainer.clock("evaluation"):
        trainer.schedules["snapshot"].mark(step)
        return trainer.snapshots.take(step, policy, trainer.memory.memory)
