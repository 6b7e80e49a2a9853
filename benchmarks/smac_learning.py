"""How true learning in the SMAC-compatible simulator is: curves of QMIX and QPLEX beside public logs of the real game.

    python benchmarks/smac_learning.py results/smac_sim6_qmix --out beside.png

For every run, and for the seeds of a map together: the win rate at 200,000, 500,000 and a million steps (mean of the
evaluations within 25,000 steps), how far consecutive evaluations jump (standard deviation, while the mean of five is
0.2 to 0.8), how many are exactly 0 or 1 (while it is 0.3 to 0.7), how much the returns of one evaluation's 32 battles
vary by their win rate, and what exploring at 0.05 costs: greedy and training win rate where the greedy one is about 0.5
and 0.9. `--out` draws the curves, with the real runs' range and median at the marks.

The real figures are of runs with PyMARL's settings on SC2 4.10 and 4.6.2 that others logged in public
(docs/envs/smac_truth.md names them): ranges are over 8 to 22 runs of QMIX and 5 to 8 of QPLEX, the rest is of a map.
32 battles of one unchanged policy jump by 0.117.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.study.analysis.names import readable
from emu.study.analysis.runs import WIN_RATE, Run, find_runs, load_runs, smoothed
from emu.study.figures import style

MARKS = (200_000, 500_000, 1_000_000)
NEAR = 25_000  # steps to both sides of a mark
SPREAD_AT = (0.5, 0.75, 0.9)  # win rates, give or take 0.1
BANDS = ((0.4, 0.6), (0.85, 0.95))  # greedy win rates at which the cost of exploring is looked at
SMOOTH = 3  # evaluations, in the picture
EXPLORED = 60_000  # steps after which the training episodes near an evaluation explore at 0.05


class Range(NamedTuple):
    """Win rates of several runs."""

    low: float
    median: float
    high: float


class Real(NamedTuple):
    """What the logs of the real game say of a map."""

    at: dict[str, tuple[Range, ...]]  # by algorithm, at each of MARKS
    jump: float
    spread: tuple[float, float, float]  # standard deviation of the returns of an evaluation, at each of SPREAD_AT
    costs: str  # greedy -> with exploration


REAL = {
    "smac/2s3z": Real(
        {
            "qmix": (Range(0.21, 0.37, 0.62), Range(0.72, 0.91, 0.95), Range(0.91, 0.97, 0.98)),
            "qplex": (Range(0.13, 0.22, 0.59), Range(0.84, 0.91, 0.96), Range(0.92, 0.97, 0.97)),
        },
        0.155,
        (3.4, 2.7, 1.6),
        ".50→.40, .91→.83",
    ),
    "smac/8m": Real(
        {
            "qmix": (Range(0.57, 0.71, 0.82), Range(0.56, 0.91, 0.95), Range(0.94, 0.96, 0.99)),
            "qplex": (Range(0.72, 0.79, 0.85), Range(0.84, 0.88, 0.92), Range(0.91, 0.96, 0.99)),
        },
        0.19,
        (4.1, 3.4, 2.0),
        ".55→.37, .91→.74",
    ),
    "smac/3s5z": Real(
        {
            "qmix": (Range(0.09, 0.21, 0.42), Range(0.53, 0.69, 0.81), Range(0.82, 0.89, 0.94)),
            "qplex": (Range(0.14, 0.33, 0.49), Range(0.49, 0.73, 0.82), Range(0.82, 0.93, 0.94)),
        },
        0.146,
        (2.9, 2.3, 1.4),
        ".51→.34, .90→.77",
    ),
    "smac/5m_vs_6m": Real(
        {
            "qmix": (Range(0.00, 0.01, 0.09), Range(0.00, 0.24, 0.60), Range(0.06, 0.53, 0.72)),
            "qplex": (Range(0.00, 0.00, 0.02), Range(0.23, 0.30, 0.38), Range(0.47, 0.52, 0.59)),
        },
        0.124,
        (5.0, 4.3, 3.2),
        ".51→.20, .87→.47",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Learning in the simulator beside public logs of the real game.")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--out", type=Path, help="a picture of the curves: .png, .pdf or .svg")
    args = parser.parse_args()
    alike: dict[tuple[str, str, str], list[Run]] = {}
    for run in load_runs(find_runs(args.runs)):
        alike.setdefault((run.env, run.algo, run.version), []).append(run)
    for (env, algo, version), runs in alike.items():
        groups = [[run] for run in runs] + ([runs] if len(runs) > 1 else [])
        for group in groups:
            seeds = ", ".join(str(run.seed) for run in group)
            print(f"{env} {algo} seed{'s' * (len(group) > 1)} {seeds}, {version}")
            for line in describe(group, REAL.get(env)):
                print("   ", line)
    if args.out:
        draw(list(alike.values()), args.out)


def draw(groups: list[list[Run]], out: Path) -> None:
    """A panel for every map and algorithm: a line for each seed, and the real runs' range and median at the marks."""
    rows, columns = style.grid_of(len(groups))
    with style.figure(out, rows=rows, columns=columns) as (made, axes):
        for panel, runs in zip(axes.flat, groups, strict=False):
            for run, colour in zip(runs, style.COLOURS, strict=False):
                steps, wins = run.series(WIN_RATE)
                panel.plot(
                    steps, smoothed(wins, SMOOTH), color=colour, alpha=0.8, linewidth=1, label=f"seed {run.seed}"
                )
            show_real(panel, runs)
            name = f"{runs[0].env.removeprefix('smac/')}, {readable(runs[0].algo)}"
            style.over_steps(panel, WIN_RATE, name, SMOOTH)
        style.hide_rest(axes, len(groups))
        style.legend(made, axes)


