"""Reading finished runs: which folders hold some, what each is called, and its values over time.

A *study folder* has a `study.json` that names its runs (label, scale); any other folder of runs is read as well, and a
curve is then called by its algorithm, and by the settings in which it differs from other runs of that algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.config import Config, to_dict
from emu.config.presets import preset
from emu.errors import EmuError, did_you_mean
from emu.run.folder import RunFolder, find_run_folders, read_config
from emu.run.metrics import read_rows
from emu.run.record import Record
from emu.study.analysis.absolute import read_absolute
from emu.study.analysis.names import short_number

WIN_RATE = "test_win_rate"
RETURN = "test_return"
# Settings that say how long and where a run goes on, not what it computes.
INCIDENTAL = ("seed", "algo", "env", "steps", "devices", "log_interval", "tensorboard")
INCIDENTAL_PARTS = ("checkpoint.", "rollout.workers", "rollout.where", "rollout.cluster", "rollout.timeout")
# Runs of version 0.1 did not write down whether their task has a goal.
WITH_GOAL = ("gridworld", "matrix/", "smac/", "football/")
WITHOUT_GOAL = ("atari/", "gymnasium:")

Warn = Callable[[str], None]


class Run(NamedTuple):
    """One finished (or interrupted) run."""

    folder: Path
    label: str  # what its curve is called
    env: str
    version: str  # of the environment
    seed: int
    algo: str
    config: Config
    rows: list[dict[str, float]]
    scale: str = ""  # "paper", "laptop", or "" outside a study
    has_goal: bool = True  # whether a win rate means anything; else teams are compared by their return

    def has(self, metric: str) -> bool:
        return any(metric in row for row in self.rows)

    def series(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of one metric, (P,) each."""
        points = [(row["step"], row[metric]) for row in self.rows if metric in row]
        if not points:
            names = {name for row in self.rows for name in row}
            raise EmuError(f"{self.folder} has no values of '{metric}'. {did_you_mean(metric, names)}")
        steps, values = np.array(points, dtype=float).T
        return steps, values

    def last(self, metric: str) -> float:
        return float(self.series(metric)[1][-1])


# Finding and loading


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run folders among the given folders and below them."""
    if not paths:
        raise EmuError("Name a run's folder, or a folder that contains runs.")
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise EmuError(f"{path} does not exist.")
        found += find_run_folders(path)
    if not found:
        raise EmuError(f"No run was found in {', '.join(map(str, paths))}.")
    return list(dict.fromkeys(found))


def load_runs(paths: Sequence[Path], warn: Warn | None = None) -> list[Run]:
    """All runs in and below the given folders, each once; labels come from the nearest `study.json` above a run.

    Runs of a study come in its order, which is the order of legends and tables. A run that cannot be read, or that has
    no evaluation yet, is an error; with `warn` it is named there and left out, so that it does not cost the others.
    """
    studies: dict[Path, dict[str, Any]] = {}
    found = [run for folder in find_runs(paths) if (run := _load_or_warn(folder, studies, warn))]
    if not found:
        raise EmuError(f"None of the runs in {', '.join(map(str, paths))} can be used.")
    listed = [parent.parent / entry["folder"] for parent, study in studies.items() for entry in study.get("runs", [])]
    place = {folder: number for number, folder in enumerate(listed)}
    runs = with_common_goal(_told_apart(found))
    return sorted(runs, key=lambda run: place.get(run.folder.resolve(), len(listed)))


def with_common_goal(runs: Sequence[Run]) -> list[Run]:
    """Runs of one environment agree on whether it has a goal: one that reached it speaks for those that never did."""
    reached = {run.env for run in runs if run.has_goal}
    return [run._replace(has_goal=run.env in reached) for run in runs]


def _load_or_warn(folder: Path, studies: dict[Path, dict[str, Any]], warn: Warn | None) -> Run | None:
    try:
        run = _load_run(folder, studies)
        if not run.has(RETURN):
            raise EmuError(f"{folder} has no evaluation yet.")
        read_absolute(folder, missing_ok=True)
    except EmuError as error:
        if warn is None:
            raise
        warn(f"Left out: {error}")
        return None
    return run


def load_run(folder: Path) -> Run:
    return _load_run(folder, {})


def _load_run(folder: Path, studies: dict[Path, dict[str, Any]]) -> Run:
    config = read_config(folder)
    study, entry = _study_of(folder, studies)
    env, rows = _environment(folder), checked_rows(folder)
    return Run(
        folder=folder,
        label=str(entry.get("label") or config.algo),
        env=config.env,
        version=f"{env['name']} {env['version']}" if env else "unknown",
        seed=config.seed,
        algo=config.algo,
        config=config,
        rows=rows,
        scale=str(study.get("scale") or ""),
        has_goal=_has_goal(config.env, env.get("has_goal"), rows),
    )


def _environment(folder: Path) -> dict[str, Any]:
    """What a run says of its environment: name, version, and since 0.2 whether it has a goal; {} where it says nothing.

    A file that is there but says nonsense is refused: whoever compares runs must know what made them.
    """
    path = RunFolder(folder).meta
    if not path.exists():
        return {}
    env = Record.read(path).record("env")
    return {"name": env.text("name"), "version": env.text("version"), "has_goal": env.content.get("has_goal")}


def checked_rows(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, all of them numbers by name with a step that never falls."""
    try:
        rows, before = read_rows(folder), -math.inf
    except (OSError, ValueError) as error:
        raise EmuError(f"The metrics of {folder} cannot be read: {error}.") from error
    for number, row in enumerate(rows, 1):
        values = row.values() if isinstance(row, dict) else ["?"]
        if not all(isinstance(value, int | float) for value in values):
            raise EmuError(f"The metrics of {folder} cannot be used: row {number} does not hold numbers by name.")
        if not before <= row.get("step", math.nan) < math.inf:
            raise EmuError(f"The metrics of {folder} cannot be used: the step of row {number} is missing or falls.")
        before = row["step"]
    return rows


