"""Where the rows of a run go beside `metrics.jsonl`: TensorBoard, trackers, and loggers from outside by `module:Name`.

A logger is told what was written, never asked: nothing that a run computes depends on it.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from PIL import Image

from emu.config import Config
from emu.config.build import settings_of
from emu.errors import ConfigError
from emu.registry import NoSettings, Registry
from emu.run.folder import RunFolder
from emu.run.tags import flat_settings, tag, tagged, tagged_timing


class Logger(abc.ABC):
    """Takes rows of named numbers. A new one derives from this class; `Settings` is filled from the configuration."""

    Settings: ClassVar[type] = NoSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    @abc.abstractmethod
    def open(self, folder: Path, config: Config, from_step: int) -> None:
        """Begin, or go on after a resume: rows beyond `from_step` that an earlier process wrote do not count."""

    @abc.abstractmethod
    def row(self, step: int, values: Mapping[str, float]) -> None:
        """One row, as it stands in `metrics.jsonl`."""

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        """Wall-clock seconds by activity, with every evaluation."""
        return

    def gif(self, step: int, path: Path) -> None:
        """The best team at the end of a run, where its environment can be drawn; made only if a logger has this."""
        return

    def close(self) -> None:
        """The run ends or stops; called once, also after an error."""
        return


class TensorBoard(Logger):
    """TensorBoard event files, written in place: a writer with a thread of its own would hang on a full disk."""

    def open(self, folder: Path, config: Config, from_step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        events: Any = event_pb2  # generated at run time, which no type checker sees
        summaries: Any = summary_pb2
        self._event, self._summary = events.Event, summaries.Summary
        board = RunFolder(folder).tensorboard
        board.mkdir(exist_ok=True)
        self._events = EventsWriter(str(board / "events"), f".{time.time_ns()}")
        if from_step:  # hides what an earlier process wrote beyond the checkpoint
            start = events.SessionLog(status=events.SessionLog.START)
            self._events.write_event(events.Event(step=from_step, session_log=start))
        else:
            self._hyperparameters(config)

    def _hyperparameters(self, config: Config) -> None:
        """All settings, for the tab HPARAMS, beside what an evaluation gives."""
        from tensorboardX.summary import hparams

        shown = {tag(name): 0.0 for name in ("test_win_rate", "test_return")}  # names only: no value is written
        for summary in hparams(flat_settings(config), shown):
            self._write(0, summary)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._scalars(step, tagged(values))

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        self._scalars(step, tagged_timing(values))

    def gif(self, step: int, path: Path) -> None:
        with Image.open(path) as first:
            width, height = first.size
        picture = self._summary.Image(height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes())
        self._write(step, self._summary(value=[self._summary.Value(tag="best_team", image=picture)]))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in finite.items()]
        self._write(step, self._summary(value=points))

    def _write(self, step: int, summary: Any) -> None:
        self._events.write_event(self._event(wall_time=time.time(), step=step, summary=summary))
        self._events.flush()

    def close(self) -> None:
        self._events.close()


LOGGERS: Registry[Logger] = Registry("logger", "emu.run.loggers:Logger", "loggers")
LOGGERS.register("tensorboard", "emu.run.loggers:TensorBoard", "TensorBoard event files in the run's folder")
LOGGERS.register("wandb", "emu.run.trackers:WandB", "Weights & Biases, offline unless told otherwise (an extra)")
LOGGERS.register("trackio", "emu.run.trackers:Trackio", "trackio, on this machine unless told otherwise (an extra)")


def build_loggers(config: Config) -> list[Logger]:
    """The loggers a configuration names, not yet open; `tensorboard` is one of them unless switched off."""
    named = ({"tensorboard": {}} if config.tensorboard else {}) | config.loggers
    return [_logger(name, given) for name, given in named.items()]


def _logger(name: str, given: Any) -> Logger:
    if not isinstance(given, dict):
        raise ConfigError(f"'loggers' gives every logger its settings: {{\"{name}\": {{}}}}, not {given!r}.")
    found = LOGGERS.find(name)
    return found(settings_of(found, given, f"loggers.{name}"))
