"""Episodes on disk: immutable, so each is written once, in segments that several checkpoints share.

    replay/episodes-000000000-000000123.npz       the fields of all episodes one after the other, and their lengths
    replay/episodes-000000000-000000123.parity    the exclusive or of the file's sixteen stripes, and their checksums

One damaged place must not take all checkpoints with it, so a segment with damage in one stripe (a flipped bit, a bad
sector) is restored from the parity and the other fifteen, at the price of a sixteenth more on disk.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from emu.envs.spec import EnvSpec
from emu.errors import CheckpointError, EmuError
from emu.files import Fingerprint, reason, replace_arrays, replace_bytes
from emu.play.slots import same_kind
from emu.run.record import Record
from emu.types import DONE, SEEN, Episode

STRIPES = 16
OURS = re.compile(r"\.?episodes-\d{9,}-\d{9,}\.(npz|parity)(\.part)?")  # the only names that may ever be removed


class SegmentDamaged(CheckpointError):
    """A segment that is not as it was written and cannot be restored."""


class Segment:
    """One file of episodes, as the checkpoints that need it describe it."""

    def __init__(self, folder: Path, described: dict[str, Any]) -> None:
        try:
            record = Record(described, "a segment of the replay")
            self.first, self.count = record.whole("first"), record.whole("count", least=1)
            self.expected = Fingerprint(record.whole("bytes"), record.whole("crc"))
            name = record.text("name")
        except EmuError as error:
            raise CheckpointError(f"The replay is described wrongly: {error}") from error
        if not OURS.fullmatch(name):
            raise CheckpointError(f"'{name}' is no name of a segment")
        self.described, self.path = described, folder / name

    @property
    def names(self) -> set[str]:
        return {self.path.name, _parity_path(self.path).name}

    @classmethod
    def write(cls, folder: Path, first: int, episodes: list[Episode]) -> Segment:
        path = folder / f"episodes-{first:09d}-{first + len(episodes) - 1:09d}.npz"
        arrays = _arrays(episodes)
        replace_arrays(path, arrays, compressed=False)
        content = path.read_bytes()
        if any(array.tobytes() != arrays[name].tobytes() for name, array in _load(content).items()):
            raise CheckpointError(f"{path} does not read back as it was written: the disk or its driver is at fault")
        replace_arrays(_parity_path(path), _parity(content), compressed=False)
        described = {"name": path.name, "first": first, "count": len(episodes)}
        return cls(folder, described | _print(content)._asdict())

    def episodes(self, repair: bool) -> list[tuple[int, Episode]]:
        """The episodes with their numbers; `repair` also mends the file where it had to be restored."""
        content = self._content()
        if _print(content) != self.expected:
            content = self._restored(content)
            if repair:
                replace_bytes(self.path, content)
        try:
            return list(enumerate(_cut(_load(content)), self.first))
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise SegmentDamaged(f"{self.path.name} is damaged ({reason(error)})") from error

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError as error:
            raise SegmentDamaged(f"{self.path.name} is missing") from error
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {reason(error)}") from error

    def _restored(self, content: bytes) -> bytes:
        """The content with its one damaged stripe put right."""
        try:
            with np.load(_parity_path(self.path), allow_pickle=False) as stored:
                parity, sums, size = stored["parity"], stored["crc"], int(stored["bytes"])
            stripes = _stripes(content)
            bad = [k for k, stripe in enumerate(stripes) if zlib.crc32(stripe.tobytes()) != sums[k]]
            if len(content) == size and len(bad) == 1 and parity.shape == stripes[0].shape:
                stripes[bad[0]] = parity ^ np.bitwise_xor.reduce(np.delete(stripes, bad, axis=0))
                mended = stripes.tobytes()[:size]
                if _print(mended) == self.expected:
                    return mended
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile):
            pass
        raise SegmentDamaged(f"{self.path.name} is damaged")


def _print(content: bytes) -> Fingerprint:
    return Fingerprint(len(content), zlib.crc32(content))


def _parity_path(path: Path) -> Path:
    return path.with_suffix(".parity")


def _stripes(content: bytes) -> np.ndarray:
    """(STRIPES, width) bytes, the last stripe filled up with zeros."""
    width = -(-len(content) // STRIPES)
    stripes = np.zeros(STRIPES * width, np.uint8)
    stripes[: len(content)] = np.frombuffer(content, np.uint8)
    return stripes.reshape(STRIPES, width)


def _parity(content: bytes) -> dict[str, np.ndarray]:
    stripes = _stripes(content)
    sums = np.array([zlib.crc32(stripe.tobytes()) for stripe in stripes], np.uint32)
    return {"parity": np.bitwise_xor.reduce(stripes), "crc": sums, "bytes": np.array(len(content))}


def _arrays(episodes: list[Episode]) -> dict[str, np.ndarray]:
    names = episodes[0].kept(SEEN + DONE)
    if all(np.may_share_memory(e.obs, e.state) for e in episodes):  # the state is a view of the observation
        del names["state"]
    arrays = {name: np.concatenate([getattr(e, name) for e in episodes]) for name in names}
    arrays["won"] = np.array([bool(e.won) for e in episodes])
    arrays["lengths"] = np.array([e.length for e in episodes])
    return arrays


def _load(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return dict(stored)


def require_fitting(episodes: list[Episode], spec: EnvSpec) -> None:
    """Refuse episodes of another task before a replay takes them: shapes, types, and how long one may be."""
    fields = spec.step_fields
    for episode in episodes:
        if episode.length > spec.episode_limit:
            raise CheckpointError(
                f"An episode of the replay has {episode.length} steps; {spec.episode_limit} are possible"
            )
        for name, (shape, kind) in fields.items():
            found = np.asarray(getattr(episode, name))
            if found.shape[1:] != shape or not same_kind(found, np.empty(0, kind)):
                raise CheckpointError(
                    f"The replay does not fit '{spec.name}': '{name}' is {found.dtype}{list(found.shape[1:])} a step, "
                    f"expected {np.dtype(kind)}{list(shape)}"
                )


def _require_whole(arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that do not hold what their lengths say."""
    lengths, won = arrays["lengths"], arrays["won"]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or won.shape != lengths.shape or won.dtype != np.bool_:
        raise ValueError("its lengths or wins are none")
    if lengths.size and not (lengths.min() >= 1 and lengths.max() < 2**31):
        raise ValueError("an episode has no length")
    steps = int(lengths.sum())
    for names, rows in ((SEEN, steps + len(lengths)), (DONE, steps)):
        for name in names:
            if name in arrays and (arrays[name].ndim < 1 or len(arrays[name]) != rows):
                raise ValueError(f"'{name}' does not hold what the lengths say")


def _cut(arrays: dict[str, np.ndarray]) -> list[Episode]:
    _require_whole(arrays)
    episodes, step, shown = [], 0, 0
    for index, length in enumerate(arrays["lengths"].tolist()):
        seen, done = slice(shown, shown + length + 1), slice(step, step + length)
        wide = {name: arrays[name][seen].copy() for name in SEEN if name in arrays}
        wide.setdefault("state", wide["obs"][:, 0])
        narrow = {name: arrays[name][done].copy() for name in DONE if name in arrays}
        episodes.append(Episode(**wide, **narrow, won=arrays["won"][index]))
        shown, step = shown + length + 1, step + length
    return episodes
