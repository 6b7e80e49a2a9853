"""An environment that costs as much as it is told to, in a module of its own: workers import no more than this."""

from __future__ import annotations

import time

import numpy as np

from emu.envs import EnvSpec, PythonEnv, View
from emu.types import Outcome


class Cheap(PythonEnv):
    """Five agents of SMAC-like sizes; a step computes for a given time and says nothing of interest."""

    def __init__(self, work: float = 100.0, limit: int = 100) -> None:
        self.spec = EnvSpec("cheap", "1", 5, 11, 80, 120, limit, 24, True, (0.0, 1.0))
        self.work, self.limit = work / 1e6, limit
        self.shown = View(np.ones((5, 80), np.float32), np.ones(120, np.float32), np.ones((5, 11), bool))

    def reset(self, seed: int) -> View:
        self.time = 0
        return self.shown

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        until = time.perf_counter() + self.work
        while time.perf_counter() < until:
            pass
        self.time += 1
        return self.shown, Outcome(0.0, False, self.time >= self.limit, False)
