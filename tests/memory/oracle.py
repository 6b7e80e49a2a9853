"""Algorithm 2 in plain Python: lists, loops, a scan for the nearest neighbour, a scan for the least recently used."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass
class Entry:
    state: np.ndarray
    t: int
    embedding: np.ndarray
    key: np.ndarray
    best_return: np.float32
    desirable: bool
    visits: int
    desirable_visits: int
    last_use: int


class PlainMemory:
    """Slow and obvious. Slots are reused on eviction; ties on distance go to the lowest slot."""

    def __init__(
        self, encode: Any, capacity: int, radius: float, gamma: float, metric: str = "l2", **options: Any
    ) -> None:
        self.encode, self.capacity, self.radius, self.gamma, self.metric = encode, capacity, radius, gamma, metric
        self.return_threshold = options.get("return_threshold")
        self.count_new_desirable = options.get("count_new_desirable", True)
        self.backward_propagation = options.get("backward_propagation", False)
        self.mean, self.spread = np.float32(0), np.float32(1)
        self.keys: Any = None  # another way to keys: (n, D) embeddings to (n, D)
        self.entries: list[Entry] = []
        self.clock = 0

    def key(self, embedding: np.ndarray) -> np.ndarray:
        return (embedding - self.mean) / self.spread if self.keys is None else self.keys(embedding[None])[0]

    def keys_by(self, keys: Any) -> None:
        self.keys = keys
        for e in self.entries:
            e.key = self.key(e.embedding)

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def nearest(self, key: np.ndarray) -> Entry | None:
        if not self.entries:
            return None
        gaps = np.abs(np.stack([e.key for e in self.entries]).astype(np.float64) - key.astype(np.float64))
        if self.metric == "linf":
            total, limit = gaps.max(axis=1), self.radius
        else:
            total, limit = np.zeros(len(gaps)), self.radius * self.radius
            for d in range(gaps.shape[1]):
                total += gaps[:, d] * gaps[:, d]
        best = int(np.argmin(total))
        return self.entries[best] if total[best] < limit else None

    def update(self, episode: Any) -> None:
        steps = len(episode.reward)
        desirable = bool(episode.won)
        if self.return_threshold is not None:
            desirable = float(np.sum(episode.reward, dtype=np.float64)) >= self.return_threshold
        value = 0.0
        for t in range(steps, -1, -1):
            value = (float(episode.reward[t]) if t < steps else 0.0) + self.gamma * value
            state = episode.state[t]
            embedding = self.encode(state[None], np.array([t], np.int32))[0]
            key = self.key(embedding)
            match = self.nearest(key)
            if match is None:
                self.add(Entry(
                    state, t, embedding, key, np.float32(value), desirable, 1,
                    int(desirable and self.count_new_desirable), self.now(),
                ))  # fmt: skip
                continue
            match.visits += 1
            match.desirable_visits += int(desirable)
            match.last_use = self.now()
            was_desirable = match.desirable
            if desirable and not match.desirable:
                match.desirable = True
                match.state, match.t, match.embedding, match.key = state, t, embedding, key
                match.best_return = np.float32(value)
            else:
                match.best_return = max(match.best_return, np.float32(value))
            if self.backward_propagation and was_desirable:
                desirable = True

    def add(self, entry: Entry) -> None:
        if len(self.entries) < self.capacity:
            self.entries.append(entry)
        else:
            oldest = min(range(self.capacity), key=lambda i: self.entries[i].last_use)
            self.entries[oldest] = entry

    def recall(self, state: np.ndarray, t: int) -> Entry | None:
        embedding = self.encode(state[None], np.array([t], np.int32))[0]
        match = self.nearest(self.key(embedding))
        if match is not None:
            match.last_use = self.now()
        return match

    def reembed(self, encode: Any, mean: np.ndarray, spread: np.ndarray) -> None:
        self.encode, self.mean, self.spread = encode, mean, spread
        for e in self.entries:
            e.embedding = encode(e.state[None], np.array([e.t], np.int32))[0]
            e.key = (e.embedding - mean) / spread
