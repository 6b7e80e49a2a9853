"""Numbers that compare runs: over seeds, over training time, over tasks, with intervals.

Scores come as one array per task, (..., seeds of that task); a statistic reduces them to (...), so that the same code
takes the scores themselves and all their bootstrap resamples at once. Intervals are percentile intervals of a
stratified bootstrap: seeds are drawn anew within each task, tasks are not (Agarwal et al., 2021). All is seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from emu.errors import EmuError, did_you_mean
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.runs import WIN_RATE, Run, aligned, by_env, by_label

RESAMPLES = 5_000
LEVEL = 0.95

Scores = Sequence[np.ndarray]
Statistic = Callable[[Scores], np.ndarray]
Measure = Literal["last", "overall", "best", "absolute"]


class Interval(NamedTuple):
    """A statistic and the interval it lies in with 95 % confidence."""

    value: float
    low: float
    high: float


class Summary(NamedTuple):
    """How one label did in one environment, at the last step that all runs there reached."""

    env: str
    label: str
    seeds: int
    steps: int
    last: Interval  # mean win rate over seeds
    iqm: Interval  # interquartile mean of the same
    overall: Interval  # mean overall win-rate
    overall_std: float  # over seeds; nan with one seed
    best: float  # the highest mean win rate
    absolute: Interval | None  # mean absolute win rate, if every run has one


# Over seeds


def spread(values: np.ndarray) -> np.ndarray:
    """Standard deviation over the first axis, of a sample (n - 1); 0 where there is only one."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def mean_and_variance(runs: Sequence[Run], step: float, metric: str = WIN_RATE) -> tuple[float, float]:
    """Mean and sample variance over seeds at one step, interpolated between tests."""
    values = values_at(runs, step, metric)
    return float(values.mean()), float(spread(values) ** 2)


def values_at(runs: Sequence[Run], step: float, metric: str = WIN_RATE) -> np.ndarray:
    """One value per run at a step that all of them reached, (runs,)."""
    return np.array([np.interp(step, *_until(run, step, metric)) for run in runs])


def _until(run: Run, step: float, metric: str) -> tuple[np.ndarray, np.ndarray]:
    steps, values = run.series(metric)
    if step > steps[-1]:
        raise EmuError(
            f"{run.folder} has '{metric}' only up to step {steps[-1]:,.0f}, not {step:,.0f}. "
            f"Finish it with `emu resume {run.folder}`, or ask for an earlier step."
        )
    return steps, values


def common_end(runs: Sequence[Run], metric: str = WIN_RATE) -> float:
    """The last step that all runs have a value for."""
    return float(min(run.series(metric)[0][-1] for run in runs))


# Over training time


def time_average(steps: np.ndarray, values: np.ndarray, until: float) -> float:
    """1/t of the integral of a curve from 0 to t by the trapezoid rule; the first value holds before the first test."""
    if until <= 0:
        return float(values[0])
    inside = steps[(steps > 0) & (steps < until)]
    grid = np.concatenate([[0.0], inside, [until]])
    return float(np.trapezoid(np.interp(grid, steps, values), grid) / until)


def overall_win_rates(runs: Sequence[Run], until: float | None = None) -> np.ndarray:
    """The paper's overall win-rate of each run, (1/t) times the integral of its win rate from 0 to t: (runs,).

    Their mean is the paper's index. Without `until`, t is the last step that all runs reached.
    """
    until = common_end(runs) if until is None else until
    return np.array([time_average(*_until(run, until, WIN_RATE), until) for run in runs])


# Over tasks


def mean(scores: Scores) -> np.ndarray:
    """The mean over tasks of the mean over seeds."""
    return np.mean([task.mean(axis=-1) for task in scores], axis=0)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """The mean of the middle half of all scores: a quarter of them, rounded down, is cut off at each end."""
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
    resampled = resample(scores, np.random.default_rng(seed))
    low, high = quantiles(statistic(resampled))
    return Interval(float(statistic(scores)), float(low), float(high))


def improvement_interval(first: Scores, second: Scores, seed: int = 0) -> Interval:
    """Probability of improvement of the first over the second, with its interval; both are resampled."""
    rng = np.random.default_rng(seed)
    low, high = quantiles(improvement(resample(first, rng), resample(second, rng)))
    return Interval(float(improvement(first, second)), float(low), float(high))


def profile_interval(
    scores: Scores, thresholds: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A performance profile and its pointwise interval, (thresholds,) each."""
    rng = np.random.default_rng(seed)
    low, high = quantiles(profile(resample(scores, rng, 1_000), thresholds))
    return profile(scores, thresholds), low, high


# From runs to scores


def run_scores(runs: Sequence[Run], measure: Measure, until: float | None = None) -> np.ndarray:
    """One number per run: its win rate at `until`, on average up to there, at best up to there, or its absolute one."""
    until = common_end(runs) if until is None else until
    if measure == "last":
        return values_at(runs, until)
    if measure == "overall":
        return overall_win_rates(runs, until)
    if measure == "best":
        series = [_until(run, until, WIN_RATE) for run in runs]
        return np.array([values[steps <= until].max() for steps, values in series])
    if measure == "absolute":
        return np.array([np.mean(read_absolute(run.folder)["win_rate"]) for run in runs])
    raise EmuError(f"No measure is called '{measure}'. {did_you_mean(measure, get_args(Measure))}")


def scores_by_label(runs: Sequence[Run], measure: Measure) -> dict[str, list[np.ndarray]]:
    """Scores of every label, one array per environment; every label needs runs in every environment.

    Within an environment all runs are measured up to the same step, the last that all of them reached.
    """
    labels = list(by_label(runs))
    scores: dict[str, list[np.ndarray]] = {label: [] for label in labels}
    for env, group in by_env(runs).items():
        until, groups = common_end(group), by_label(group)
        for label in labels:
            if label not in groups:
                raise EmuError(
                    f"'{label}' has no run on {env}, so it cannot be compared over all environments. "
                    "Name folders in which every label has runs on the same environments."
                )
            scores[label].append(run_scores(groups[label], measure, until))
    return scores


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """A summary per environment and label, in the order of the runs."""
    found = []
    for env, group in by_env(runs).items():
        until = common_end(group)
        found += [_summary(env, label, members, until) for label, members in by_label(group).items()]
    return found


def _summary(env: str, label: str, runs: list[Run], until: float) -> Summary:
    last, overall = [run_scores(runs, "last", until)], [run_scores(runs, "overall", until)]
    steps, values = aligned(runs)
    absolute = None
    if all(read_absolute(run.folder, missing_ok=True) for run in runs):
        absolute = interval([run_scores(runs, "absolute")], mean)
    return Summary(
        env=env,
        label=label,
        seeds=len(runs),
        steps=int(until),
        last=interval(last, mean),
        iqm=interval(last),
        overall=interval(overall, mean),
        overall_std=float(spread(overall[0])) if len(runs) > 1 else float("nan"),
        best=max(float(values.mean(axis=0)[steps <= until].max()), float(last[0].mean())),
        absolute=absolute,
    )
