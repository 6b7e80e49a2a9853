"""A run from outside: starting one, going on with one, and what a signal does to it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emu.config import Config, replace
from emu.devices import configure_cpu_devices
from emu.errors import EmuError
from emu.run.folder import is_in_use, is_run, read_config, remove_beginning, run_folder, write_config, write_meta
from emu.run.lock import RunLock
from emu.run.metrics import last_evaluation
from emu.run.provenance import provenance
from emu.training.callbacks import Callbacks
from emu.training.loop import BY_CALLBACK, Stopped, Trainer
from emu.training.progress import Progress
from emu.training.saving import restore

__all__ = ["BY_CALLBACK", "Stopped", "resume", "train"]


def train(
    config: Config, folder: Path | None = None, progress: Progress | None = None, callbacks: Callbacks | None = None
) -> dict[str, float]:
    """Start a run. The folder must not exist (or be empty, or hold a run that never began)."""
    configure_cpu_devices(config.devices)
    folder, progress = folder or run_folder(config), progress or Progress()
    if is_in_use(folder):
        raise EmuError(
            f"{folder} already exists. Go on with it (`emu resume {folder}`), choose another (`--run-dir`), "
            "or remove it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmuError(f"{folder} cannot be made: {error.strerror}. Choose another with `--run-dir`.") from error
    lock = RunLock(folder)
    try:
        trainer = Trainer(config, folder, progress, callbacks)
        write_meta(folder, provenance(trainer.env.spec))
        write_config(folder, config)  # from here on it is a run that can be resumed
        progress.header(config, trainer)
        return _run(trainer, 0)
    finally:
        if not is_run(folder):  # a bad configuration leaves nothing behind
            remove_beginning(folder)
        lock.release()


def resume(
    folder: Path, steps: int | None = None, progress: Progress | None = None, callbacks: Callbacks | None = None
) -> dict[str, float]:
    """Go on with a run as if it had never stopped; `steps` may extend it."""
    config, progress = read_config(folder), progress or Progress()
    if steps is not None:
        config = replace(config, {"steps": steps})
    configure_cpu_devices(config.devices)
    lock = RunLock(folder)
    try:
        trainer = Trainer(config, folder, progress, callbacks)
        keep_bytes = 0
        if trainer.checkpoints.steps():
            keep_bytes = restore(trainer)
        else:
            progress.warn("The run was stopped before its first checkpoint; it starts from the beginning.")
        if steps is not None:
            write_config(folder, config)
        progress.header(config, trainer)
        if trainer.counters.step >= config.steps:
            progress.warn(f"The run is complete ({trainer.counters.step:,} steps). `--steps` makes it longer.")
            return last_evaluation(folder)
        return _run(trainer, keep_bytes)
    finally:
        lock.release()


def _run(trainer: Trainer, keep_bytes: int) -> dict[str, float]:
    """Run with Ctrl-C and SIGTERM turned into a save at the end of the current chunk."""

    def ask(number: int, _: Any) -> None:
        trainer.stop_signal = signal.Signals(number).name
        trainer.progress.warn(f"{trainer.stop_signal}: saving, then stopping.")

    previous: dict[int, Callable | int | None] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, ask)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        return trainer.run(keep_bytes)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
