"""Which episodes are desirable: those that reached the goal, or a return that is given or follows the last returns."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from emu.errors import ConfigError, EmuError

WINDOW = 1_000  # last episodes of whose returns the quantile is taken


class Judge:
    """Judges episodes in the order in which they are learnt.

    With neither a threshold nor a quantile an episode is desirable when it was `won`. Returns are undiscounted. A
    quantile is taken of the returns before the episode; the first one, which has nothing to surpass, is not desirable.
    """

    def __init__(self, threshold: float | None = None, quantile: float | None = None) -> None:
        if quantile is not None and not 0 <= quantile <= 1:
            raise ConfigError(f"memory: return_quantile must lie between 0 and 1, got {quantile}")
        self.threshold, self.quantile = threshold, quantile
        self.recent: deque[float] = deque(maxlen=WINDOW)

    def __call__(self, episode: Any) -> bool:
        if self.threshold is None and self.quantile is None:
            if episode.won is None:
                raise EmuError("an episode does not say whether it was won: give won, or set return_threshold")
            return bool(episode.won)
        total = float(np.sum(episode.reward, dtype=np.float64))
        threshold = self.current()
        if self.quantile is not None:
            self.recent.append(total)
        return threshold is not None and total >= threshold

    def current(self) -> float | None:
        """The return from which on the next episode will be desirable; none while only a goal or nothing decides."""
        if self.quantile is None:
            return self.threshold
        return float(np.quantile(self.recent, self.quantile)) if self.recent else None

    def save(self) -> np.ndarray:
        return np.array(self.recent, np.float64)

    def load(self, recent: np.ndarray) -> None:
        self.recent = deque((float(value) for value in recent), maxlen=WINDOW)