def _has_goal(env: str, recorded: Any, rows: list[dict[str, float]]) -> bool:
    """`spec.has_goal` as it was written down; for older runs by the environment's name, or else by what happened."""
    if isinstance(recorded, bool):
        return recorded
    if env.startswith(WITH_GOAL) or env.startswith(WITHOUT_GOAL):
        return env.startswith(WITH_GOAL)
    return any(row.get(name, 0) > 0 for row in rows for name in (WIN_RATE, "train_win_rate"))


# Studies and labels


def _study_of(folder: Path, studies: dict[Path, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The study that lists a run, and its entry there; both empty for a run outside of any study."""
    whole = folder.resolve()
    for parent in whole.parents:
        path = parent / "study.json"
        if not path.exists():
            continue
        if path not in studies:
            studies[path] = read_study(parent)
        name = whole.relative_to(parent).as_posix()
        entry = next((run for run in studies[path].get("runs", []) if run["folder"] == name), {})
        return studies[path], entry
    return {}, {}


def read_study(folder: Path) -> dict[str, Any]:
    """The description of a study; empty where there is none."""
    path = folder / "study.json"
    if not path.exists():
        return {}
    try:
        record = Record.read(path)
        names = {name: record.text(name, "") for name in ("name", "title", "scale", "command")}
        runs = [{"folder": run.text("folder"), "label": run.text("label", "")} for run in record.records("runs")]
    except EmuError as error:
        raise EmuError(f"{path} cannot be read: {error} Restore it, or remove it to read the runs alone.") from error
    return {**names, "runs": runs}


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs outside of studies with other settings are other curves, not other seeds: their labels say what differs.

    Of the settings in which such runs differ, a label names those that are not the preset's.
    """
    plain: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.label == run.algo:  # no study gave it another
            plain.setdefault((run.label, run.env), []).append(run)
    labels: dict[Path, str] = {}
    for (label, _), group in plain.items():
        names = [n for n in varied_settings(group) if n not in INCIDENTAL and not n.startswith(INCIDENTAL_PARTS)]
        for run in group if names else ():
            values, usual = settings(run.config), _usual_settings(run)
            changed = [
                _setting(name, values[name]) for name in names if name not in usual or values[name] != usual[name]
            ]
            labels[run.folder] = f"{label} ({', '.join(changed)})" if changed else label
    return [run._replace(label=labels.get(run.folder, run.label)) for run in runs]


def _usual_settings(run: Run) -> dict[str, Any]:
    """Those of the preset; none for an algorithm that is not known here."""
    try:
        return settings(preset(run.algo, run.env))
    except EmuError:
        return {}


def _setting(name: str, value: Any) -> str:
    """One setting in a label: its own name, without the part it belongs to."""
    if isinstance(value, dict):
        return ", ".join(_setting(key, part) for key, part in value.items()) or "defaults"
    return f"{name.rpartition('.')[2]} {short_number(value) if isinstance(value, float) else value}"


def settings(config: Config) -> dict[str, Any]:
    """All settings of a run by their dotted names."""
    return dict(_flat(to_dict(config), ""))


def _flat(node: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if isinstance(value, dict) and name != "env_args":
            yield from _flat(value, f"{where}{name}.")
        else:
            yield f"{where}{name}", value


def varied_settings(runs: Sequence[Run]) -> list[str]:
    """What a study varies: settings with several values among the runs of one algorithm and environment."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run.algo, run.env), []).append(settings(run.config))
    names = [name for name in settings(Config()) if name not in ("seed", "algo", "env")]
    return [n for n in names if any(any(c[n] != g[0][n] for c in g) for g in groups.values())]


# Side by side


def by_env(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by environment, in the order of their first appearance."""
    return _group(runs, "env")


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by label, in the order of their first appearance."""
    return _group(runs, "label")


def _group(runs: Sequence[Run], field: str) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(getattr(run, field), []).append(run)
    return groups


def aligned(runs: Sequence[Run], metric: str = WIN_RATE, smooth: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Several runs on common steps, those of all their rows, as far as all of them got: (P,), (runs, P)."""
    series = [(steps, smoothed(values, smooth)) for steps, values in (run.series(metric) for run in runs)]
    grid = np.unique(np.concatenate([steps for steps, _ in series]))
    grid = grid[grid <= min(steps[-1] for steps, _ in series)]
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in series])


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Each value replaced by the mean of the last `window` values up to it, of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def require_one_version(runs: Sequence[Run], mix_versions: bool = False) -> None:
    """Refuse to compare numbers of one environment's different versions unless that is asked for."""
    for env, group in by_env(runs).items():
        versions = sorted({run.version for run in group})
        if len(versions) > 1 and not mix_versions:
            raise EmuError(
                f"These runs of '{env}' come from different versions of it: {', '.join(versions)}. Their numbers are "
                "not comparable. Look at them apart, or say --mix-versions if that is what you want."
            )


def scale_note(runs: Sequence[Run]) -> str:
    """Runs that were made smaller than the paper's say so wherever they are shown."""
    return " (laptop scale)" if any(run.scale == "laptop" for run in runs) else ""
