"""A run's folder. No other module knows the names of the files in it.

    runs/gridworld/qmix-seed0/
      config.json meta.json       settings; where the run came from, and how it was resumed
      metrics.jsonl metrics.crc   values by step; a checksum for every row
      timing.jsonl tensorboard/   wall-clock times; the same values for TensorBoard
      best/                       the parameters of the best evaluation
      checkpoints/ replay/        what a stopped run goes on from; the episodes it learns from
      snapshots/                  small pictures of the memory for `emu report`
      absolute.json               the best team, evaluated once more with ten times the episodes

Importing this stays light: tables and plots read runs without JAX.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from emu.config import Config, from_dict, to_dict
from emu.errors import EmuError
from emu.files import read_object, replace_json

METRICS = "metrics.jsonl"
STEP_DIGITS = 12  # in the names of checkpoints and snapshots, so that they sort by age
EVALUATION = "test_return"  # the metric that tells a row of an evaluation from one of training


def step_name(step: int) -> str:
    return f"{step:0{STEP_DIGITS}d}"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where everything of a run is."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def meta(self) -> Path:
        return self.path / "meta.json"

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def checksums(self) -> Path:
        """Of the rows of `metrics`."""
        return self.path / "metrics.crc"

    @property
    def timing(self) -> Path:
        return self.path / "timing.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def wandb(self) -> Path:
        """What Weights & Biases keeps, where that logger is used."""
        return self.path / "wandb"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def replay(self) -> Path:
        return self.path / "replay"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def absolute(self) -> Path:
        return self.path / "absolute.json"

    @property
    def gif(self) -> Path:
        """Where `emu render` puts the best team unless told otherwise."""
        return self.path / "team.gif"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / step_name(step)

    def checkpoint_steps(self) -> list[int]:
        """Steps at which complete checkpoints exist, oldest first."""
        if not self.checkpoints.is_dir():
            return []
        return sorted(int(path.name) for path in self.checkpoints.iterdir() if path.name.isdigit())

    def was_trained_here(self) -> bool:
        """Whether training took place in this folder; results that were copied elsewhere have no checkpoints."""
        return self.checkpoints.is_dir()


def run_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Where a run goes unless told otherwise."""
    return root / config.env.replace("/", "-").replace(":", "-") / f"{config.algo}-seed{config.seed}"


def is_run(folder: Path) -> bool:
    """Whether a run was begun in a folder: from its config.json on it can be resumed."""
    return RunFolder(folder).config.exists()


def find_run_folders(root: Path) -> list[Path]:
    """The folders in and below `root` that hold metrics."""
    return [path.parent for path in sorted(root.rglob(METRICS))]


def read_config(folder: Path) -> Config:
    path = RunFolder(folder).config
    if not path.exists():
        raise EmuError(f"{folder} is not a run folder: it has no {path.name}. `emu train` makes one.")
    try:
        return from_dict(read_object(path))
    except EmuError as error:
        raise EmuError(f"{path} cannot be used: {error}") from error


def write_config(folder: Path, config: Config) -> None:
    replace_json(RunFolder(folder).config, to_dict(config), indent=2)


def read_meta(folder: Path) -> dict[str, Any]:
    """Where a run came from; empty where nothing can be read of it."""
    try:
        return read_object(RunFolder(folder).meta)
    except EmuError:
        return {}


def write_meta(folder: Path, content: dict[str, Any]) -> None:
    replace_json(RunFolder(folder).meta, content, indent=2)


def is_in_use(folder: Path) -> bool:
    """Whether a folder holds anything but what a process killed before the first step leaves."""
    if not folder.is_dir():
        return folder.exists()
    run = RunFolder(folder)
    begun = {run.lock.name, run.meta.name, f".{run.meta.name}.part", f".{run.config.name}.part"}
    return any(
        any(path.iterdir()) if path in (run.checkpoints, run.replay) and path.is_dir() else path.name not in begun
        for path in folder.iterdir()
    )


def remove_beginning(folder: Path) -> None:
    """Remove what a run leaves that ended before it was one, and nothing else."""
    run = RunFolder(folder)
    run.lock.unlink(missing_ok=True)
    for path in (run.replay, run.checkpoints, folder):
        if path.exists() and not any(path.iterdir()):
            path.rmdir()
