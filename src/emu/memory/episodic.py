"""The episodic memory D_E (paper: Algorithm 2, Eq. 1, appendix E): best returns and desirability of similar states.

States (..., S) and their time steps (...) go in, `Recall` comes out. Everything here is numpy on the host; the rules
and the look-up are compiled. An `encode` callable turns (n, S) states and (n,) times into (n, D) embeddings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from emu.errors import ConfigError, EmuError, did_you_mean
from emu.memory import _rules, normalisation, storage
from emu.memory._guard import OneCaller, exclusive
from emu.memory._rules import Steps, Store
from emu.memory.desirability import Judge
from emu.memory.episodes import EpisodeLike, finished
from emu.memory.index import RadiusIndex
from emu.memory.normalisation import finite
from emu.memory.options import MemoryOptions
from emu.memory.projection import RandomProjection

Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]
CHUNK = 262_144  # states encoded at a time when everything is re-embedded
RADII = (1e-7, 10.0)  # bounds of a radius that follows a hit rate
COUNTERS = ("matched", "added", "propagated", "evicted", "recalled", "asked", "matched_before", "added_before")
ALIGNMENT = 64  # bytes: where an array of states begins; from there XLA on a CPU reads it without copying


class Recall(NamedTuple):
    """What the memory knows of each state asked for; leading shape as the states'. A pytree of arrays."""

    found: Any  # (...) bool: an entry is nearer than the radius
    best_return: Any  # (...) float32: H, the highest discounted return from there; 0 where not found
    ratio: Any  # (...) float32: desirable visits / visits, priors included; 0 where not found
    desirable: Any  # (...) bool
    embedding: Any  # (..., D) float32: x of the state asked for (not of the entry)


class Learnt(NamedTuple):
    """What an update did, in steps."""

    matched: int
    added: int
    propagated: int  # matches that became desirable and moved to the new state
    evicted: int


