"""One copy of an environment, of whatever kind, played step by step in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from emu.envs.protocols import Env, PythonEnv
from emu.envs.spec import View
from emu.types import Outcome, PyTree

Act = Callable[[View], np.ndarray]  # a joint action for what is seen


def episode_steps(env: PythonEnv, act: Act, seed: int) -> Iterator[tuple[View, Outcome | None]]:
    """An episode as it unfolds: what its beginning shows, then what each step shows and how it turned out.

    Lazy: the next action is asked for only when the next step is, so whoever iterates may look first, or stop.
    """
    view = env.reset(seed)
    yield view, None
    over = False
    while not over:
        view, outcome = env.step(act(view))
        yield view, outcome
        over = bool(outcome.terminated or outcome.truncated)


class SingleCopy(PythonEnv):
    """A compiled environment behind the methods of a Python one: slow, and easy to look into."""

    def __init__(self, env: Env, verify: bool = False) -> None:
        self.env, self.spec, self.verify = env, env.spec, verify
        self.repeatable = True  # with `verify`: every step gave the same state when it was taken twice
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._look = jax.jit(lambda state: View(env.observe(state), env.state(state), env.avail(state)))

    def reset(self, seed: int) -> View:
        self.key, self.time = jax.random.PRNGKey(seed), 0
        self.state = self._reset(self.key)
        return self._view()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        key = jax.random.fold_in(self.key, self.time)
        following, outcome = self._step(self.state, action, key)
        if self.verify:
            self.repeatable &= _same(following, self._step(self.state, action, key)[0])
        self.state, self.time = following, self.time + 1
        return self._view(), Outcome(*(field.item() for field in jax.device_get(outcome)))

    def _view(self) -> View:
        return jax.device_get(self._look(self.state))

    def snapshot(self) -> PyTree:
        """The state, as `draw` wants it."""
        return jax.device_get(self.state)


def single_copy(env: Env | PythonEnv, verify: bool = False) -> PythonEnv:
    """The environment itself if it is one in Python."""
    return env if isinstance(env, PythonEnv) else SingleCopy(env, verify)


def _same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
