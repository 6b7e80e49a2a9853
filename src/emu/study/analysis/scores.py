"""From runs to scores: which number stands for a run, and how every label did on every task.

Where a task has a goal, teams are compared by their win rate, elsewhere by their return. Over several tasks a return
is put on a scale from 0 to 1: from the lowest to the highest evaluation of any run on that task, as marl-eval does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from emu.errors import EmuError, did_you_mean
from emu.files import quoted
from emu.study.analysis import stats
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.runs import RETURN, WIN_RATE, Run, aligned, by_env, by_label
from emu.study.analysis.stats import Interval

TRAINING_SHARE = 0.1  # the end of training over which the score of training episodes is taken
NORMALISED = "normalised return"

Measure = Literal["last", "overall", "best", "absolute"]


class Score(NamedTuple):
    """What says how well a team does on a task."""

    name: str
    metric: str  # of the greedy evaluations
    training: str  # of the training episodes, exploration included
    absolute: str  # in absolute.json

    def text(self, value: float, digits: int = 2) -> str:
        """A win rate with some digits after the point; a return, which may be any size, with four digits in all."""
        if self.metric == WIN_RATE or value == 0:
            return f"{value:.{digits}f}"
        return f"{value:.{max(0, 3 - int(np.floor(np.log10(abs(value)))))}f}" if np.isfinite(value) else f"{value}"

    def span(self, found: Interval, digits: int = 2) -> str:
        """The interval alone; nothing where there is none, or none that so many digits can show."""
        low, high = self.text(found.low, digits), self.text(found.high, digits)
        return f"[{low}, {high}]" if found.known and low != high else ""


WINS = Score("win rate", WIN_RATE, "train_win_rate", "win_rate")
RETURNS = Score("return", RETURN, "train_return", "return")


def score_of(runs: Sequence[Run]) -> Score:
    """What decides between runs of one task."""
    return WINS if any(run.has_goal for run in runs) else RETURNS


def measure_name(measure: Measure, runs: Sequence[Run]) -> str:
    """A measure in words, for runs of one task or several: `overall win rate`, `last normalised return`."""
    kinds = {score_of(group) for group in by_env(runs).values()}
    if kinds == {WINS}:
        return f"{measure} win rate"
    return f"{measure} {NORMALISED}" if kinds == {RETURNS} else f"{measure} score (win rate or {NORMALISED})"


# One number per run


def common_end(runs: Sequence[Run], metric: str = RETURN) -> float:
    """The last step that all runs have a value for."""
    return float(min(run.series(metric)[0][-1] for run in runs))


def values_at(runs: Sequence[Run], step: float, metric: str = WIN_RATE) -> np.ndarray:
    """One value per run at a step that all of them reached, interpolated between evaluations: (runs,)."""
    return np.array([np.interp(step, *_until(run, step, metric)) for run in runs])


def _until(run: Run, step: float, metric: str) -> tuple[np.ndarray, np.ndarray]:
    steps, values = run.series(metric)
    if step > steps[-1]:
        raise EmuError(
            f"{run.folder} has '{metric}' only up to step {steps[-1]:,.0f}, not {step:,.0f}. "
            f"Finish it with `emu resume {quoted(run.folder)}`, or ask for an earlier step."
        )
    return steps, values


def overall(runs: Sequence[Run], until: float | None = None, metric: str = WIN_RATE) -> np.ndarray:
    """The paper's overall win-rate of each run, (1/t) times the integral of its win rate from 0 to t: (runs,).

    Their mean is the paper's index; the same is done with returns. Without `until`, t is the last common step.
    """
    until = common_end(runs, metric) if until is None else until
    return np.array([stats.time_average(*_until(run, until, metric), until) for run in runs])


def best(runs: Sequence[Run], until: float, metric: str = WIN_RATE) -> np.ndarray:
    """The highest evaluation of each run up to a step: (runs,)."""
    series = [_until(run, until, metric) for run in runs]
    return np.array([values[steps <= until].max() for steps, values in series])


def run_scores(runs: Sequence[Run], measure: Measure, until: float | None = None) -> np.ndarray:
    """One number per run: its score at `until`, on average up to there, at best up to there, or its absolute one."""
    score = score_of(runs)
    if measure == "absolute":
        return np.array([np.mean(read_absolute(run.folder)[score.absolute]) for run in runs])
    until = common_end(runs) if until is None else until
    found: dict[str, Callable[[Sequence[Run], float, str], np.ndarray]]
    found = {"last": values_at, "overall": overall, "best": best}
    if measure not in found:
        raise EmuError(f"No measure is called '{measure}'. {did_you_mean(measure, get_args(Measure))}")
    return found[measure](runs, until, score.metric)


def training_scores(runs: Sequence[Run], until: float) -> np.ndarray | None:
    """Mean score of each run's training episodes in the last tenth before a step, (runs,); None if any has none.

    These are hundreds of episodes with the exploration of the end of training, where an evaluation is a few dozen
    greedy ones that may all end alike. A row stands for the episodes since the row before.
    """
    metric = score_of(runs).training
    if not all(run.has(metric) for run in runs):
        return None
    return np.array([_training_score(run, metric, until) for run in runs])


def _training_score(run: Run, metric: str, until: float) -> float:
    rows = [row for row in run.rows if metric in row]
    steps = np.array([row["step"] for row in rows])
    ended = np.diff([row.get("episodes", number) for number, row in enumerate(rows, 1)], prepend=0)
    began = np.concatenate([[0.0], steps[:-1]])
    late = np.minimum(steps, until) - np.maximum(began, (1 - TRAINING_SHARE) * until)  # steps of a row that count
    weights = np.maximum(ended, 1) * np.clip(late / np.maximum(steps - began, 1), 0, 1)
    if not weights.any():
        weights[-1] = 1.0  # nothing that late: the last row stands
    return float(np.average([row[metric] for row in rows], weights=weights))


# Over tasks


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
            scores[label].append(normalised(run_scores(groups[label], measure, until), group, until))
    return scores


def normalised(scores: np.ndarray, runs: Sequence[Run], until: float) -> np.ndarray:
    """Returns from the lowest (0) to the highest (1) evaluation of all runs of a task; win rates as they are.

    marl-eval normalises in the same way (Gorsane et al., 2022).
    """
    if score_of(runs) == WINS:
        return scores
    values = np.concatenate([values[steps <= until] for steps, values in (run.series(RETURN) for run in runs)])
    low, high = float(values.min()), float(values.max())
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


# Summaries


class Summary(NamedTuple):
    """How one label did in one environment, at the last step that all runs there reached."""

    env: str
    label: str
    score: Score
    steps: int
    seeds: np.ndarray  # overall score of every seed: what labels are ranked by
    last: Interval  # mean over seeds of the last evaluation
    iqm: Interval  # interquartile mean of the same
    overall: Interval
    best: float  # the highest mean of an evaluation
    training: Interval | None  # mean of the training episodes at the end, if every run has logged them
    absolute: Interval | None  # mean absolute score, if every run has one
    ahead: bool = False  # its overall score is separated from that of every other label in the environment


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """A summary per environment and label, in the order of the runs."""
    found = []
    for env, group in by_env(runs).items():
        until = common_end(group)
        here = [_summary(env, label, members, until) for label, members in by_label(group).items()]
        found += [summary._replace(ahead=_is_ahead(summary, here)) for summary in here]
    return found


def _is_ahead(summary: Summary, everyone: list[Summary]) -> bool:
    others = [other for other in everyone if other.label != summary.label]
    return bool(others) and all(stats.separated(summary.seeds, other.seeds) for other in others)


def _summary(env: str, label: str, runs: list[Run], until: float) -> Summary:
    score, last = score_of(runs), run_scores(runs, "last", until)
    whole = run_scores(runs, "overall", until)
    steps, values = aligned(runs, score.metric)
    training = training_scores(runs, until)
    measured = all(read_absolute(run.folder, missing_ok=True) for run in runs)
    return Summary(
        env=env,
        label=label,
        score=score,
        steps=int(until),
        seeds=whole,
        last=stats.interval([last], stats.mean),
        iqm=stats.interval([last]),
        overall=stats.interval([whole], stats.mean),
        best=max(float(values.mean(axis=0)[steps <= until].max()), float(last.mean())),
        training=None if training is None else stats.interval([training], stats.mean),
        absolute=stats.interval([run_scores(runs, "absolute")], stats.mean) if measured else None,
    )