class EpisodicMemory(OneCaller):
    """Fixed-radius episodic memory for any trainer: `update` with finished episodes, `recall` for next states."""

    def __init__(
        self,
        state_dim: int,
        options: MemoryOptions | None = None,
        *,
        gamma: float = 0.99,
        encode: Encode | None = None,
        **changes: Any,
    ) -> None:
        """`gamma` discounts H; `encode` defaults to a random projection; `changes` are fields of `MemoryOptions`."""
        super().__init__()
        if not state_dim >= 1 or not 0 <= gamma <= 1:
            raise ConfigError(f"memory: state_dim at least 1 and gamma in [0, 1] are needed, not {state_dim}, {gamma}.")
        self.options = o = _with_changes(options or MemoryOptions(), changes)
        self.state_dim, self.gamma = int(state_dim), float(gamma)
        self.capacity = o.bounded_capacity(self.state_dim)
        self.encode: Encode = encode or RandomProjection(self.state_dim, o.key_dim)
        radius = o.radius or 6.0**o.key_dim / self.capacity
        self.index = RadiusIndex(o.key_dim, radius, self.capacity, o.metric)
        self.judge = Judge(o.return_threshold, o.return_quantile)
        n = self.capacity
        self._states = _aligned(n, self.state_dim, o.dtype)  # untouched pages cost nothing: no array ever grows
        self._store = Store(
            states=self._states.view(np.uint16),
            times=np.empty(n, np.int32),
            embeddings=np.empty((n, o.key_dim), np.float32),
            best_return=np.empty(n, np.float32),
            desirable=np.empty(n, np.bool_),
            counts=np.empty((n, 2), np.int32),
            links=np.empty((n, 2), np.int32),
            ends=np.array([0, -1, -1], np.int64),
        )
        self.normalisation = normalisation.identity(o.key_dim, o.whiten)
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)

    def __len__(self) -> int:
        return int(self._store.ends[_rules.SIZE])

    @property
    def radius(self) -> float:
        return self.index.radius

    @exclusive
    def update(
        self, episodes: Iterable[EpisodeLike] | EpisodeLike | Iterable[dict[str, Any]] | dict[str, Any]
    ) -> Learnt:
        """Learn a finished episode, or several in turn: one call of the encoder for all states, then compiled rules."""
        steps = self._steps(episodes)
        if steps is None:
            return Learnt(0, 0, 0, 0)
        tally, before, o = np.zeros(4, np.int64), len(self), self.options
        _rules.learn(
            self.index.grid, self._store, steps, self.gamma, o.count_new_desirable, o.backward_propagation, tally
        )
        self.index.added(len(self) - before, len(self))
        learnt = Learnt(*map(int, tally))
        for name, value in learnt._asdict().items():
            self.counters[name] += value
        return learnt

    @exclusive
    def recall(self, states: np.ndarray, times: np.ndarray, mask: np.ndarray | None = None) -> Recall:
        """Look up states (..., S) at times (...); where `mask` is false nothing is looked up (padding).

        Entries found become the most recently used, in the order of the batch.
        """
        states, times = self._questions(states, times)
        shape = states.shape[:-1]
        wanted = np.require(np.ones(shape, np.bool_) if mask is None else mask, np.bool_, ["C", "W"])
        if wanted.shape != shape:
            raise EmuError(f"mask must have the shape of the states' leading dimensions, {shape}, got {wanted.shape}")
        embeddings = self._embed(states.reshape(-1, self.state_dim), times.reshape(-1))
        keys, ids = self.normalisation.keys(embeddings), np.empty(len(embeddings), np.int32)
        found, _ = _rules.recollect(self.index.grid, self._store, keys, wanted.reshape(-1), ids)
        self.counters["recalled"] += int(found)
        self.counters["asked"] += int(wanted.sum())
        return self._answer(ids, embeddings, shape)

    def _questions(self, states: Any, times: Any) -> tuple[np.ndarray, np.ndarray]:
        """States (..., S) and times (...) as arrays; a time for each, or one for all."""
        states = np.asarray(states, np.float32)
        if states.ndim == 0 or states.shape[-1] != self.state_dim:
            raise EmuError(f"the memory takes states of {self.state_dim} numbers, got shape {states.shape}")
        try:
            return states, np.broadcast_to(np.asarray(times), states.shape[:-1])
        except ValueError:
            shapes = f"{states.shape[:-1]}, got {np.shape(times)}"
            raise EmuError(f"times must have the shape of the states' leading dimensions, {shapes}") from None

    @exclusive
    def peek(self, states: np.ndarray, times: np.ndarray) -> tuple[Recall, np.ndarray]:
        """What `recall` would answer for (n, S) states, and their (n, D) keys; leaves no trace: nothing is counted and
        no entry counts as used."""
        states, times = self._questions(states, times)
        if states.ndim != 2:
            raise EmuError(f"peek takes states of shape (n, {self.state_dim}), got {states.shape}")
        embeddings = self._embed(states, times)
        keys = self.normalisation.keys(embeddings)
        return self._answer(self.index.query(keys)[0], embeddings, (len(keys),)), keys

    def _answer(self, ids: np.ndarray, embeddings: np.ndarray, shape: tuple[int, ...]) -> Recall:
        found, at, s, o = ids >= 0, np.maximum(ids, 0), self._store, self.options
        counts = np.where(found[:, None], s.counts[at], 1).astype(np.float32)
        ratio = (counts[:, 1] + np.float32(o.prior_desirable)) / (counts[:, 0] + np.float32(o.prior_visits))
        zero = np.float32(0)
        return Recall(
            found=found.reshape(shape),
            best_return=np.where(found, s.best_return[at], zero).reshape(shape),
            ratio=np.where(found, ratio, zero).reshape(shape),
            desirable=(found & s.desirable[at]).reshape(shape),
            embedding=embeddings.reshape(*shape, -1),
        )

    @exclusive
    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(states, times, best returns) of `count` different entries, all while there are fewer, in random order."""
        size, s = len(self), self._store
        ids = rng.choice(size, min(count, size), replace=False)
        states = np.asarray(self._states.take(ids, axis=0), np.float32)  # `take` is twice as fast as [ids]
        return states, s.times[ids], s.best_return[ids]

    @exclusive
    def reembed(self, encode: Encode | None = None, threads: int = 1) -> None:
        """Recompute every embedding with a new encoder, then mean and spread of each dimension, keys and index.

        Without `encode` the embeddings stay and only the normalisation follows the entries: call it now and then with
        a fixed encoder, too, for until the first call keys are the bare embeddings. `threads` encode in parallel.
        If the encoder fails, the memory stays as it was.
        """
        size, new = len(self), self._store.embeddings[: len(self)]
        if encode is not None:
            new = np.empty_like(new)
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda start: self._encode_chunk(encode, start, new), range(0, size, CHUNK)))
        normal = normalisation.fitted(new, self.options.whiten) if size else self.normalisation
        keys = normal.keys(new)
        self._store.embeddings[:size] = new
        self.encode, self.normalisation = encode or self.encode, normal
        self.index.rebuild(keys, self._chosen_radius())

    def _encode_chunk(self, encode: Encode, start: int, out: np.ndarray) -> None:
        rows = slice(start, min(start + CHUNK, len(out)))
        out[rows] = self._embed(np.asarray(self._states[rows], np.float32), self._store.times[rows], encode)

    def _chosen_radius(self) -> float | None:
        """The radius that brings the share of learnt steps that match nearer to the wanted one; None: it stays.

        A share that is 0.25 too low doubles the radius, one that is too high halves it; at most fourfold at a time.
        """
        c, wanted = self.counters, self.options.target_hit_rate
        matched, added = c["matched"] - c["matched_before"], c["added"] - c["added_before"]
        if wanted == 0 or matched + added == 0:
            return None
        c["matched_before"], c["added_before"] = c["matched"], c["added"]
        factor = 2.0 ** float(np.clip(4 * (wanted - matched / (matched + added)), -2, 2))
        return float(np.clip(self.radius * factor, *RADII))

    @exclusive
    def rejudge(self, threshold: float | None = None) -> None:
        """Judge desirability anew by H against a threshold, by default the mean H (the paper's adaptive option).

        Entries below it stop being desirable and forget their desirable visits; the others count one at least.
        """
        s, size = self._store, len(self)
        if size == 0:
            return
        best = s.best_return[:size]
        above = best >= (best.mean(dtype=np.float64) if threshold is None else threshold)
        s.desirable[:size] = above
        s.counts[:size, 1] = np.where(above, np.maximum(s.counts[:size, 1], 1), 0)

    def stats(self) -> dict[str, float]:
        s, size, c = self._store, len(self), self.counters
        entries = max(size, 1)
        learnt = max(c["matched"] + c["added"], 1)
        return {
            "size": float(size),
            "bytes": float(
                size * self.options.entry_bytes(self.state_dim)
            ),  # not `nbytes`: the index's trees depend on its history
            "mean_visits": float(s.counts[:size, 0].sum() / entries),
            "share_desirable": float(s.desirable[:size].sum() / entries),
            "mean_return": float(s.best_return[:size].sum(dtype=np.float64) / entries),
            "hit_rate": c["matched"] / learnt,
            "recall_rate": c["recalled"] / max(c["asked"], 1),
            "propagated": float(c["propagated"]),
            "evicted": float(c["evicted"]),
            "radius": self.radius,
        }

    @property
    def nbytes(self) -> int:
        """Bytes in use, states and index included."""
        return sum(a.nbytes // self.capacity for a in self._store[:-1]) * len(self) + self.index.nbytes

    def export(self, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """A table of all entries, or of some (numbers), a column each, for plots: copies, safe to change."""
        s, at = self._store, np.arange(len(self)) if rows is None else self._rows(rows)
        return {
            "key": self.index.keys[at],
            "embedding": s.embeddings[at],
            "best_return": s.best_return[at],
            "desirable": s.desirable[at],
            "visits": s.counts[at, 0],
            "desirable_visits": s.counts[at, 1],
            "t": s.times[at],
        }

    @exclusive
    def save(self, folder: str | Path) -> None:
        """Write everything into a folder: plain arrays and JSON. The encoder is the caller's to keep."""
        order = np.empty(len(self), np.int32)
        _rules.use_order(self._store, order)
        everything = storage.Saved(
            self._columns, order, self.normalisation, self.judge.save(), self.counters, self.radius
        )
        storage.save(Path(folder), self._description, everything)

    @exclusive
    def load(self, folder: str | Path) -> None:
        """Become the memory that was saved; from there on it behaves, to the bit, as if it had never been saved."""
        saved = storage.read(Path(folder), self._description, self.capacity, COUNTERS)
        size, s = len(saved.order), self._store
        keys = saved.normalisation.keys(np.array(saved.arrays["embeddings"]))
        for name in storage.ARRAYS:
            self._columns[name][:size] = saved.arrays[name]
        s.ends[_rules.SIZE] = size
        _rules.restore_order(s, saved.order)
        self.normalisation, self.counters = saved.normalisation, saved.counters
        self.judge.load(saved.recent_returns)
        self.index.rebuild(keys, saved.radius if self.options.target_hit_rate > 0 else None)

    @classmethod
    def open(cls, folder: str | Path, encode: Encode | None = None) -> Self:
        """A memory as it was saved, options included."""
        description = storage.read_description(Path(folder))
        memory = cls(description.state_dim, description.options, gamma=description.gamma, encode=encode)
        memory.load(folder)
        return memory

    def _embed(self, states: np.ndarray, times: np.ndarray, encode: Encode | None = None) -> np.ndarray:
        shape = len(states), self.options.key_dim
        x = (encode or self.encode)(states, np.ascontiguousarray(times, np.int32))
        x = _plain(np.asarray(x, np.float32))
        if x.shape != shape:
            raise EmuError(f"encode must return shape {shape}, got {x.shape}")
        if not finite(x):
            raise EmuError("encode returned numbers that are not finite: check the states and the encoder for NaN")
        return x

    def states(self, rows: Any) -> np.ndarray:
        """The stored states of some entries (numbers or a slice), float32."""
        return np.asarray(self._states[self._rows(rows)], np.float32)

    def _rows(self, rows: Any) -> Any:
        """Numbers of entries, or a slice of them, that exist."""
        if isinstance(rows, slice):
            return slice(*rows.indices(len(self)))
        rows = np.asarray(rows)
        if rows.size and not (rows.dtype.kind in "iu" and rows.min() >= 0 and rows.max() < len(self)):
            raise EmuError(f"entries are numbered 0 … {len(self) - 1}, got {rows}")
        return rows.astype(np.int64)

    @property
    def _description(self) -> storage.Description:
        return storage.Description(self.state_dim, self.gamma, self.options)

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        """What is saved of the entries, by name."""
        return {**self._store._asdict(), "states": self._states}

    def _steps(self, given: Any) -> Steps | None:
        """The steps of all episodes, embedded."""
        episodes = finished(given, self.state_dim)
        if not episodes:
            return None
        lengths = [len(e.state) for e in episodes]
        states = _plain(_joined([e.state for e in episodes]))
        embeddings = self._embed(states, _joined([np.arange(n, dtype=np.int32) for n in lengths]))
        as_made = self.normalisation.keys(embeddings)
        keys, rewards, stop = np.empty_like(as_made), np.zeros(len(states), np.float64), 0
        for e, length in zip(episodes, lengths, strict=True):
            start, stop = stop, stop + length
            rewards[start : stop - 1] = e.reward
            keys[start:stop] = as_made[start:stop][::-1]
        if self.options.half_precision:
            states = np.clip(states, -65504, 65504).astype(np.float16)
        bits = states.view(np.uint16)
        desirable = np.array([self.judge(e) for e in episodes], np.bool_)
        return Steps(keys, embeddings, bits, rewards, np.array(lengths, np.int64), desirable)


def _aligned(rows: int, columns: int, dtype: str) -> np.ndarray:
    """An uninitialised array that begins at a multiple of ALIGNMENT."""
    size = rows * columns * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(rows, columns)


def _plain(array: np.ndarray) -> np.ndarray:
    """C-contiguous and writable: any other kind of array would have the kernels compiled once more."""
    flags = array.flags
    return array if flags.c_contiguous and flags.writeable else np.require(array, None, ["C", "W"])


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _with_changes(options: MemoryOptions, changes: dict[str, Any]) -> MemoryOptions:
    known = {field.name for field in dataclasses.fields(options)}
    for name in changes:
        if name not in known:
            raise ConfigError(f"memory: unknown option '{name}'. {did_you_mean(name, known)}")
    return dataclasses.replace(options, **changes)
