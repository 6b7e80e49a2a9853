"""Make finished runs small enough to commit: settings, provenance and thinned metrics stay.

    python scripts/thin_results.py results/gridworld --snapshots runs/gridworld/emu_qplex/seed1

Every evaluation row stays as it is. Of the training rows 60 a run stay, evenly spread: each stands for itself and for
those left out since the one before, with their mean win rate, return and length (weighed by episodes); its other values
are as they were logged, with five digits. Checkpoints, timing, logs, tables and other snapshots are removed: there is
no way back, so work on a copy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
from pathlib import Path

import numpy as np

ROWS = 60
KEPT_FILES = {"config.json", "meta.json", "metrics.jsonl", "absolute.json", "study.json"}
AVERAGED = ("train_win_rate", "train_return", "train_length")
Row = dict[str, float]


def thinned(rows: list[Row], count: int = ROWS) -> list[Row]:
    """All evaluation rows and at most `count` training rows, in their order."""
    training = [row for row in rows if "test_return" not in row]
    ends = np.unique(np.linspace(0, len(training), min(count, len(training)) + 1).round().astype(int))
    before, stands_for = 0.0, {}
    for start, end in itertools.pairwise(ends):
        group = training[start:end]
        stands_for[id(group[-1])] = merged(group, before)
        before = group[-1].get("episodes", before)
    return [stands_for.get(id(row), row) for row in rows if "test_return" in row or id(row) in stands_for]


def merged(group: list[Row], episodes_before: float) -> Row:
    """The last row of a group with what training episodes did in all of it."""
    row = dict(group[-1])
    ended = np.diff([episodes_before, *(r.get("episodes", 0.0) for r in group)])
    for name in AVERAGED:
        having = [k for k, r in enumerate(group) if name in r]
        if having:
            weights = np.maximum(ended[having], 0) + 1e-9
            row[name] = float(np.average([group[k][name] for k in having], weights=weights))
    return {name: shortened(value) for name, value in row.items()}


def shortened(value: float) -> float:
    return value if isinstance(value, int) or value != value else float(f"{value:.5g}")


def thin(folder: Path, snapshots: set[Path]) -> None:
    for run in sorted(path.parent for path in folder.rglob("metrics.jsonl")):
        path = run / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in thinned(rows)))
        for item in run.iterdir():
            if item.is_dir() and not (item.name == "snapshots" and run in snapshots):
                shutil.rmtree(item)
            elif item.is_file() and item.name not in KEPT_FILES:
                item.unlink()
    for name in ("logs", "tables"):
        shutil.rmtree(folder / name, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a study, or any folder of runs")
    parser.add_argument("--snapshots", nargs="*", default=[], help="runs in it that keep theirs")
    options = parser.parse_args()
    thin(options.folder, {options.folder / name for name in options.snapshots})


if __name__ == "__main__":
    main()
