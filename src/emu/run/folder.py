"""A run's folder: where it goes, its configuration, whether it may be used, how its last test ended."""

from __future__ import annotations

import json
from pathlib import Path

from emu.config import Config, from_dict, to_dict
from emu.errors import EmuError
from emu.run.checkpoint import replace_json
from emu.run.metrics import read_rows


def run_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Where a run goes unless told otherwise."""
    return root / config.env.replace("/", "-").replace(":", "-") / f"{config.algo}-seed{config.seed}"


def read_config(folder: Path) -> Config:
    path = folder / "config.json"
    if not path.exists():
        raise EmuError(f"{folder} is not a run folder: it has no config.json. `emu train` makes one.")
    try:
        return from_dict(json.loads(path.read_text()))
    except (EmuError, ValueError, OSError) as error:
        raise EmuError(f"{path} cannot be used: {error}") from error


def write_config(folder: Path, config: Config) -> None:
    replace_json(folder / "config.json", to_dict(config), indent=2)


def last_test(folder: Path) -> dict[str, float]:
    """The values of a run's last test."""
    tests = [row for row in read_rows(folder) if "test_return" in row]
    return {name: value for name, value in tests[-1].items() if name != "step"} if tests else {}


def holds_more_than_a_beginning(folder: Path) -> bool:
    """Whether a folder holds anything but what a process killed before the first step leaves."""
    if not folder.is_dir():
        return folder.exists()
    begun = {".lock", "meta.json", ".meta.json.part", ".config.json.part"}
    return any(
        any(path.iterdir()) if path.name in ("checkpoints", "replay") and path.is_dir() else path.name not in begun
        for path in folder.iterdir()
    )


def remove_if_empty(*folders: Path) -> None:
    for folder in folders:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
