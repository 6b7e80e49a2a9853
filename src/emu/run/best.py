"""The best team of a run so far: its parameters, and the evaluation in which it was the best.

    best/policy-7.safetensors, best/summary.json

The summary names the file of the parameters and is replaced in one step, so a process killed at any moment leaves the
old best or the new. Checkpoints hold a copy, from which a lost or damaged one is rebuilt.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from emu.errors import CheckpointError, EmuError
from emu.files import Fingerprint, quoted, replace_json
from emu.run.checkpoint import why
from emu.run.folder import RunFolder
from emu.run.record import Record
from emu.run.trees import SUFFIX, load_tree, save_tree
from emu.types import PyTree

SUMMARY = "summary.json"
COPY = f"best{SUFFIX}"  # in a checkpoint
OURS = re.compile(rf"\.?policy-(\d+){re.escape(SUFFIX)}(\.part)?")
NOT_VALUES = ("file", "bytes", "crc")


def save_best(run: Path, policy: PyTree, step: int, summary: dict[str, float]) -> None:
    """Replace the best parameters; whenever the process ends, there are either the old or the new."""
    best = RunFolder(run).best
    try:
        fresh = _fresh(best)
        save_tree(fresh, policy)
        _point_to(fresh, {"step": step, **summary})
    except Exception as error:
        raise CheckpointError(
            f"Could not save the best team in {best}: {why(error)}. Checkpoints are intact. "
            f"Make room, then go on with `emu resume {quoted(run)}`."
        ) from error


def load_best(run: Path, like: PyTree) -> tuple[PyTree, dict[str, float]]:
    """The best parameters of a run and the evaluation they were best in."""
    path, summary = _whole(run)
    return load_tree(path, like), summary


def best_is_whole(run: Path) -> bool:
    """Whether there is a best team that can be loaded."""
    try:
        _whole(run)
    except CheckpointError:
        return False
    return True


def best_copy(run: Path) -> tuple[dict[str, Path], dict[str, float]]:
    """What a checkpoint keeps of the best team: its file by the name of the copy, and its summary; nothing yet: {}."""
    if not best_is_whole(run):
        return {}, {}
    path, summary = _whole(run)
    return {COPY: path}, summary


def rebuild_best(run: Path, checkpoint: Path, summary: dict[str, float]) -> bool:
    """Put back the copy in a checkpoint; whether there was one."""
    copy = checkpoint / COPY
    if not summary or not copy.exists():
        return False
    fresh = _fresh(RunFolder(run).best)
    shutil.copyfile(copy, fresh)
    _point_to(fresh, summary)
    return True


def _fresh(best: Path) -> Path:
    """A file name that no earlier best has, half-written ones included."""
    if best.is_symlink():
        raise CheckpointError(f"{best} is a symbolic link; it must be a real folder of the run")
    best.mkdir(exist_ok=True)
    numbers = [int(name[1]) for path in best.iterdir() if (name := OURS.fullmatch(path.name))]
    return best / f"policy-{max(numbers, default=0) + 1}{SUFFIX}"


def _point_to(fresh: Path, summary: dict[str, Any]) -> None:
    """From here on this is the best; what it replaces goes, as far as it is ours."""
    replace_json(fresh.parent / SUMMARY, {**summary, "file": fresh.name, **Fingerprint.of(fresh)._asdict()})
    for path in fresh.parent.iterdir():
        if OURS.fullmatch(path.name) and path != fresh and path.is_file():
            path.unlink(missing_ok=True)


def _whole(run: Path) -> tuple[Path, dict[str, float]]:
    """Where the best parameters are, and their evaluation; refused unless both are as they were written."""
    path = RunFolder(run).best / SUMMARY
    if not path.exists():
        raise CheckpointError(
            f"{run} holds no trained team yet: it has no {path.parent.name}/ folder. "
            f"`emu resume {quoted(run)}` rebuilds it if a checkpoint has one."
        )
    try:
        content = Record.read(path)
        summary = {**content.values(*NOT_VALUES), "step": content.whole("step")}
        name, expected = content.text("file"), Fingerprint(content.whole("bytes"), content.whole("crc"))
        if not OURS.fullmatch(name):
            raise EmuError(f"'{name}' is no file of parameters")
        if Fingerprint.of(path.parent / name) != expected:
            raise EmuError(f"{name} is not what was written")
    except (EmuError, OSError) as error:
        raise CheckpointError(
            f"{path.parent} is damaged ({error}), or was written before version 0.2. "
            f"`emu resume {quoted(run)}` rebuilds it from a checkpoint."
        ) from error
    return path.parent / name, summary
