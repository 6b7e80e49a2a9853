"""Reading finished runs: which folders hold some, what each is called, and its values over time.

A *study folder* has a `study.json` that names its runs (label, scale); any other folder of runs is read as well, and a
curve is then called by its algorithm, and by the settings in which it differs from other runs of that algorithm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.config import Config, to_dict
from emu.errors import EmuError, did_you_mean
from emu.run.folder import find_run_folders, read_config, read_meta
from emu.run.metrics import read_rows

WIN_RATE = "test_win_rate"
# Settings that say how long and where a run goes on, not what it computes.
INCIDENTAL = ("seed", "algo", "env", "steps", "devices", "log_interval", "tensorboard")
INCIDENTAL_PARTS = ("checkpoint.", "rollout.workers", "rollout.where", "rollout.cluster", "rollout.timeout")


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


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """All runs in and below the given folders, each once; labels come from the nearest `study.json` above a run.

    Runs of a study come in its order, which is the order of legends and tables.
    """
    studies: dict[Path, dict[str, Any]] = {}
    runs = _told_apart([_load_run(folder, studies) for folder in find_runs(paths)])
    listed = [parent.parent / entry["folder"] for parent, study in studies.items() for entry in study.get("runs", [])]
    place = {folder: number for number, folder in enumerate(listed)}
    return sorted(runs, key=lambda run: place.get(run.folder.resolve(), len(listed)))


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs outside of studies with other settings are other curves, not other seeds: their labels say what differs."""
    plain: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.label == run.algo:  # no study gave it another
            plain.setdefault((run.label, run.env), []).append(run)
    labels: dict[Path, str] = {}
    for (label, _), group in plain.items():
        names = [n for n in varied_settings(group) if n not in INCIDENTAL and not n.startswith(INCIDENTAL_PARTS)]
        for run in group if names else ():
            values = settings(run.config)
            labels[run.folder] = f"{label} ({', '.join(_setting(name, values[name]) for name in names)})"
    return [run._replace(label=labels.get(run.folder, run.label)) for run in runs]


def _setting(name: str, value: Any) -> str:
    """One setting in a label: its own name, without the part it belongs to."""
    if isinstance(value, dict):
        return ", ".join(_setting(key, part) for key, part in value.items()) or "defaults"
    return f"{name.rpartition('.')[2]} {short_number(value) if isinstance(value, float) else value}"


def load_run(folder: Path) -> Run:
    return _load_run(folder, {})


def _load_run(folder: Path, studies: dict[Path, dict[str, Any]]) -> Run:
    config = read_config(folder)
    study, entry = _study_of(folder, studies)
    label = str(entry.get("label") or config.algo)
    scale = str(study.get("scale") or "")
    version = env_version(folder)
    return Run(folder, label, config.env, version, config.seed, config.algo, config, read_rows(folder), scale)


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
        entry = next((run for run in studies[path].get("runs", []) if run.get("folder") == name), {})
        return studies[path], entry
    return {}, {}


def read_study(folder: Path) -> dict[str, Any]:
    """The description of a study; empty where there is none."""
    path = folder / "study.json"
    if not path.exists():
        return {}
    try:
        study = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EmuError(f"{path} cannot be read: {error}. Restore it, or remove it to read the runs alone.") from error
    if not isinstance(study, dict):
        raise EmuError(f"{path} must hold one JSON object.")
    return study


def env_version(folder: Path) -> str:
    """Name and version of the environment that a run was trained in."""
    try:
        env = read_meta(folder)["env"]
        return f"{env['name']} {env['version']}"
    except (KeyError, TypeError):
        return "unknown"


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


def aligned(runs: Sequence[Run], metric: str = WIN_RATE) -> tuple[np.ndarray, np.ndarray]:
    """Several runs on common steps, those of all their tests, as far as all of them got: (P,), (runs, P)."""
    series = [run.series(metric) for run in runs]
    grid = np.unique(np.concatenate([steps for steps, _ in series]))
    grid = grid[grid <= min(steps[-1] for steps, _ in series)]
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in series])


def require_one_version(runs: Sequence[Run], mix_versions: bool = False) -> None:
    """Refuse to compare numbers of one environment's different versions unless that is asked for."""
    for env, group in by_env(runs).items():
        versions = sorted({run.version for run in group})
        if len(versions) > 1 and not mix_versions:
            raise EmuError(
                f"These runs of '{env}' come from different versions of it: {', '.join(versions)}. Their numbers are "
                "not comparable. Look at them apart, or say --mix-versions if that is what you want."
            )


def short_steps(steps: float) -> str:
    """A number of steps as people say it: 500, 20K, 1.37M."""
    if steps >= 1e6:
        return f"{steps / 1e6:.3g}M"
    return f"{steps / 1e3:.3g}K" if steps >= 1e3 else f"{steps:.0f}"


def short_number(value: float) -> str:
    """A setting as the paper writes it: 1.3e-2, 0.01, 10."""
    digits, exponent = f"{value:.3e}".split("e")
    if value and (int(exponent) < -3 or (int(exponent) < -1 and float(digits) % 1)):
        return f"{float(digits):g}e{int(exponent)}"
    return f"{value:g}"


def scale_note(runs: Sequence[Run]) -> str:
    """Runs that were made smaller than the paper's say so wherever they are shown."""
    return " (laptop scale)" if any(run.scale == "laptop" for run in runs) else ""


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
