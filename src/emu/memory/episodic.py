"""The episodic memory D_E (paper: Algorithm 2, Eq. 1, appendix E): best returns and desirability of similar states.

States (..., S) and their time steps (...) go in, `Recall` comes out. Everything here is numpy on the host; the rules
and the look-up are compiled. An `encode` callable turns (n, S) states and (n,) times into (n, D) embeddings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from emu.errors import ConfigError, EmuError, did_you_mean
from emu.memory import _rules, storage
from emu.memory._rules import Steps, Store
from emu.memory.desirability import Judge
from emu.memory.index import RadiusIndex
from emu.memory.options import MemoryOptions
from emu.memory.projection import RandomProjection

Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]
SMALLEST_SPREAD = 1e-4  # of a dimension, relative to its mean and the widest one; below, float32 noise would be keys
CHUNK = 262_144  # states encoded at a time when everything is re-embedded
ALIGNMENT = 64  # bytes: where an array of states begins; from there XLA on a CPU reads it without copying


class EpisodeLike(Protocol):
    """What `update` needs of an episode."""

    @property
    def state(self) -> np.ndarray: ...  # (T+1, S)
    @property
    def reward(self) -> np.ndarray: ...  # (T,)
    @property
    def won(self) -> Any: ...  # whether the goal was reached


class Recall(NamedTuple):
    """What the memory knows of each state asked for; leading shape as the states'. A pytree of arrays."""

    found: Any  # (...) bool: an entry is nearer than the radius
    best_return: Any  # (...) float32: H, the highest discounted return from there; 0 where not found
    ratio: Any  # (...) float32: desirable visits / visits; 0 where not found
    desirable: Any  # (...) bool
    embedding: Any  # (..., D) float32: x of the state asked for (not of the entry)


class Learnt(NamedTuple):
    """What an update did, in steps."""

    matched: int
    added: int
    propagated: int  # matches that became desirable and moved to the new state
    evicted: int


