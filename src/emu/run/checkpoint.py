"""Checkpoints: everything a run needs to go on as if it had never stopped.

    run/
      replay/                         the episodes, in segments that several checkpoints share (`emu.run.segments`)
      checkpoints/000000050000/       tree and best (safetensors), rollout.npz, memory/, state.json, manifest.json
      checkpoints/damaged-...         one whose checksums did not match; kept, never read

A checkpoint is written beside its final place, read back, and renamed into it when complete; its manifest holds the
size and checksum of every file. It is set aside only when a checksum tells that it is damaged: one that does not fit
the settings, or that cannot be read at the moment, stays where it is. No pickle anywhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.errors import CheckpointError, EmuError
from emu.files import (
    Fingerprint,
    flush_folder,
    parse_json,
    quoted,
    reason,
    replace_arrays,
    replace_json,
)
from emu.run.folder import RunFolder
from emu.run.record import Record
from emu.run.segments import OURS, Segment, SegmentDamaged, require_fitting
from emu.run.trees import SUFFIX, load_part, load_tree, save_tree
from emu.types import Episode, PyTree

if TYPE_CHECKING:
    from emu.replay.episodes import Replay
    from emu.replay.steps import Transitions

FORMAT = 2  # of a checkpoint; 1 was orbax
TREE, ROLLOUT, MEMORY, STATE, MANIFEST = f"tree{SUFFIX}", "rollout.npz", "memory", "state.json", "manifest.json"
WRITING, DAMAGED = ".writing-", "damaged-"
Warn = Callable[[str], None]


class Damaged(CheckpointError):
    """Files that are not what was written; the only reason to set a checkpoint aside."""


class Content(NamedTuple):
    """What a run puts into a checkpoint, replay aside."""

    tree: PyTree  # all that lives on the devices
    arrays: dict[str, np.ndarray]  # the unfinished episodes
    state: dict[str, Any]  # counters and the like, as JSON
    save_memory: Callable[[Path], None] | None = None
    extra: dict[str, Path] = {}  # noqa: RUF012  # further files to copy, by the name they get


class Restored(NamedTuple):
    """What a checkpoint gives back; the replay is refilled."""

    tree: PyTree
    arrays: dict[str, np.ndarray]
    state: dict[str, Any]
    folder: Path
    lost_episodes: int = 0  # of the replay, in segments that nothing could restore

    @property
    def memory(self) -> Path:
        return self.folder / MEMORY


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.keep, self.files = run, keep, RunFolder(run)
        self.folder, self.segments_folder = self.files.checkpoints, self.files.replay
        for folder in (self.folder, self.segments_folder):
            if folder.is_symlink():
                raise CheckpointError(
                    f"{folder} is a symbolic link. Old files are removed from it, so it must be a real folder of the "
                    "run: move the whole run to where there is room, and link that."
                )
            folder.mkdir(parents=True, exist_ok=True)
        self.segments: list[Segment] = []  # of the newest checkpoint

    def steps(self) -> list[int]:
        """Steps at which complete checkpoints exist, oldest first."""
        return self.files.checkpoint_steps()

    def set_aside(self) -> list[Path]:
        """Checkpoints that were found damaged."""
        return sorted(self.folder.glob(f"{DAMAGED}*"))

    def clear(self) -> None:
        """Remove every checkpoint, the damaged ones included, and every segment: the run is to begin anew."""
        for path in self.folder.iterdir():
            if path.name.removeprefix(DAMAGED).split("-")[0].isdigit():
                shutil.rmtree(path, ignore_errors=True)
        self.segments = []
        self._prune()

    # Saving

    def save(self, step: int, content: Content, replay: Replay | Transitions) -> Path:
        """Write one checkpoint; on any failure the earlier ones stay as they were."""
        final, temporary = self.files.checkpoint(step), self.folder / f"{WRITING}{step}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            self._save_replay(replay)
            self._write(temporary, content, replay)
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            flush_folder(self.folder)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(self._failure(error)) from error
        self._prune()
        return final

    def _write(self, folder: Path, content: Content, replay: Replay | Transitions) -> None:
        save_tree(folder / TREE, content.tree)
        replace_arrays(folder / ROLLOUT, content.arrays, compressed=False)
        if content.save_memory is not None:
            content.save_memory(folder / MEMORY)
        for name, source in content.extra.items():
            shutil.copyfile(source, folder / name)
        replay_state = {"replay_added": replay.added, "replay_first": replay.first}
        segments = {"segments": [segment.described for segment in self.segments]}
        replace_json(folder / STATE, content.state | replay_state | segments)
        replace_json(folder / MANIFEST, {"format": FORMAT, "files": _fingerprints(folder)})
        _read_back(folder, content)

    def _save_replay(self, replay: Replay | Transitions) -> None:
        """Write the episodes that no segment holds yet; forget segments whose episodes have all left the ring."""
        live = [s for s in self.segments if s.first + s.count > replay.first]
        next_number = max([replay.first] + [s.first + s.count for s in live])
        if episodes := replay.since(next_number):
            live.append(Segment.write(self.segments_folder, next_number, episodes))
        self.segments = live

    def _prune(self) -> None:
        """Keep the newest checkpoints, and the segments that any of them needs; remove nothing that is not ours."""
        for leftover in self.folder.glob(f"{WRITING}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for step in self.steps()[: -self.keep]:
            shutil.rmtree(self.files.checkpoint(step), ignore_errors=True)
        needed = {name for segment in self.segments for name in segment.names}
        for step in self.steps():
            try:
                state = _read_state(self.files.checkpoint(step))
                needed |= {name for s in self._segments_of(state) for name in s.names}
            except CheckpointError:
                return  # it cannot say what it needs, so nothing is removed
        for path in self.segments_folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in needed and path.is_file():
                path.unlink(missing_ok=True)

    def _failure(self, error: Exception) -> str:
        known = self.steps()
        last = f"The checkpoint of step {known[-1]} is intact" if known else "No earlier checkpoint exists"
        return (
            f"Could not save a checkpoint in {self.run}: {why(error)}. {last}. "
            f"Free some space, then go on with `emu resume {quoted(self.run)}`."
        )

    # Restoring

    def newest_state(self, warn: Warn, set_aside: bool = True) -> dict[str, Any] | None:
        """The state in the newest checkpoint that is whole; None where there is none."""
        return next((state for _, state in self._whole(warn, set_aside)), None)

    def load(
        self,
        like: PyTree,
        replay: Replay | Transitions,
        warn: Warn,
        read_only: bool = False,
        check: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> Restored:
        """The newest checkpoint that is whole with all its episodes; else the newest, without the damaged ones.

        `read_only`: nothing in the folder is renamed, repaired or removed. `check` refuses a state by raising.
        """
        folder, state, episodes, lost = self._choose(warn, read_only)
        check(state)
        require_fitting(episodes, replay.spec)
        try:
            with np.load(folder / ROLLOUT, allow_pickle=False) as stored:
                arrays = dict(stored)
            tree = load_tree(folder / TREE, like)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{folder} cannot be read: {reason(error)}. It was left as it is.") from error
        replay.restore(episodes, state["replay_added"])
        if not lost:
            self.segments = self._segments_of(state)  # else all that is left is written anew, under new numbers
        if not read_only:
            self._prune()
        return Restored(tree, arrays, state, folder, lost)

    def _choose(self, warn: Warn, read_only: bool) -> tuple[Path, dict[str, Any], list[Episode], int]:
        incomplete = None
        for folder, state in self._whole(warn, set_aside=not read_only):
            episodes, lost, reasons = self._episodes(state, repair=not read_only)
            if not lost:
                return folder, state, episodes, 0
            warn(f"Checkpoint {folder.name} is whole, but not its replay: {'; '.join(reasons)}.")
            incomplete = incomplete or (folder, state, episodes, lost)
        if incomplete is None:
            raise CheckpointError(
                f"{self.run} has no checkpoint that can be read, so there is nothing to resume. Start it again in a "
                f"new folder with `emu train` ({self.files.config.name} in the old one holds every setting), or from "
                f"its beginning with `emu resume {quoted(self.run)} --restart`."
            )
        folder, _, episodes, lost = incomplete
        warn(
            f"Going on from {folder.name} WITHOUT {lost} of {lost + len(episodes)} episodes of the replay. From here "
            "on the run differs from an undisturbed one; its parameters, optimisers and memory are complete."
        )
        return incomplete

    def _whole(self, warn: Warn, set_aside: bool) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Checkpoints whose own files are all as they were written, the newest first."""
        for step in reversed(self.steps()):
            folder = self.files.checkpoint(step)
            try:
                verify(folder)
                state = _read_state(folder)
            except Damaged as error:
                warn(f"Checkpoint {folder.name} is damaged ({error}). Falling back to the one before it.")
                if set_aside:
                    _move_aside(folder)
                continue
            yield folder, state

    def _episodes(self, state: dict[str, Any], repair: bool) -> tuple[list[Episode], int, list[str]]:
        """The episodes of the replay as far as they can be read, how many cannot, and why."""
        episodes: list[Episode] = []
        lost, reasons = 0, []
        for segment in self._segments_of(state):
            try:
                numbered = segment.episodes(repair)
            except SegmentDamaged as error:
                lost += min(segment.count, segment.first + segment.count - state["replay_first"])
                reasons.append(str(error))
                continue
            episodes += [episode for number, episode in numbered if number >= state["replay_first"]]
        return episodes, lost, reasons

    def _segments_of(self, state: dict[str, Any]) -> list[Segment]:
        return [Segment(self.segments_folder, described) for described in state["segments"]]


