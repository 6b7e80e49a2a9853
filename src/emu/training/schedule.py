"""What depends on the step alone: when something is due, and how much is left to chance."""

from __future__ import annotations

import dataclasses

from emu.config import RolloutConfig


@dataclasses.dataclass
class Schedule:
    """Something that happens once in every so many environment steps.

    Steps come in chunks and overshoot, so what counts is whether an interval was entered that is not done yet.
    """

    interval: int  # environment steps; 0: never
    end: int | None = None  # the last step of the run, at which it is due in any case
    done: int = 0  # the interval that was done last; -1: not even that of step 0

    def due(self, step: int) -> bool:
        if not self.interval:
            return False
        return step // self.interval > self.done or (self.end is not None and step >= self.end)

    def mark(self, step: int) -> None:
        """It was done at this step."""
        self.done = step // (self.interval or step or 1)


def exploration(rollout: RolloutConfig, step: int) -> float:
    """Epsilon at a step: 1 while actions are random, then a straight line from `epsilon_start` to `epsilon_end`."""
    if step < rollout.random_steps:
        return 1.0
    share = min(1.0, (step - rollout.random_steps) / rollout.epsilon_steps)
    return rollout.epsilon_start + share * (rollout.epsilon_end - rollout.epsilon_start)
