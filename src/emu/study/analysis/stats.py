"""Statistics over seeds and tasks, with intervals: arrays in, numbers out (`scores.py` makes the arrays from runs).

Scores come as one array per task, (..., seeds of that task); a statistic reduces them to (...), so that the same code
takes the scores themselves and all their bootstrap resamples at once. Intervals are percentile intervals of a
stratified bootstrap: seeds are drawn anew within each task, tasks are not (Agarwal et al., 2021). All is seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 5_000
LEVEL = 0.95
ENOUGH_SEEDS = 5  # below, resampling what was seen says too little about other seeds: no interval is given

Scores = Sequence[np.ndarray]
Statistic = Callable[[Scores], np.ndarray]


class Interval(NamedTuple):
    """A statistic and the interval it lies in with 95 % confidence; nan at both ends with too few seeds."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval to show: one of no width is not certainty, only seeds that are all alike."""
        return self.low < self.high


def enough(*samples: Scores) -> bool:
    """Whether every task of every sample has the seeds that an interval needs."""
    return min(task.shape[-1] for scores in samples for task in scores) >= ENOUGH_SEEDS


# Over seeds and over training time


def spread(values: np.ndarray) -> np.ndarray:
    """Standard deviation over the first axis, of a sample (n - 1); 0 where there is only one."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def time_average(steps: np.ndarray, values: np.ndarray, until: float) -> float:
    """1/t of the integral of a curve from 0 to t by the trapezoid rule; the first value holds before the first."""
    if until <= 0:
        return float(values[0])
    inside = steps[(steps > 0) & (steps < until)]
    grid = np.concatenate([[0.0], inside, [until]])
    return float(np.trapezoid(np.interp(grid, steps, values), grid) / until)


# Over tasks


def mean(scores: Scores) -> np.ndarray:
    """The mean over tasks of the mean over seeds."""
    return np.mean([task.mean(axis=-1) for task in scores], axis=0)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """The mean of the middle half of all scores of all tasks; a quarter, rounded down, is cut off at each end."""
    pooled = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return pooled[..., cut : pooled.shape[-1] - cut].mean(axis=-1)


def improvement(first: Scores, second: Scores) -> np.ndarray:
    """P(X > Y) + P(X = Y)/2 for a random seed of each on a random task: the mean over tasks and pairs of seeds."""
    return np.mean([_beats(x, y) for x, y in zip(first, second, strict=True)], axis=0)


def _beats(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x[..., :, None], y[..., None, :]
    return ((x > y) + 0.5 * (x == y)).mean(axis=(-2, -1))


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Share of scores above each threshold, mean over tasks: (..., thresholds)."""
    return np.mean([(task[..., None] > thresholds).mean(axis=-2) for task in scores], axis=0)


# Intervals


def resample(scores: Scores, rng: np.random.Generator, resamples: int = RESAMPLES) -> list[np.ndarray]:
    """Seeds drawn with replacement within each task: (resamples, seeds) per task."""
    return [task[rng.integers(len(task), size=(resamples, len(task)))] for task in scores]


def quantiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval, from (resamples, ...) values."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def interval(scores: Scores, statistic: Statistic = interquartile_mean, seed: int = 0) -> Interval:
    """A statistic of the scores with its bootstrap interval."""
    if not enough(scores):
        return Interval(float(statistic(scores)), np.nan, np.nan)
    low, high = quantiles(statistic(resample(scores, np.random.default_rng(seed))))
    return Interval(float(statistic(scores)), float(low), float(high))


def improvement_interval(first: Scores, second: Scores, seed: int = 0) -> Interval:
    """Probability of improvement of the first over the second, with its interval; both are resampled."""
    return _of_two(improvement, first, second, seed)


def difference(first: np.ndarray, second: np.ndarray, seed: int = 0) -> Interval:
    """Difference of two means over the seeds of one task, with its interval; both are resampled."""
    return _of_two(lambda x, y: mean(x) - mean(y), [first], [second], seed)


def separated(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether the seeds of one task show that the first is better: the interval of the difference lies above 0."""
    return difference(first, second).low > 0


def _of_two(statistic: Callable[[Scores, Scores], np.ndarray], first: Scores, second: Scores, seed: int) -> Interval:
    value = float(statistic(first, second))
    if not enough(first, second):
        return Interval(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    low, high = quantiles(statistic(resample(first, rng), resample(second, rng)))
    return Interval(value, float(low), float(high))


def profile_interval(
    scores: Scores, thresholds: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | tuple[np.ndarray, None, None]:
    """A performance profile and its pointwise interval, (thresholds,) each; no interval with too few seeds."""
    if not enough(scores):
        return profile(scores, thresholds), None, None
    low, high = quantiles(profile(resample(scores, np.random.default_rng(seed), 1_000), thresholds))
    return profile(scores, thresholds), low, high
