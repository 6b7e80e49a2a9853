"""What an environment must offer: `Env` (compiled), `PythonEnv` (plain Python), `VectorEnv` (many copies at once).

A compiled environment is an object without mutable state: everything that changes lives in the state pytree its
methods take and return, so that thousands of copies run under `jax.vmap` inside one compiled program. An environment
in plain Python runs in worker processes (`emu.envs.workers`). Nothing here imports JAX: workers start fast.

Optional, for both kinds: `draw` and `frames` (pictures), `sketch` (the report), `scripted` (players for `emu play`);
for compiled ones also `final_counts(state)`, a dictionary of numbers that `emu play` tells of an episode's last state.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from emu.envs.spec import EnvSpec, Sketch, View
from emu.types import Array, Outcome, PyTree


@runtime_checkable
class Env(Protocol):
    """A JAX environment. Every method is pure, works on a single copy, and may be jitted and vmapped.

    `reset` and `step` take an explicit random key. `step` is never called after it reported the end of an episode.
    The time limit belongs to the environment: it reports it as `truncated` (or `terminated`, where the task says so).
    """

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Array) -> PyTree:
        """A fresh state."""
        ...

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Outcome]:
        """Apply one joint action, (N,) int32; continuous: (N, A) float32 in [-1, 1]."""
        ...

    def observe(self, state: PyTree) -> Array:
        """What each agent sees, (N, O) float32."""
        ...

    def avail(self, state: PyTree) -> Array:
        """Which actions each agent may take, (N, A) bool; always at least one, at the end of an episode too."""
        ...

    def state(self, state: PyTree) -> Array:
        """The global state, (S,) float32, seen by the mixer and the memory only."""
        ...


class Recipe(NamedTuple):
    """How another process makes the same environment: `factory(*positional, **named)`; JSON-ready."""

    factory: str  # "package.module:name"
    positional: tuple[str, ...]
    named: dict[str, Any]


class PythonEnv(abc.ABC):
    """An environment in plain Python, one episode at a time; worker processes run copies of it side by side.

    Derive from this class and give it a `spec`. As for `Env`, `step` is never called after the end of an episode, and
    the environment itself reports its time limit as `truncated` (or `terminated`, where the task says so).
    """

    spec: EnvSpec
    seedable = True  # whether the seed given to `reset` decides all that follows
    recipe: Recipe | None = None  # filled in by `make`

    @abc.abstractmethod
    def reset(self, seed: int) -> View:
        """Start an episode. Everything random in it should come from the seed."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        """Apply one joint action, (N,) int32; continuous: (N, A) float32 in [-1, 1]."""

    def require(self) -> None:
        """Raise `EnvError` if something that episodes need is not installed; asked before worker processes start."""
        return

    def close(self) -> None:
        """Let go of what runs outside this object."""
        return


class Copies(Protocol):
    """Copies of an environment that one object steps at once: E rows of everything, all actions available."""

    def reset(self, begins: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Begin an episode in the copies that (E,) `begins` marks, a seed for each; (E, N, O) what all copies show."""
        ...

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Outcome]:
        """Joint actions (E, N); (E, N, O) observations and an outcome of (E,) arrays.

        A copy whose episode is over must be reset; until then what it shows means nothing, and it may be stepped.
        """
        ...

    def close(self) -> None: ...


class VectorEnv(PythonEnv):
    """A `PythonEnv` that can also step many copies at once within this process, so that no workers are needed.

    Everything in an episode must follow from its seed and its actions: a resumed run plays unfinished episodes again.
    """

    @abc.abstractmethod
    def open(self, copies: int, threads: int) -> Copies:
        """So many copies. The first call of `reset` begins an episode in all of them."""

    @abc.abstractmethod
    def states(self, obs: np.ndarray) -> np.ndarray:
        """(T, S) states from what was seen in (T, N, O); called once per episode, for the whole of it."""


@runtime_checkable
class Drawable(Protocol):
    """An environment that can show itself: `emu render` and `emu play` turn the frames into a GIF.

    A Python environment also has `snapshot()`, which gives what `draw` needs of the present moment.
    """

    def draw(self, state: PyTree) -> Any:
        """One picture of a (host) state, (height, width, 3) uint8."""
        ...


@runtime_checkable
class Sketchable(Protocol):
    """An environment whose states can be drawn from the vectors that the memory keeps: `emu report` shows them."""

    def sketch(self, states: np.ndarray) -> Sketch:
        """Sketches of (n, S) state vectors."""
        ...
