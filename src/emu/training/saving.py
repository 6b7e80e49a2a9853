"""What of a run goes into a checkpoint, and how it comes back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.config import to_dict
from emu.errors import CheckpointError, EmuError
from emu.run.best import best_copy
from emu.run.checkpoint import Content, Restored
from emu.run.record import Record

if TYPE_CHECKING:
    from emu.config import Config
    from emu.training.loop import Trainer


def device_tree(trainer: Trainer) -> dict[str, Any]:
    """Everything on the devices that a run needs to go on."""
    embedder = {"embedder": trainer.memory.state} if trainer.memory else {}
    return {"learner": trainer.state, "rollout": trainer.rollout_state, **embedder}


def save(trainer: Trainer) -> None:
    """A checkpoint of this step, unless there is one."""
    counters = trainer.counters
    if counters.step == counters.last_checkpoint and trainer.checkpoints.steps():
        return
    with trainer.clock("checkpoint"):
        means = trainer.means.save()
        require_finite(trainer, {name: total for name, (total, _) in means.items()})
        counters.last_checkpoint = counters.step
        copies, best = best_copy(trainer.folder)
        state: dict[str, Any] = {
            "settings": plain_settings(trainer.config),
            "counters": dataclasses.asdict(counters),
            "schedules": {name: schedule.done for name, schedule in trainer.schedules.items()},
            "means": means,
            "metrics_bytes": trainer.writer.sync(),
            "best": best,
        }
        if trainer.memory:
            state["trainings"] = trainer.memory.trainings
        memory = trainer.memory.save if trainer.memory else None
        content = Content(device_tree(trainer), trainer.rollout.save(), state, memory, copies)
        trainer.checkpoints.save(counters.step, content, trainer.replay)
    trainer.clock.saved()


def plain_settings(config: Config) -> dict[str, Any]:
    """All settings as JSON gives them back."""
    return json.loads(json.dumps(to_dict(config)))


def restore(trainer: Trainer, read_only: bool = False) -> Restored:
    """Load the newest whole checkpoint. `read_only`: the folder stays as it is."""
    check = functools.partial(require_sound, trainer)
    found = trainer.checkpoints.load(device_tree(trainer), trainer.replay, trainer.progress.warn, read_only, check)
    trainer.state = trainer.learner.shards.replicate(found.tree["learner"])
    trainer.rollout_state = trainer.rollout.shards.put(found.tree["rollout"])
    trainer.rollout.load(found.arrays)
    if trainer.memory:
        trainer.memory.load(found.memory, found.tree["embedder"], found.state["trainings"])
    trainer.means.load(found.state["means"])
    trainer.counters = type(trainer.counters)(**found.state["counters"])
    for name, done in found.state["schedules"].items():
        trainer.schedules[name].done = done
    return found


def require_sound(trainer: Trainer, state: dict[str, Any]) -> None:
    """Refuse a checkpoint's state unless every part of it is what `save` writes, before anything takes it over."""
    record = Record(state, "The checkpoint's state")
    counters, schedules, means = (record.record(name) for name in ("counters", "schedules", "means"))
    step, *_ = (counters.whole(name) for name in ("step", "episodes", "updates", "last_checkpoint"))
    owed, best = counters.number("owed"), counters.content.get("best")
    pair = isinstance(best, list) and len(best) == 2 and all(isinstance(value, int | float) for value in best)
    known = {field.name for field in dataclasses.fields(trainer.counters)}
    at_once = record.record("settings").record("learner").whole("updates_per_call", least=1)  # a save leaves fewer
    if not 0 <= owed < at_once or not pair or set(counters) != known or set(schedules) != set(trainer.schedules):
        raise CheckpointError("The checkpoint's counters or schedules are not those of a run of this version.")
    for name in schedules:
        if schedules.whole(name, least=-1) > max(step, 1):
            raise CheckpointError(f"The checkpoint's schedule '{name}' is ahead of its step {step}.")
    for name in means:
        total, count = means.numbers(name, 2)
        if count < 1 or not math.isfinite(total):
            raise CheckpointError(f"The checkpoint's mean of '{name}' is none.")
    record.whole("metrics_bytes")
    record.record("best").values()
    if trainer.memory:
        record.whole("trainings")


def require_finite(trainer: Trainer, values: dict[str, float]) -> None:
    """Stop before anything is saved that can no longer learn."""
    broken = [name for name, value in values.items() if not np.isfinite(value)]
    if broken:
        known = trainer.checkpoints.steps()
        last = f"step {known[-1]}" if known else "none yet"
        raise EmuError(
            f"Training diverged at step {trainer.counters.step}: {', '.join(broken)} is not finite. Nothing of it was "
            f"saved (last checkpoint: {last}). Try a smaller learner.learning_rate or learner.max_grad_norm."
        )
