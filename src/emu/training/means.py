"""Means of what training reports between two rows of metrics."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


class Means:
    """Running means of device scalars; the devices are asked only when a mean is needed, so nothing waits for them."""

    def __init__(self) -> None:
        self._pending: list[dict[str, Any]] = []
        self._sums: dict[str, list[float]] = {}  # name -> [sum, count]

    def add(self, metrics: dict[str, Any]) -> None:
        self._pending.append(metrics)

    def _settle(self) -> None:
        for metrics in jax.device_get(self._pending):
            for name, values in metrics.items():
                entry = self._sums.setdefault(name, [0.0, 0])
                for value in np.atleast_1d(values).tolist():
                    entry[0] += value
                    entry[1] += 1
        self._pending = []

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        self._settle()
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def save(self) -> dict[str, list[float]]:
        self._settle()
        return {name: list(entry) for name, entry in self._sums.items()}

    def load(self, sums: dict[str, list[float]]) -> None:
        self._pending, self._sums = [], {name: list(entry) for name, entry in sums.items()}
