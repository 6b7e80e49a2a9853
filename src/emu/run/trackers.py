"""Experiment trackers as loggers: Weights & Biases and trackio. Both are extras, and work without an account.

    --loggers '{"wandb": {}}'                        files in the run's folder, for `wandb sync`
    --loggers '{"wandb": {"mode": "online"}}'        to your account
    --loggers '{"trackio": {}}'                      on this machine: `trackio show --project emu`

A resumed run goes on under the same name. It writes the rows behind its checkpoint once more, with the same values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from emu.config import Config
from emu.errors import ConfigError
from emu.run.folder import RunFolder
from emu.run.loggers import Logger
from emu.run.tags import flat_settings, tagged, tagged_timing


def require_package(name: str) -> None:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:  # without an origin it is a mere folder of that name
        raise ConfigError(f"The logger '{name}' needs a package: pip install 'emu-marl[{name}]'.")


def run_name(config: Config) -> str:
    return f"{config.env}, {config.algo}, seed {config.seed}"


class Tracker(Logger):
    """What both have in common: a run object whose `log` takes a dictionary and a step."""

    package: str

    def __init__(self, settings: Any = None) -> None:
        require_package(self.package)
        super().__init__(settings if settings is not None else self.Settings())
        self.run: Any = None

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(tagged(values), step=step)

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(tagged_timing(values), step=step)


class WandB(Tracker):
    """Weights & Biases. Offline unless told otherwise: nothing leaves the machine before `wandb sync`."""

    package = "wandb"

    @dataclasses.dataclass(frozen=True)
    class Settings:
        project: str = "emu"
        mode: Literal["offline", "online", "disabled"] = "offline"
        entity: str = ""  # a team's or user's name; empty: your own
        group: str = ""  # empty: the environment and the algorithm, so that seeds are shown together

    def open(self, folder: Path, config: Config, from_step: int) -> None:
        import wandb

        self.run = wandb.init(
            project=self.settings.project,
            entity=self.settings.entity or None,
            group=self.settings.group or f"{config.env}, {config.algo}",
            mode=self.settings.mode,
            dir=str(folder),
            id=self._identity(RunFolder(folder).wandb),
            name=run_name(config),
            resume="allow" if self.settings.mode == "online" else None,
            config=flat_settings(config),
            settings=wandb.Settings(silent=True, console="off"),
        )

    @staticmethod
    def _identity(folder: Path) -> str:
        """What the run is called at Weights & Biases: drawn once, then kept in the run's folder."""
        folder.mkdir(exist_ok=True)
        path = folder / "id.txt"
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text().strip()

    def gif(self, step: int, path: Path) -> None:
        import wandb

        # without a step: W&B drops what lies before its newest row, and the best team may be older
        self.run.log({"best_team": wandb.Video(str(path), caption=f"of step {step:,}", format="gif")})

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()


class Trackio(Tracker):
    """trackio: a database on this machine (TRACKIO_DIR says where), or a Space at Hugging Face."""

    package = "trackio"

    @dataclasses.dataclass(frozen=True)
    class Settings:
        project: str = "emu"
        space_id: str = ""  # empty: this machine only

    def open(self, folder: Path, config: Config, from_step: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # it greets at length
            import trackio

            self.run = trackio.init(
                project=self.settings.project,
                name=f"{run_name(config)} ({folder.resolve().name})",
                space_id=self.settings.space_id or None,
                config=flat_settings(config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def close(self) -> None:
        if self.run is not None:
            import trackio

            with contextlib.redirect_stdout(io.StringIO()):
                trackio.finish()
