"""Checkpoints: everything a run needs to go on as if it had never stopped.

    run/
      replay/episodes-0000000-0000123.npz     episodes are immutable, so each is written once, in segments
      checkpoints/000000050000/               tree/ (orbax), rollout.npz, memory/, state.json, manifest.json
      best/policy-7/, best/summary.json       the parameters of the best test so far, and that test

A checkpoint is written beside its final place and renamed into it when complete; its manifest holds the size and
checksum of every file, replay segments included. `best/summary.json` names the folder of the parameters and is
replaced in one step, so a process killed at any moment leaves the old best or the new. No pickle anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from emu.errors import CheckpointError
from emu.files import Fingerprint, flush, flush_folder, replace_json
from emu.replay.episodes import Replay
from emu.replay.steps import Transitions
from emu.run.folder import RunFolder
from emu.types import DONE, SEEN, Episode, PyTree


class RunLock:
    """One process per run folder; released when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._file = RunFolder(folder).lock.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            raise CheckpointError(
                f"{folder} is in use by another process (pid {owner}). Wait for it, stop it, or choose another folder."
            ) from error
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        self._file.close()


# Trees: orbax cannot store empty arrays, so a tree is stored as its non-empty leaves by name.


def _named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp

    return ocp.Checkpointer(ocp.StandardCheckpointHandler())


def save_tree(folder: Path, tree: PyTree) -> None:
    import orbax.checkpoint as ocp

    leaves = {name: leaf for name, leaf in _named_leaves(jax.device_get(tree)).items() if leaf.size}
    _checkpointer().save(folder.absolute(), args=ocp.args.StandardSave(leaves))


