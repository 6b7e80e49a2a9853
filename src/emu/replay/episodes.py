"""Replay: whole episodes on the host, without padding, in a ring bounded by number and by bytes.

Batches are cut to their longest episode and rounded up to one of a few lengths, so that the learner is compiled a
handful of times. Sampling is a pure function of (seed, update), so a resumed run draws what it would have drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.seeds import replay_draw
from emu.types import DONE, SEEN, Batch, Episode


def bucket_lengths(limit: int, count: int) -> tuple[int, ...]:
    """At most `count` lengths, evenly spread up to the episode limit."""
    return tuple(sorted({-(-limit * k // count) for k in range(1, count + 1)}))


class Replay:
    def __init__(self, spec: EnvSpec, episodes: int, max_bytes: int, buckets: int = 4, shares: int = 1) -> None:
        self.spec, self.capacity, self.max_bytes, self.shares = spec, episodes, max_bytes, shares
        self.lengths = bucket_lengths(spec.episode_limit, buckets)
        longest = spec.step_bytes * (spec.episode_limit + 1)
        if longest > max_bytes:
            raise ConfigError(
                f"One episode of '{spec.name}' may take {longest / 1e6:.1f} MB, more than replay.gigabytes allows "
                f"({max_bytes / 1e6:.1f} MB). Raise replay.gigabytes."
            )
        self._ring: deque[Episode] = deque()
        self.nbytes = 0
        self.most_bytes = min(max_bytes, longest * episodes)  # it never holds more
        self.added = 0  # episodes ever added; the ring holds numbers added-len .. added-1

    def __len__(self) -> int:
        return len(self._ring)

    def holds(self, size: int) -> bool:
        """Whether a batch of this size can be drawn."""
        return len(self._ring) >= size

    def stats(self) -> dict[str, float]:
        return {"replay_episodes": len(self._ring), "replay_bytes": self.nbytes}

    def __str__(self) -> str:
        return f"{self.capacity:,} episodes"

    @property
    def first(self) -> int:
        """Number of the oldest episode still held."""
        return self.added - len(self._ring)

    def add(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            while self._ring and (len(self._ring) >= self.capacity or self.nbytes + episode.nbytes > self.max_bytes):
                self.nbytes -= self._ring.popleft().nbytes
            self._ring.append(episode)
            self.nbytes += episode.nbytes
            self.added += 1

    def since(self, number: int) -> list[Episode]:
        """Episodes from the given number on, as far as still held."""
        skip = max(0, number - self.first)
        return [self._ring[i] for i in range(skip, len(self._ring))]

    def restore(self, episodes: Iterable[Episode], added: int) -> None:
        """Refill an empty ring with the episodes it held when `added` had been added."""
        episodes = list(episodes)
        self.add(episodes)
        self.added = added

    def sample(self, size: int, seed: int, update: int) -> list[Episode]:
        """`size` different episodes, drawn for this very update."""
        chosen = replay_draw(seed, update).choice(len(self._ring), size=size, replace=False)
        return [self._ring[i] for i in chosen]

    def draw(self, size: int, seed: int, update: int, count: int) -> list[Batch]:
        """What `count` updates from this one on learn from, (U, B, ...)."""
        return self.batches([self.sample(size, seed, update + k) for k in range(count)])

    def take(self, size: int) -> list[Episode]:
        """The `size` oldest episodes, which leave the replay."""
        taken = [self._ring.popleft() for _ in range(size)]
        self.nbytes -= sum(episode.nbytes for episode in taken)
        return taken

    def batches(self, groups: Sequence[Sequence[Episode]]) -> list[Batch]:
        """A batch for each group, (U, B, ...): all in one if they have one length, else one by one.

        A batch is never padded because of a longer one that happens to be drawn with it. Its episodes come in the order
        in which a recurrent network is quickest.
        """
        groups = [longest_first(group, self.shares) for group in groups]
        lengths = [self.length_for(group) for group in groups]
        batches = [self.batch(group, length) for group, length in zip(groups, lengths, strict=True)]
        return [stack(batches)] if len(set(lengths)) == 1 else [stack([batch]) for batch in batches]

    def length_for(self, episodes: Iterable[Episode]) -> int:
        """The smallest allowed batch length that holds the longest of these episodes."""
        longest = max(episode.length for episode in episodes)
        return next(length for length in self.lengths if length >= longest)

    def batch(self, episodes: Sequence[Episode], length: int) -> Batch:
        """Side by side, padded to `length`."""
        shape = (len(episodes), length)
        fields: dict[str, np.ndarray] = {
            name: np.zeros((len(episodes), length + (name in SEEN), *rest), kind)
            for name, (rest, kind) in self.spec.step_fields.items()
        }
        if episodes[0].log_prob is not None:
            fields["log_prob"] = np.zeros((*shape, self.spec.n_agents), np.float32)
        time = np.broadcast_to(np.arange(length, dtype=np.int32), shape)
        batch = Batch(**fields, filled=np.zeros(shape, bool), time=time)
        batch.avail[...] = True
        for row, episode in enumerate(episodes):
            for name, source in episode.kept(SEEN + DONE).items():
                getattr(batch, name)[row, : len(source)] = source
            batch.filled[row, : episode.length] = True
        return batch


def longest_first(episodes: Sequence[Episode], shares: int = 1) -> list[Episode]:
    """By falling length within each of the equal shares that devices get of a batch; long ones are dealt out fairly."""
    ranked = sorted(episodes, key=lambda episode: -episode.length)
    return [episode for share in range(shares) for episode in ranked[share::shares]]


def stack(batches: Sequence[Batch]) -> Batch:
    """Several batches along a new leading axis; they must have one length."""
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)