class EpisodicMemory:
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
        self.mean = np.zeros(o.key_dim, np.float32)
        self.spread = np.ones(o.key_dim, np.float32)
        names = ("matched", "added", "propagated", "evicted", "recalled", "asked")
        self.counters: dict[str, int] = {name: 0 for name in names}

    def __len__(self) -> int:
        return int(self._store.ends[_rules.SIZE])

    @property
    def radius(self) -> float:
        return self.index.radius

    def update(self, episodes: Iterable[EpisodeLike]) -> Learnt:
        """Learn finished episodes in turn: one call of the encoder for all their states, then the compiled rules."""
        steps = self._steps(list(episodes))
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

    def recall(self, states: np.ndarray, times: np.ndarray, mask: np.ndarray | None = None) -> Recall:
        """Look up states (..., S) at times (...); where `mask` is false nothing is looked up (padding).

        Entries found become the most recently used, in the order of the batch.
        """
        states = np.asarray(states, np.float32)
        shape = states.shape[:-1]
        embeddings = self._embed(states.reshape(-1, states.shape[-1]), np.broadcast_to(times, shape).reshape(-1))
        wanted = np.require(np.ones(shape, np.bool_) if mask is None else mask, np.bool_, ["C", "W"]).reshape(-1)
        ids = np.empty(len(embeddings), np.int32)
        found, _ = _rules.recollect(self.index.grid, self._store, self._keys(embeddings), wanted, ids)
        self.counters["recalled"] += int(found)
        self.counters["asked"] += int(wanted.sum())
        return self._answer(ids, embeddings, shape)

    def peek(self, states: np.ndarray, times: np.ndarray) -> tuple[Recall, np.ndarray]:
        """What `recall` would answer for (n, S) states, and their (n, D) keys; leaves no trace: nothing is counted and
        no entry counts as used."""
        embeddings = self._embed(np.asarray(states, np.float32), np.asarray(times))
        keys = self._keys(embeddings)
        return self._answer(self.index.query(keys)[0], embeddings, (len(keys),)), keys

    def _answer(self, ids: np.ndarray, embeddings: np.ndarray, shape: tuple[int, ...]) -> Recall:
        found, at, s = ids >= 0, np.maximum(ids, 0), self._store
        counts = np.where(found[:, None], s.counts[at], 1)
        ratio = counts[:, 1].astype(np.float32) / counts[:, 0].astype(np.float32)
        zero = np.float32(0)
        return Recall(
            found=found.reshape(shape),
            best_return=np.where(found, s.best_return[at], zero).reshape(shape),
            ratio=np.where(found, ratio, zero).reshape(shape),
            desirable=(found & s.desirable[at]).reshape(shape),
            embedding=embeddings.reshape(*shape, -1),
        )

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(states, times, best returns) of `count` different entries, all while there are fewer, in random order."""
        size, s = len(self), self._store
        ids = rng.choice(size, min(count, size), replace=False)
        states = np.asarray(self._states.take(ids, axis=0), np.float32)  # `take` is twice as fast as [ids]
        return states, s.times[ids], s.best_return[ids]

    def reembed(self, encode: Encode | None = None, threads: int = 1) -> None:
        """Recompute every embedding with a new encoder, then mean and spread of each dimension, keys and index.

        Without `encode` the embeddings stay and only the normalisation follows the entries: call it now and then with
        a fixed encoder, too, for until the first call keys are the bare embeddings. `threads` encode in parallel.
        """
        size, x = len(self), self._store.embeddings[: len(self)]
        if encode is not None:
            self.encode = encode
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda start: self._reembed_chunk(start, size), range(0, size, CHUNK)))
        if size > 0:
            mean, spread = np.empty((2, self.options.key_dim))
            _rules.moments(x, mean, spread)
            floor = SMALLEST_SPREAD * (np.abs(mean) + spread.max())
            self.mean = mean.astype(np.float32)
            self.spread = np.where(spread > floor, spread, np.where(floor > 0, floor, 1)).astype(np.float32)
        self.index.rebuild(self._keys(x))

    def _reembed_chunk(self, start: int, size: int) -> None:
        chunk = slice(start, min(start + CHUNK, size))
        self._store.embeddings[chunk] = self._embed(self.states(chunk), self._store.times[chunk])

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
        s, at = self._store, np.arange(len(self)) if rows is None else rows
        return {
            "key": self.index.keys[at],
            "embedding": s.embeddings[at],
            "best_return": s.best_return[at],
            "desirable": s.desirable[at],
            "visits": s.counts[at, 0],
            "desirable_visits": s.counts[at, 1],
            "t": s.times[at],
        }

    def save(self, folder: str | Path) -> None:
        """Write everything into a folder: plain arrays and JSON. The encoder is the caller's to keep."""
        order = np.empty(len(self), np.int32)
        _rules.use_order(self._store, order)
        everything = storage.Saved(self._columns, order, self.mean, self.spread, self.judge.save(), self.counters)
        storage.save(Path(folder), self._description, everything)

    def load(self, folder: str | Path) -> None:
        """Become the memory that was saved; from there on it behaves, to the bit, as if it had never been saved."""
        saved = storage.read(Path(folder), self._description, self.capacity)
        size, s = len(saved.order), self._store
        for name in storage.ARRAYS:
            self._columns[name][:size] = saved.arrays[name]
        s.ends[_rules.SIZE] = size
        _rules.restore_order(s, saved.order)
        self.mean, self.spread, self.counters = saved.mean, saved.spread, saved.counters
        self.judge.load(saved.recent_returns)
        self.index.rebuild(self._keys(s.embeddings[:size]))

    @classmethod
    def open(cls, folder: str | Path, encode: Encode | None = None) -> Self:
        """A memory as it was saved, options included."""
        description = storage.read_description(Path(folder))
        memory = cls(description.state_dim, description.options, gamma=description.gamma, encode=encode)
        memory.load(folder)
        return memory

    def _embed(self, states: np.ndarray, times: np.ndarray) -> np.ndarray:
        key_dim = self.options.key_dim
        if states.shape[-1] != self.state_dim:
            raise EmuError(f"the memory takes states of {self.state_dim} numbers, got {states.shape[-1]}")
        x = _plain(np.asarray(self.encode(states, np.ascontiguousarray(times, np.int32)), np.float32))
        if x.shape != (len(states), key_dim):
            raise EmuError(f"encode must return shape ({len(states)}, {key_dim}), got {x.shape}")
        if not _finite(x):
            raise EmuError("encode returned numbers that are not finite: check the states and the encoder for NaN")
        return x

    def _keys(self, embeddings: np.ndarray) -> np.ndarray:
        keys = np.empty_like(embeddings)
        _rules.normalise(embeddings, self.mean, self.spread, keys)
        return keys

    def states(self, rows: Any) -> np.ndarray:
        """The stored states of some entries (numbers or a slice), float32."""
        return np.asarray(self._states[rows], np.float32)

    @property
    def _description(self) -> storage.Description:
        return storage.Description(self.state_dim, self.gamma, self.options)

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        """What is saved of the entries, by name."""
        return {**self._store._asdict(), "states": self._states}

    def _steps(self, episodes: list[EpisodeLike]) -> Steps | None:
        """The steps of all episodes, embedded."""
        if not episodes:
            return None
        lengths = [len(e.reward) + 1 for e in episodes]
        for e, length in zip(episodes, lengths, strict=True):
            if len(e.state) != length:
                raise EmuError(f"an episode of {length - 1} rewards needs {length} states, got {len(e.state)}")
        states = _plain(_joined([np.asarray(e.state, np.float32) for e in episodes]))
        embeddings = self._embed(states, _joined([np.arange(n, dtype=np.int32) for n in lengths]))
        as_made = self._keys(embeddings)
        keys, rewards, stop = np.empty_like(as_made), np.zeros(len(states), np.float64), 0
        for e, length in zip(episodes, lengths, strict=True):
            start, stop = stop, stop + length
            rewards[start : stop - 1] = e.reward
            keys[start:stop] = as_made[start:stop][::-1]
        if not _finite(rewards):
            raise EmuError("an episode has rewards that are not finite")
        if self.options.dtype == "float16":
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


def _finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite. Their squares' sum nearly always tells, in a fraction of the time."""
    flat = array.reshape(-1)
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _with_changes(options: MemoryOptions, changes: dict[str, Any]) -> MemoryOptions:
    known = {field.name for field in dataclasses.fields(options)}
    for name in changes:
        if name not in known:
            raise ConfigError(f"memory: unknown option '{name}'. {did_you_mean(name, known)}")
    return dataclasses.replace(options, **changes)
