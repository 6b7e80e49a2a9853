"""Replay of single steps: a ring of slots on the host, from which any step is gathered without a loop in Python.

An episode of T steps takes T+1 slots in a row, the last of which only shows its last observation:

    slot      7     8     9    10    11    12   ...        step 5 of all steps ever added is in slot 7, its next
    sees     o_0   o_1   o_2   o_3   o_0'  o_1'            observation in slot 8; no observation is kept twice
    does     a_0   a_1   a_2    -    a_0'  a_1'
    step      5     6     7           8     9

Whole episodes enter and, the oldest first, leave. As in `Replay`, what is drawn is a pure function of (seed, update).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.seeds import replay_draw
from emu.types import SEEN, Batch, Episode


class Transitions:
    """What `Replay` is for whole episodes. Memory is taken as the ring fills, never more than the bounds say."""

    def __init__(self, spec: EnvSpec, steps: int, max_bytes: int) -> None:
        fields = {name: f for name, f in spec.step_fields.items() if name != "state" or not spec.state_is_obs}
        own = 8 + 4  # bytes a slot of `_slot_of_step` and `_time`
        self.slot_bytes = own + sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in fields.values())
        self.spec, self.slots = spec, min(steps, max_bytes // self.slot_bytes)
        if self.slots < spec.episode_limit + 1:
            needed = self.slot_bytes * (spec.episode_limit + 1) / 1e6
            raise ConfigError(
                f"One episode of '{spec.name}' may have {spec.episode_limit} steps and take {needed:.1f} MB, more than "
                f"the replay may hold. Raise replay.steps ({steps:,}) or replay.gigabytes ({max_bytes / 1e9:g})."
            )
        self._data = {name: np.empty((self.slots, *shape), kind) for name, (shape, kind) in fields.items()}
        self._time = np.empty(self.slots, np.int32)  # of its episode, by slot
        self._slot_of_step = np.empty(self.slots, np.int64)
        self._episodes: deque[tuple[int, bool]] = deque()  # length and `won` of each one held, oldest first
        self.most_bytes = self.slots * self.slot_bytes
        self.added = 0  # episodes ever added
        self.steps = 0  # steps held
        self._added_steps = 0  # steps ever added since this ring was made

    def __len__(self) -> int:
        return len(self._episodes)

    @property
    def first(self) -> int:
        """Number of the oldest episode still held."""
        return self.added - len(self._episodes)

    @property
    def nbytes(self) -> int:
        return (self.steps + len(self._episodes)) * self.slot_bytes

    def holds(self, size: int) -> bool:
        """Whether a batch of this size can be drawn."""
        return self.steps >= size

    def stats(self) -> dict[str, float]:
        return {"replay_episodes": len(self), "replay_steps": self.steps, "replay_bytes": self.nbytes}

    def __str__(self) -> str:
        return f"{self.slots:,} steps"

    def add(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            length = episode.length
            while self.steps + len(self._episodes) + length + 1 > self.slots:
                self.steps -= self._episodes.popleft()[0]
            slots = self._next_slots(length + 1)
            for name, data in self._data.items():
                source = getattr(episode, name)
                data[slots[: len(source)]] = source
            self._time[slots] = np.arange(length + 1)
            self._slot_of_step[np.arange(self._added_steps, self._added_steps + length) % self.slots] = slots[:-1]
            self._episodes.append((length, bool(episode.won)))
            self._added_steps += length
            self.steps += length
            self.added += 1

    def _next_slots(self, count: int) -> np.ndarray:
        """The slots that follow the newest episode."""
        start = 0
        if self._episodes:
            start = int(self._slot_of_step[(self._added_steps - 1) % self.slots]) + 2  # its last slot only shows
        return (start + np.arange(count)) % self.slots

    def draw(self, size: int, seed: int, update: int, count: int) -> list[Batch]:
        """What `count` updates from this one on learn from, (U, B, 1, ...), all in one: steps drawn uniformly and
        independently from all that are held."""
        drawn = np.stack([replay_draw(seed, update + k).integers(self.steps, size=size) for k in range(count)])
        return [self.gather(drawn)]

    def gather(self, numbers: np.ndarray) -> Batch:
        """Steps by number, 0 the oldest held: (...) -> Batch of (..., 1) with what was seen before and after."""
        oldest = self._added_steps - self.steps
        now = self._slot_of_step[(oldest + numbers) % self.slots][..., None]
        seen = np.concatenate([now, (now + 1) % self.slots], axis=-1)
        fields = {name: data.take(seen if name in SEEN else now, axis=0) for name, data in self._data.items()}
        if self.spec.state_is_obs:
            fields["state"] = fields["obs"][..., 0, :]
        if self.spec.stack > 1:
            fields["obs"] = self._stacked(seen)
        return Batch(**fields, filled=np.ones(now.shape, bool), time=self._time[now])

    def _stacked(self, seen: np.ndarray) -> np.ndarray:
        """The last observations up to each of some slots side by side, zeros for those before the episode's first."""
        obs, time = self._data["obs"], self._time[seen]
        parts = []
        for back in reversed(range(self.spec.stack)):
            part = obs.take((seen - np.minimum(back, time)) % self.slots, axis=0)
            part[time < back] = 0
            parts.append(part)
        return np.concatenate(parts, axis=-1)

    def since(self, number: int) -> list[Episode]:
        """Episodes from the given number on, as far as still held: copies."""
        skip = max(0, number - self.first)
        lengths = [length for length, _ in self._episodes]
        begins = self._added_steps - self.steps + np.cumsum([0, *lengths])
        return [
            self._episode(int(begins[i]), length, won) for i, (length, won) in enumerate(self._episodes) if i >= skip
        ]

    def _episode(self, begin: int, length: int, won: bool) -> Episode:
        start = self._slot_of_step[begin % self.slots]
        slots = (start + np.arange(length + 1)) % self.slots
        fields = {name: data[slots if name in SEEN else slots[:-1]] for name, data in self._data.items()}
        if self.spec.state_is_obs:
            fields["state"] = fields["obs"][:, 0]
        return Episode(**fields, won=np.asarray(won))

    def restore(self, episodes: Sequence[Episode], added: int) -> None:
        """Refill an empty ring with the episodes it held when `added` had been added."""
        self.add(episodes)
        self.added = added