def show_real(panel: Any, runs: Sequence[Run]) -> None:
    """The real runs' range and median at the marks that these runs have reached."""
    real = REAL.get(runs[0].env)
    reached = max(run.series(WIN_RATE)[0][-1] for run in runs) + NEAR
    for mark, known in zip(MARKS, real.at.get(runs[0].algo, ()) if real else (), strict=False):
        if mark <= reached:
            reach = [[known.median - known.low], [known.high - known.median]]
            look: dict[str, Any] = {"fmt": "s", "color": "#333333", "capsize": 4}
            panel.errorbar(mark, known.median, reach, label="real game: range, median", **look)


def describe(runs: Sequence[Run], real: Real | None) -> list[str]:
    """The lines that are printed of a run, or of several seeds pooled."""
    lines = []
    for k, mark in enumerate(MARKS):
        near = [wins[np.abs(steps - mark) <= NEAR] for steps, wins in (run.series(WIN_RATE) for run in runs)]
        at = [values.mean() for values in near if len(values)]
        if at:
            known = real.at.get(runs[0].algo) if real else None
            beside = f"   real {known[k].low:.2f} to {known[k].high:.2f}" if known else ""
            lines.append(f"at {mark // 1000:>5}K   {np.mean(at):.2f}{beside}")
    differences, inner = (np.concatenate(parts) for parts in zip(*map(middle_of, runs), strict=True))
    jump = float(np.sqrt(np.mean(differences**2))) if len(differences) else float("nan")
    lines.append(f"jumps      {jump:.3f} of {len(differences)}" + (f"   real {real.jump}" if real else ""))
    exact = int(np.isin(inner, (0.0, 1.0)).sum())
    lines.append(f"exactly 0 or 1: {exact} of {len(inner)} evaluations in mid-learning")
    spread = ", ".join(f"{value:.1f}" for value in spreads(runs))
    beside = "   real " + ", ".join(map(str, real.spread)) if real else ""
    lines.append(f"returns of an evaluation at 0.5, 0.75, 0.9 vary by {spread}{beside}")
    costs = ", ".join(f"{greedy:.2f}→{training:.2f}" for greedy, training in exploring(runs))
    lines.append(f"exploring  {costs or 'not there yet'}" + (f"   real {real.costs}" if real else ""))
    return lines


def mean_of_five(wins: np.ndarray) -> np.ndarray:
    """Centred means, NaN where there are no five."""
    means = np.full(len(wins), np.nan)
    if len(wins) >= 5:
        means[2:-2] = np.convolve(wins, np.ones(5) / 5, "valid")
    return means


def middle_of(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Of mid-learning: differences of consecutive evaluations, and the evaluations themselves."""
    wins = run.series(WIN_RATE)[1]
    means = mean_of_five(wins)
    differences = np.diff(wins)[(means[:-1] > 0.2) & (means[:-1] < 0.8)]
    return differences, wins[(means > 0.3) & (means < 0.7)]


def spreads(runs: Sequence[Run]) -> list[float]:
    """Mean standard deviation of the returns of an evaluation whose win rate is near each of SPREAD_AT."""
    wins = np.concatenate([run.series(WIN_RATE)[1] for run in runs])
    deviations = np.concatenate([run.series("test_return_std")[1] for run in runs])
    near = [deviations[np.abs(wins - rate) <= 0.1] for rate in SPREAD_AT]
    return [float(values.mean()) if len(values) else float("nan") for values in near]


def exploring(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """(greedy, training) win rates over the evaluations whose mean of five lies in each band."""
    pairs = []
    for band in BANDS:
        greedy, training = (np.concatenate(parts) for parts in zip(*(_in_band(run, band) for run in runs), strict=True))
        if len(training):
            pairs.append((float(greedy.mean()), float(training.mean())))
    return pairs


def _in_band(run: Run, band: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Greedy win rates of one run in a band, and the training win rates near them."""
    steps, wins = run.series(WIN_RATE)
    means = mean_of_five(wins)
    train_steps, training = run.series("train_win_rate")
    inside = np.flatnonzero((means >= band[0]) & (means <= band[1]) & (steps >= EXPLORED))
    near = [training[np.abs(train_steps - steps[i]) <= 10_000] for i in inside]
    return wins[inside], np.concatenate([np.array([]), *near])


if __name__ == "__main__":
    main()
