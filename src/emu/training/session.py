"""A run from outside: starting one, going on with one, and what a signal does to it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emu.config import Config, replace
from emu.devices import configure_cpu_devices
from emu.envs.spec import EnvSpec
from emu.errors import CheckpointError, ConfigError, EmuError
from emu.files import quoted, reason, require_possible
from emu.run.best import best_is_whole, rebuild_best
from emu.run.changes import Change, allowed_changes
from emu.run.checkpoint import Checkpoints, Restored
from emu.run.folder import (
    RunFolder,
    is_in_use,
    is_run,
    read_config,
    read_meta,
    remove_beginning,
    run_folder,
    write_config,
    write_meta,
)
from emu.run.lock import RunLock
from emu.run.metrics import last_evaluation, read_rows
from emu.run.provenance import provenance, resumption
from emu.run.record import Record
from emu.run.trust import require_trusted
from emu.training.callbacks import Callbacks
from emu.training.loop import Stopped, Trainer
from emu.training.progress import Progress
from emu.training.reporting import BY_CALLBACK
from emu.training.saving import plain_settings, restore

__all__ = ["BY_CALLBACK", "Stopped", "resume", "train"]

SAVING = ("SIGINT", "SIGTERM", "SIGHUP")  # a closed pipe is noticed by `Progress`: Python ignores SIGPIPE itself


def train(
    config: Config, folder: Path | None = None, progress: Progress | None = None, callbacks: Callbacks | None = None
) -> dict[str, float]:
    """Start a run. The folder must not exist (or be empty, or hold a run that never began)."""
    configure_cpu_devices(config.devices)
    folder, progress = require_possible(folder or run_folder(config)), progress or Progress()
    try:
        if is_in_use(folder):
            raise EmuError(
                f"{folder} already exists. Go on with it (`emu resume {quoted(folder)}`), choose another "
                "(`--run-dir`; in Python `folder=`), or remove it."
            )
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmuError(f"{folder} cannot be made: {reason(error)}. Choose another with `--run-dir`.") from error
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
    folder: Path,
    steps: int | None = None,
    progress: Progress | None = None,
    trust: bool = False,
    restart: bool = False,
    callbacks: Callbacks | None = None,
) -> dict[str, float]:
    """Go on with a run as if it had never stopped.

    `steps` may make it longer; `trust` lets its settings name code from outside; `restart` begins it anew where no
    checkpoint is left, which removes what it had written.
    """
    config, progress = read_config(folder), progress or Progress()
    require_trusted(folder, config, trust)
    if steps is not None:
        config = replace(config, {"steps": steps})
    configure_cpu_devices(config.devices)
    lock = RunLock(folder)
    try:
        noted = _check(folder, config, steps, progress, restart)
        trainer = Trainer(config, folder, progress, callbacks)
        _require_same_environment(folder, trainer.env.spec)
        keep_bytes = 0
        if trainer.checkpoints.steps():
            restored = restore(trainer)
            keep_bytes = restored.state["metrics_bytes"]
            if keep_bytes:
                read_rows(folder, progress.warn)  # whatever is wrong with them is said now
            _record(trainer, restored, noted)
        if steps is not None:
            write_config(folder, config)
        progress.header(config, trainer)
        if trainer.counters.step >= config.steps:
            progress.warn(f"The run is complete ({trainer.counters.step:,} steps). `--steps` makes it longer.")
            return last_evaluation(folder)
        return _run(trainer, keep_bytes)
    finally:
        lock.release()


def _check(folder: Path, config: Config, steps: int | None, progress: Progress, restart: bool) -> list[Change]:
    """Whether this run can go on with these settings, before anything is built or written; the changes to note."""
    checkpoints, files = Checkpoints(folder, config.checkpoint.keep), RunFolder(folder)
    if restart:
        progress.warn("--restart: the run begins anew; its checkpoints and metrics are removed.")
        checkpoints.clear()
        files.metrics.unlink(missing_ok=True)
        return []
    state = checkpoints.newest_state(progress.warn)
    if state is None:
        written = files.metrics.exists() and files.metrics.stat().st_size > 0
        if written or checkpoints.set_aside():
            raise CheckpointError(
                f"{folder} has no checkpoint that can be read, but a run took place there. Nothing was touched. "
                f"To begin it anew and lose what it wrote: emu resume {quoted(folder)} --restart"
            )
        progress.warn("The run was stopped before its first checkpoint; it starts from the beginning.")
        return []
    try:
        known = Record(state, "its state")
        present, planned = known.record("counters").whole("step"), known.record("settings").whole("steps")
    except EmuError as error:
        raise CheckpointError(f"The newest checkpoint of {folder} does not say where the run stands.") from error
    if steps is not None and steps < present and steps != planned:
        raise ConfigError(f"--steps {steps} lies behind the run, which is at step {present}. Nothing was changed.")
    return allowed_changes(state["settings"], plain_settings(config))


def _require_same_environment(folder: Path, spec: EnvSpec) -> None:
    """A run never goes on in another version of its environment; one that names no version is taken as it is."""
    env = read_meta(folder).get("env")
    made = env.get("version") if isinstance(env, dict) else None
    if made is not None and made != spec.version:
        raise CheckpointError(
            f"{folder} was trained in version {made} of '{spec.name}'; this is version {spec.version}. Their numbers "
            "are not comparable. Nothing was changed. Train anew in another folder, or use the package that made it."
        )


def _record(trainer: Trainer, restored: Restored, noted: list[Change]) -> None:
    """Rebuild the best team if it is lost; say and write down how this resumption differs from an undisturbed run."""
    folder, warn = trainer.folder, trainer.progress.warn
    entry: dict[str, Any] = {"step": trainer.counters.step, **resumption()}
    if noted:
        entry["changes"] = {change.name: [change.before, change.now] for change in noted}
        warn(f"Settings changed since the checkpoint: {', '.join(map(str, noted))}. The run goes on with the new ones.")
    if restored.lost_episodes:
        entry["lost_episodes"] = restored.lost_episodes
    if not best_is_whole(folder) and rebuild_best(folder, restored.folder, restored.state.get("best", {})):
        entry["rebuilt_best"] = True
        warn("The best team was lost or damaged; it was rebuilt from the checkpoint.")
    meta = read_meta(folder)
    past = meta.get("resumes")
    write_meta(folder, {**meta, "resumes": [*(past if isinstance(past, list) else []), entry]})


def _run(trainer: Trainer, keep_bytes: int) -> dict[str, float]:
    with _stopped_by_signals(trainer):
        return trainer.run(keep_bytes)


@contextlib.contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """Turn signals into a save at the end of the current chunk. A second Ctrl-C stops at once, without saving."""

    def ask(number: int, _: Any) -> None:
        if trainer.stop_signal and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third one ends the process wherever it is
            raise KeyboardInterrupt
        trainer.stop_signal = signal.Signals(number).name
        again = " Ctrl-C again: at once, without saving." if number == signal.SIGINT else ""
        trainer.progress.warn(f"{trainer.stop_signal}: saving, then stopping.{again}")

    previous: dict[int, Any] = {}
    try:
        for name in SAVING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` leaves SIGHUP
                previous[number] = signal.signal(number, ask)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
