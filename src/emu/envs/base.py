"""The environment protocol, its specification, and the registry that finds environments by name.

An environment is an object without mutable state: everything that changes lives in the state pytree its methods take
and return, so that thousands of copies run under `jax.vmap` inside one compiled program.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome, PyTree


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a learner must know of an environment before the first step."""

    name: str
    version: (
        str  # change it whenever the dynamics, rewards or features change: results are not comparable across
    )
    n_agents: int
    n_actions: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    unit_dim: int  # agent i's own features are state[i * unit_dim : (i + 1) * unit_dim]
    has_goal: bool  # whether `won` means anything; without a goal, desirability comes from the return
    return_range: tuple[float, float]  # smallest and largest undiscounted return possible


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
        """Apply one joint action, (N,) int32."""
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


@runtime_checkable
class Drawable(Protocol):
    """An environment that can show itself: `emu render` and `emu play` turn the frames into a GIF."""

    def draw(self, state: PyTree) -> Any:
        """One picture of a (host) state, (height, width, 3) uint8."""
        ...


class Sketch(NamedTuple):
    """Many states as figures on one scene, compact enough to send thousands of them to a browser.

    The scene is JSON: `width` and `height` in units of its own (x to the right, y down), `background`, `shapes` drawn
    behind (`polygon`, `box` or `line` with `fill`, `stroke`, `thickness`), and what each of the F `figures` looks like
    (`corners`, `turn`, `size`, `fill`, `stroke`, `letter`, `rings`: whether life and shield are drawn).
    """

    scene: dict[str, Any]
    figures: np.ndarray  # (n, F, 4) float32: x, y, life and shield in [0, 1]; life 0: not there


@runtime_checkable
class Sketchable(Protocol):
    """An environment whose states can be drawn from the vectors that the memory keeps: `emu report` shows them."""

    def sketch(self, states: np.ndarray) -> Sketch:
        """Sketches of (n, S) state vectors."""
        ...


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered environment: where its factory lives (imported on demand) and what it is."""

    factory: str | Callable[..., Env]  # "package.module:function" or the callable itself
    summary: str
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_registry: dict[str, Entry] = {}


def register(name: str, factory: str | Callable[..., Env], summary: str, **defaults: Any) -> None:
    """Make `make(name, **args)` call `factory(**defaults, **args)`. A name registered again is replaced."""
    _registry[name] = Entry(factory, summary, defaults)


def registered() -> dict[str, Entry]:
    """All registered environments, by name."""
    return dict(sorted(_registry.items()))


def make(name: str, **args: Any) -> Env:
    """Build an environment by its registered name, e.g. `make("gridworld", penalty=0.5)`.

    A name such as "my_module:Factory" needs no registration: it is imported, also from the current folder.
    """
    entry = _registry.get(name)
    if entry is None and ":" in name:
        entry = Entry(name, "")
    if entry is None:
        raise EnvError(
            f"No environment is called '{name}'. {did_you_mean(name, _registry)} `emu envs` lists them all."
        )
    factory = _resolve(entry.factory)
    accepted = inspect.signature(factory).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for key in args:
            if key not in accepted:
                raise EnvError(f"Environment '{name}' has no argument '{key}'. {did_you_mean(key, accepted)}")
    return factory(**{**entry.defaults, **args})


def _resolve(factory: str | Callable[..., Env]) -> Callable[..., Env]:
    if not isinstance(factory, str):
        return factory
    name, _, attribute = factory.partition(":")
    here = os.getcwd()
    try:
        if here not in sys.path:
            sys.path.append(here)
        module = importlib.import_module(name)
    except ImportError as error:
        raise EnvError(f"Environment '{factory}' cannot be imported: {error}.") from error
    if not callable(getattr(module, attribute, None)):
        known = [word for word in vars(module) if not word.startswith("_")]
        raise EnvError(f"Module '{name}' has no '{attribute}'. {did_you_mean(attribute, known)}")
    return getattr(module, attribute)
