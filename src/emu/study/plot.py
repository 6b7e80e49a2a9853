"""Learning curves: mean over seeds with its spread, one line per algorithm."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.errors import EmuError, did_you_mean
from emu.metrics import read_rows
from emu.train import read_config

LABELS = {"test_win_rate": "test win rate", "test_return": "test return", "test_length": "episode length"}
PICTURES = (".png", ".pdf", ".svg")
COLOURS = ("#2f6db5", "#c8553d", "#3c8d5a", "#8a5aa8", "#c49a1a", "#4f4f4f", "#2aa7a0", "#d06a9c")


class Curve(NamedTuple):
    """One run's values of one metric."""

    label: str
    env: str
    version: str
    steps: np.ndarray
    values: np.ndarray


def read_curve(folder: Path, metric: str) -> Curve:
    rows = read_rows(folder)
    points = [(row["step"], row[metric]) for row in rows if metric in row]
    if not points:
        names = {name for row in rows for name in row}
        raise EmuError(f"{folder} has no values of '{metric}'. {did_you_mean(metric, names)}")
    config = read_config(folder)
    steps, values = np.array(points, dtype=float).T
    return Curve(config.algo, config.env, _env_version(folder), steps, values)


def _env_version(folder: Path) -> str:
    try:
        env = json.loads((folder / "meta.json").read_text())["env"]
    except (OSError, ValueError, KeyError):
        return "unknown"
    return f"{env['name']} {env['version']}"


def aligned(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Runs of one algorithm on common steps, those of all their tests, as far as all of them got: (P,), (runs, P)."""
    grid = np.unique(np.concatenate([c.steps for c in curves]))
    grid = grid[grid <= min(c.steps[-1] for c in curves)]
    return grid, np.stack([np.interp(grid, c.steps, c.values) for c in curves])


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run folders among the given folders and below them."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise EmuError(f"{path} does not exist.")
        found += [p.parent for p in sorted(path.rglob("metrics.jsonl"))]
    if not found:
        raise EmuError(f"No run was found in {', '.join(map(str, paths))}.")
    return list(dict.fromkeys(found))


def plot_curves(
    folders: Sequence[Path], out: Path, metric: str = "test_win_rate", mix_versions: bool = False, title: str = ""
) -> Path:
    """Draw the curves of the given runs, grouped by algorithm; shaded: one standard deviation over seeds."""
    if out.suffix not in PICTURES:
        raise EmuError(f"A picture is a .png, .pdf or .svg file, not '{out.name}'.")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    curves = [read_curve(folder, metric) for folder in folders]
    versions = {(c.env, c.version) for c in curves}
    if len(versions) > 1 and not mix_versions:
        names = ", ".join(f"{env} ({version})" for env, version in sorted(versions))
        raise EmuError(
            f"These runs come from different environments or versions of one: {names}. Their numbers are not "
            "comparable. Plot them apart, or say --mix-versions if that is what you want."
        )
    groups: dict[str, list[Curve]] = defaultdict(list)
    for curve in curves:
        groups[curve.label].append(curve)

    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=150, layout="constrained")
    for (label, group), colour in zip(sorted(groups.items()), COLOURS * len(groups), strict=False):
        steps, values = aligned(group)
        mean, spread = values.mean(axis=0), values.std(axis=0)
        seeds = f"{len(group)} seed{'s' if len(group) > 1 else ''}"
        axes.plot(steps, mean, color=colour, label=f"{label} ({seeds})", linewidth=1.8)
        low, high = mean - spread, mean + spread
        if metric == "test_win_rate":
            low, high = low.clip(0, 1), high.clip(0, 1)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    if metric == "test_win_rate":
        axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}K" if x else "0")
    axes.set(xlabel="environment steps", ylabel=LABELS.get(metric, metric), title=title or curves[0].env)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    plt.close(figure)
    return out