def why(error: Exception) -> str:
    """Why something could not be written."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    return "the disk is full" if full else f"{type(error).__name__}: {error}"


def load_embedder(folder: Path, like: PyTree) -> tuple[PyTree, Path]:
    """The embedder's state in a checkpoint, and where its memory is."""
    return load_part(folder / TREE, {"embedder": like})["embedder"], folder / MEMORY


def load_learner(folder: Path, like: PyTree) -> PyTree:
    """The learner's state in a checkpoint, known to be as it was written."""
    try:
        verify(folder)
    except Damaged as error:
        raise CheckpointError(f"{folder} is damaged ({error}). Choose another one.") from error
    return load_part(folder / TREE, {"learner": like})["learner"]


# The manifest


def _fingerprints(folder: Path) -> dict[str, dict[str, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:  # others wrote some of them: make sure that they are on disk before they are vouched for
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return {path.relative_to(folder).as_posix(): Fingerprint.of(path)._asdict() for path in files}


def verify(folder: Path) -> None:
    """Compare every file with the manifest. Raises `Damaged` if one differs, `CheckpointError` if it cannot be read."""
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
        _require_format(folder, manifest)
        files = {folder / name: Fingerprint(**entry) for name, entry in manifest["files"].items()}
    except FileNotFoundError as error:
        raise Damaged("its manifest is missing") from error
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {reason(error)}. It was left as it is.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged("its manifest is unreadable") from error
    for path, expected in files.items():
        _verify_file(path, expected)


def _require_format(folder: Path, manifest: dict[str, Any]) -> None:
    first_format = all(isinstance(entry, dict) and "crc" in entry for entry in manifest.values())
    found = 1 if first_format else manifest["format"]
    if found != FORMAT and isinstance(found, int):
        raise CheckpointError(
            f"{folder} has format {found}; this version of emu reads format {FORMAT} (since 0.2 checkpoints are "
            "safetensors). Finish the run with the version that began it, or start it anew in another folder."
        )


def _verify_file(path: Path, expected: Fingerprint) -> None:
    try:
        if Fingerprint.of(path) != expected:
            raise Damaged(f"{path.name} is not what was written")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Damaged(f"{path.name} is missing") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}. It was left as it is.") from error


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state = Record.read(folder / STATE)
        if state.whole("replay_added") < state.whole("replay_first") or "segments" not in state:
            raise EmuError(f"{folder / STATE} does not say which episodes belong to it.")
        state.records("segments")
    except EmuError as error:
        raise CheckpointError(str(error)) from error
    return state.content


def _read_back(folder: Path, content: Content) -> None:
    """What was just written must read as it was meant, before it replaces anything; `save_tree` has read the tree."""
    with np.load(folder / ROLLOUT, allow_pickle=False) as stored:
        same = stored.files == list(content.arrays)
        same = same and all(stored[name].tobytes() == np.asarray(a).tobytes() for name, a in content.arrays.items())
    for path in (folder / MEMORY).rglob("*.npy"):
        np.load(path, mmap_mode="r", allow_pickle=False)
    if not same:
        raise CheckpointError(f"{folder / ROLLOUT} does not read back as it was written")
    verify(folder)


def _move_aside(folder: Path) -> None:
    number, place = 1, folder.with_name(f"{DAMAGED}{folder.name}")
    while place.exists():
        number += 1
        place = folder.with_name(f"{DAMAGED}{folder.name}-{number}")
    folder.rename(place)