def load_tree(folder: Path, like: PyTree) -> PyTree:
    """Read a tree back as host arrays, in the structure and with the shapes of `like`."""
    import orbax.checkpoint as ocp

    wanted = _named_leaves(jax.device_get(like))
    present = {name: leaf for name, leaf in wanted.items() if leaf.size}
    try:
        stored = _checkpointer().restore(folder.absolute(), args=ocp.args.StandardRestore(present))
    except (ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"{folder} does not fit this configuration or is damaged: {error}") from error
    for name, leaf in present.items():
        if stored[name].shape != leaf.shape:
            raise CheckpointError(f"{folder}: '{name}' has shape {stored[name].shape}, expected {leaf.shape}.")
    leaves = [stored.get(name, leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def load_part(folder: Path, like: PyTree) -> PyTree:
    """Some leaves of a stored tree, those that `like` names, as host arrays."""
    try:
        stored = _checkpointer().restore(folder.absolute())
        leaves = [stored[name] if leaf.size else leaf for name, leaf in _named_leaves(jax.device_get(like)).items()]
    except (ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"{folder} does not fit this configuration or is damaged: {error}") from error
    return jax.tree.unflatten(jax.tree.structure(like), [np.asarray(leaf) for leaf in leaves])


# Replay segments


def _write_segment(path: Path, episodes: list[Episode]) -> None:
    names = episodes[0].kept(SEEN + DONE)
    if all(np.may_share_memory(e.obs, e.state) for e in episodes):  # the state is a view of the observation
        del names["state"]
    arrays = {name: np.concatenate([getattr(e, name) for e in episodes]) for name in names}
    arrays["won"] = np.array([bool(e.won) for e in episodes])
    arrays["lengths"] = np.array([e.length for e in episodes])
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        flush(file)
    temporary.rename(path)
    flush_folder(path.parent)


def _read_segment(path: Path) -> Iterator[Episode]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    step = shown = 0
    for index, length in enumerate(arrays["lengths"].tolist()):
        seen, done = slice(shown, shown + length + 1), slice(step, step + length)
        wide = {name: arrays[name][seen].copy() for name in SEEN if name in arrays}
        wide.setdefault("state", wide["obs"][:, 0])
        narrow = {name: arrays[name][done].copy() for name in DONE if name in arrays}
        yield Episode(**wide, **narrow, won=arrays["won"][index])
        shown, step = shown + length + 1, step + length


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.keep = run, keep
        self.files = RunFolder(run)
        self.folder, self.segments_folder = self.files.checkpoints, self.files.replay
        self.folder.mkdir(parents=True, exist_ok=True)
        self.segments_folder.mkdir(exist_ok=True)
        self.segments: list[dict[str, Any]] = []  # of the newest checkpoint: name, first, count, bytes, crc

    def steps(self) -> list[int]:
        """Steps at which complete checkpoints exist, oldest first."""
        return self.files.checkpoint_steps()

    def save(
        self,
        step: int,
        tree: PyTree,
        arrays: dict[str, np.ndarray],
        state: dict[str, Any],
        replay: Replay | Transitions,
        save_memory: Callable[[Path], None] | None = None,
    ) -> Path:
        """Write one checkpoint; on any failure the earlier ones stay as they were."""
        final = self.files.checkpoint(step)
        temporary = self.folder / f".writing-{step}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            self._save_replay(replay)
            save_tree(temporary / "tree", tree)
            with (temporary / "rollout.npz").open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                flush(file)
            if save_memory is not None:
                save_memory(temporary / "memory")
            content = state | {
                "replay_added": replay.added,
                "replay_first": replay.first,
                "segments": self.segments,
            }
            _write_json(temporary / "state.json", content)
            _write_json(temporary / "manifest.json", _manifest(temporary))
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            flush_folder(self.folder)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            for part in self.segments_folder.glob("*.part"):
                part.unlink(missing_ok=True)
            raise CheckpointError(self._failure(error)) from error
        self._prune()
        return final

    def load(
        self, like: PyTree, replay: Replay | Transitions, warn: Callable[[str], None]
    ) -> tuple[PyTree, dict, dict, Path]:
        """The newest checkpoint that is whole: its tree, rollout arrays, state and folder. Refills the replay."""
        for step in reversed(self.steps()):
            folder = self.files.checkpoint(step)
            try:
                tree, arrays, state, episodes = self._read(folder, like)
            except (CheckpointError, OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
                warn(f"Checkpoint {folder.name} cannot be used ({error}). Falling back to the one before it.")
                shutil.move(folder, folder.with_name(f"damaged-{folder.name}"))
                continue
            replay.restore(episodes, state["replay_added"])
            self.segments = state["segments"]
            self._prune()
            return tree, arrays, state, folder
        raise CheckpointError(
            f"{self.run} has no checkpoint that can be read, so there is nothing to resume. Start it again in a new "
            "folder with `emu train`; config.json in the old one holds every setting."
        )

    def _read(self, folder: Path, like: PyTree) -> tuple[PyTree, dict, dict, list[Episode]]:
        _verify(folder)
        state = json.loads((folder / "state.json").read_text())
        episodes: list[Episode] = []
        for segment in state["segments"]:
            path = self.segments_folder / segment["name"]
            _verify_file(path, segment)
            episodes.extend(_read_segment(path))
        first = state["segments"][0]["first"] if state["segments"] else state["replay_first"]
        episodes = episodes[state["replay_first"] - first :]
        with np.load(folder / "rollout.npz", allow_pickle=False) as stored:
            arrays = dict(stored)
        return load_tree(folder / "tree", like), arrays, state, episodes

    def _save_replay(self, replay: Replay | Transitions) -> None:
        """Write the episodes that no segment holds yet; forget segments whose episodes have all left the ring."""
        live = [s for s in self.segments if s["first"] + s["count"] > replay.first]
        next_number = max([replay.first] + [s["first"] + s["count"] for s in live])
        episodes = replay.since(next_number)
        if episodes:
            name = f"episodes-{next_number:09d}-{replay.added - 1:09d}.npz"
            path = self.segments_folder / name
            _write_segment(path, episodes)
            live.append({"name": name, "first": next_number, "count": len(episodes), **Fingerprint.of(path)._asdict()})
        self.segments = live

    def _prune(self) -> None:
        """Keep the newest checkpoints, and the replay segments that any of them needs; no half-written ones."""
        for leftover in self.folder.glob(".writing-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for step in self.steps()[: -self.keep]:
            shutil.rmtree(self.files.checkpoint(step), ignore_errors=True)
        needed = {segment["name"] for segment in self.segments}
        for step in self.steps():
            with contextlib.suppress(OSError, ValueError):
                state = json.loads((self.files.checkpoint(step) / "state.json").read_text())
                needed |= {segment["name"] for segment in state["segments"]}
        for path in self.segments_folder.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _failure(self, error: Exception) -> str:
        known = self.steps()
        last = f"The checkpoint of step {known[-1]} is intact" if known else "No earlier checkpoint exists"
        return (
            f"Could not save a checkpoint in {self.run}: {_reason(error)}. {last}. "
            f"Free some space, then go on with `emu resume {self.run}`."
        )


def _reason(error: Exception) -> str:
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    return "the disk is full" if full else f"{type(error).__name__}: {error}"


# The best parameters


def save_best(run: Path, policy: PyTree, step: int, summary: dict[str, float]) -> None:
    """Replace the best parameters; whenever the process ends, there are either the old or the new."""
    best = RunFolder(run).best
    try:
        best.mkdir(exist_ok=True)
        names = [re.match(r"policy-(\d+)", path.name) for path in best.iterdir()]  # half-written ones included
        fresh = best / f"policy-{max((int(name[1]) for name in names if name), default=0) + 1}"
        save_tree(fresh, policy)
        replace_json(best / "summary.json", {"step": step, **summary, "folder": fresh.name})
    except Exception as error:
        raise CheckpointError(
            f"Could not save the best team in {best}: {_reason(error)}. Checkpoints are intact. "
            f"Make room, then go on with `emu resume {run}`."
        ) from error
    for path in best.glob("*"):
        if path.is_dir() and path != fresh:
            shutil.rmtree(path, ignore_errors=True)


def load_best(run: Path, like: PyTree) -> tuple[PyTree, dict[str, float]]:
    """The best parameters of a run and the test they were best in."""
    path = RunFolder(run).best / "summary.json"
    if not path.exists():
        raise CheckpointError(f"{run} holds no trained team yet: it has no best/ folder.")
    try:
        summary = json.loads(path.read_text())
        folder = summary.pop("folder")
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): train the team again.") from error
    return load_tree(path.parent / folder, like), summary


def _write_json(path: Path, content: Any) -> None:
    with path.open("w") as file:
        json.dump(content, file)
        flush(file)


def _manifest(folder: Path) -> dict[str, dict[str, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:  # others wrote some of them: make sure that they are on disk before they are vouched for
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return {str(path.relative_to(folder)): Fingerprint.of(path)._asdict() for path in files}


def _verify(folder: Path) -> None:
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError("its manifest is missing or unreadable") from error
    for name, expected in manifest.items():
        _verify_file(folder / name, expected)


def _verify_file(path: Path, expected: dict[str, Any]) -> None:
    if not path.exists():
        raise CheckpointError(f"{path.name} is missing")
    if Fingerprint.of(path) != (expected["bytes"], expected["crc"]):
        raise CheckpointError(f"{path.name} is damaged")
