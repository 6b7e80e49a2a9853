"""Slots and the episodes cut from them: how every kind of rollout keeps episode boundaries exact.

Each copy of an environment writes a stream of slots. A slot holds what is seen and what is done; the end of an episode
is a slot of its own that holds the last observation and takes no step, after which the copy starts anew:

    slot     0     1     2     3     4     5   ...
    sees    o_0   o_1   o_2   o_3   o_0'  o_1'          an episode of T steps is T+1 slots in a row,
    does    a_0   a_1   a_2    -    a_0'  a_1'          just as `Episode` wants them

so that episode boundaries are exact, whatever the chunk, and no observation is stored twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.envs.protocols import Env, PythonEnv
from emu.envs.spec import EnvSpec
from emu.errors import CheckpointError, EnvError
from emu.types import DONE, SEEN, Array, Episode


class Slot(NamedTuple):
    """One slot of every copy; stacked over time by the scan."""

    obs: Array
    state: Array
    avail: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    won: Array
    last: Array  # this slot only shows the end of an episode
    sound: Array  # everything finite, every agent has an available action
    log_prob: Array | None = None  # of the actions, where the learner keeps it


class SlotStream:
    """Slots in, episodes out. `stream` holds the unfinished episodes' slots on the host."""

    def __init__(self, env: Env | PythonEnv, copies: int, chunk: int) -> None:
        self.env, self.copies, self.chunk = env, copies, chunk
        self._clear()

    def _clear(self) -> None:
        self.stream: list[Slot] = []  # host chunks, each (chunk, E, ...), that unfinished episodes still need
        self.begun = np.zeros(self.copies, np.int64)  # per copy: slot in the stream at which its episode began

    def _cut(self, slots: Slot, void: np.ndarray | None = None) -> list[Episode]:
        """Cut the finished episodes out of the stream, in the order in which they ended, and drop what nobody needs.

        A void slot, (chunk, E) bool, holds nothing: the episode that it interrupts is lost.
        """
        self.stream.append(slots)
        base = (len(self.stream) - 1) * self.chunk
        episodes = []
        for row, copy in np.argwhere(slots.last if void is None else slots.last | void):
            end = base + int(row)
            if void is None or not void[row, copy]:
                require_limit(self.env.spec, end - int(self.begun[copy]))
                episodes.append(self._episode(int(copy), int(self.begun[copy]), end))
            self.begun[copy] = end + 1
        require_limit(self.env.spec, len(self.stream) * self.chunk - int(self.begun.min()))
        unneeded = int(self.begun.min()) // self.chunk
        del self.stream[:unneeded]
        self.begun -= unneeded * self.chunk
        return episodes

    def _episode(self, copy: int, begin: int, end: int) -> Episode:
        """Slots begin..end of one copy, the last of which only shows."""
        chunk = self.chunk
        pieces = []
        for index in range(begin // chunk, end // chunk + 1):
            rows = slice(max(begin - index * chunk, 0), min(end + 1 - index * chunk, chunk))
            pieces.append((self.stream[index], rows))

        def field(name: str) -> np.ndarray:
            return np.concatenate([getattr(slots, name)[rows, copy] for slots, rows in pieces])

        seen = {name: field(name) for name in SEEN}
        done = {name: field(name)[:-1] for name in DONE if getattr(self.stream[0], name) is not None}
        return Episode(**seen, **done, won=np.asarray(field("won")[:-1].any()))

    def save(self) -> dict[str, np.ndarray]:
        """The unfinished episodes' slots, as plain arrays."""
        arrays: dict[str, np.ndarray] = {"begun": self.begun}
        if self.stream:
            for name, first in self.stream[0]._asdict().items():
                if first is not None:
                    arrays[name] = np.concatenate([getattr(slots, name) for slots in self.stream])
        return arrays

    def load(self, arrays: dict[str, Any]) -> None:
        self._require_fitting(arrays)
        self.begun = np.array(arrays["begun"])
        self.stream = []
        if "obs" in arrays:
            count = len(arrays["obs"]) // self.chunk
            fields = {name: np.split(np.asarray(arrays[name]), count) for name in Slot._fields if name in arrays}
            self.stream = [Slot(**{name: parts[i] for name, parts in fields.items()}) for i in range(count)]

    def _require_fitting(self, arrays: dict[str, Any]) -> None:
        """Refuse unfinished episodes of other shapes or types than this rollout keeps, before they are cut up."""
        begun, slots = np.asarray(arrays.get("begun")), len(np.atleast_1d(arrays.get("obs", [])))
        fits = begun.shape == (self.copies,) and begun.dtype.kind in "iu" and slots % self.chunk == 0
        fits = fits and bool(((begun >= 0) & (begun <= slots)).all())
        like = empty_slots(self.env.spec, 1, self.copies, log_prob=True)._asdict()
        for name in arrays.keys() & like.keys():
            found, wanted = np.asarray(arrays[name]), np.asarray(like[name])
            shapes = {(slots, *wanted.shape[1:])} | ({(slots, self.copies, 0)} if name == "state" else set())
            fits = fits and found.shape in shapes and same_kind(found, wanted)
        if not fits or (slots and arrays.keys() - {"begun", "log_prob"} != like.keys() - {"log_prob"}):
            raise CheckpointError(
                "The unfinished episodes in the checkpoint do not fit this run's environment, rollout.envs and "
                "rollout.chunk. It was left as it is."
            )


def same_kind(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether both hold truth values, or both numbers."""
    return found.dtype.kind in ("b" if wanted.dtype.kind == "b" else "fiu")


def empty_slots(spec: EnvSpec, chunk: int, copies: int, log_prob: bool) -> Slot:
    """A chunk of slots on the host, to be written."""
    shape = (chunk, copies)
    fields: dict[str, np.ndarray] = {
        name: np.zeros((*shape, *rest), kind) for name, (rest, kind) in spec.step_fields.items()
    }
    if log_prob:
        fields["log_prob"] = np.zeros((*shape, spec.n_agents), np.float32)
    won, last = np.zeros(shape, bool), np.zeros(shape, bool)
    return Slot(**fields, won=won, last=last, sound=np.ones(shape, bool))


def unsound(env: str, copy: int, **shown: np.ndarray) -> str:
    """What is wrong with what a copy shows: the fields that are not finite, else an agent that cannot act."""
    wrong = [name for name, value in shown.items() if not np.isfinite(value).all()]
    what = f"returned NaN or infinity in {', '.join(wrong)}" if wrong else "left an agent without any available action"
    return (
        f"Environment '{env}' {what} (copy {copy}). The run stopped before learning from it. "
        "Run `emu check` on the environment, or `check_env(env)`, to find the step that does this."
    )


def require_limit(spec: EnvSpec, steps: int) -> None:
    if steps > spec.episode_limit:
        raise EnvError(
            f"An episode of '{spec.name}' goes on after spec.episode_limit = {spec.episode_limit} steps. "
            "Run `emu check` on the environment, or `check_env(env)`."
        )
