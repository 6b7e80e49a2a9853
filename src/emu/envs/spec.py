"""The environment protocols and their specification; `emu.envs.registry` finds environments by name.

An environment is an object without mutable state: everything that changes lives in the state pytree its methods take
and return, so that thousands of copies run under `jax.vmap` inside one compiled program. An environment written in
plain Python is a `HostEnv` instead: it runs in worker processes (`emu.envs.workers`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from emu.types import Array, Outcome, PyTree


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a learner must know of an environment before the first step."""

    name: str
    version: str  # change it whenever the dynamics, rewards or features change: results are not comparable across
    n_agents: int
    n_actions: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    unit_dim: int  # agent i's own features are state[i * unit_dim : (i + 1) * unit_dim]
    has_goal: bool  # whether `won` means anything; without a goal, desirability comes from the return
    return_range: tuple[float, float]  # smallest and largest undiscounted return possible
    action_dim: int = 0  # continuous actions: this many numbers in [-1, 1], and n_actions is 1; 0: discrete actions
    state_is_obs: bool = False  # the state is the observation of the only agent: nobody needs to keep it twice
    obs_type: str = "float32"  # how observations are kept; pictures as uint8
    state_type: str = "float32"  # how states are kept; features as float16
    picture: tuple[int, int] | None = None  # observations are grey pictures, 0 ... 255, of this height and width
    stack: int = 1  # a learner of single steps sees so many observations, the oldest first; zeros before the first

    @property
    def step_fields(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and type of what one step holds, by the names that `Episode` gives them."""
        n = self.n_agents
        return {
            "obs": ((n, self.obs_dim), self.obs_type),
            "state": ((self.state_dim,), self.state_type),
            "avail": ((n, self.n_actions), np.bool_),
            "action": ((n, self.action_dim), np.float32) if self.action_dim else ((n,), np.int32),
            "reward": ((), np.float32),
            "terminated": ((), np.bool_),
            "truncated": ((), np.bool_),
        }

    @property
    def step_bytes(self) -> int:
        """Bytes that one step takes, as long as nothing is left out."""
        return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in self.step_fields.values())


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


def random_action(spec: EnvSpec, avail: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A joint action drawn uniformly from what is available."""
    if spec.action_dim:
        return rng.uniform(-1, 1, (spec.n_agents, spec.action_dim)).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in avail], np.int32)


class View(NamedTuple):
    """What there is to see of a Python environment between two steps."""

    obs: np.ndarray  # (N, O) float32
    state: np.ndarray  # (S,) float32
    avail: np.ndarray  # (N, A) bool: at least one action for every agent, at the end of an episode too


class Recipe(NamedTuple):
    """How another process makes the same environment: `factory(*positional, **named)`; JSON-ready."""

    factory: str  # "package.module:name"
    positional: tuple[str, ...]
    named: dict[str, Any]


class HostEnv(abc.ABC):
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


class VectorEnv(HostEnv):
    """A `HostEnv` that can also step many copies at once within this process, so that no workers are needed.

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


class Sketch(NamedTuple):
    """Many states as figures on one scene, compact enough to send thousands of them to a browser.

    The scene is JSON: `width` and `height` in units of its own (x to the right, y down), `background`, `shapes` drawn
    behind (`polygon`, `box` or `line` with `fill`, `stroke`, `thickness`), and what each of the F `figures` looks like
    (`corners`, `turn`, `size`, `fill`, `stroke`, `letter`, `rings`: whether life and shield are drawn). With `closest`,
    only the part where the figures are is shown, at least so wide.
    """

    scene: dict[str, Any]
    figures: np.ndarray  # (n, F, 4) float32: x, y, life and shield in [0, 1]; life 0: not there


@runtime_checkable
class Sketchable(Protocol):
    """An environment whose states can be drawn from the vectors that the memory keeps: `emu report` shows them."""

    def sketch(self, states: np.ndarray) -> Sketch:
        """Sketches of (n, S) state vectors."""
        ...
