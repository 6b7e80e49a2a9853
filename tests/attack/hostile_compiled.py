"""Compiled environments that break every promise: `toys.CountingEnv` with one method replaced."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toys import CountingEnv


def _raise(*_: Any) -> Any:
    raise RuntimeError("the ball is lost")


def from_host(action: Callable[[], Any]) -> Callable[..., Any]:
    """Python code inside of the compiled step."""

    def step(original: Callable[..., Any], state: Any, joint: Any, key: Any) -> Any:
        def call() -> np.ndarray:
            action()
            return np.zeros((), np.int32)

        zero = jax.pure_callback(call, jax.ShapeDtypeStruct((), jnp.int32), vmap_method="sequential")
        following, outcome = original(state, joint, key)
        return following._replace(time=following.time + zero), outcome

    return step


def outcome(**changes: Callable[[Any], Any]) -> Callable[..., Any]:
    def step(original: Callable[..., Any], *args: Any) -> Any:
        following, was = original(*args)
        return following, was._replace(**{name: change(getattr(was, name)) for name, change in changes.items()})

    return step


def later(value: float) -> Callable[..., Any]:
    """Another number in everything that is shown after the first step."""
    return lambda original, state: jnp.where(state.time > 1, value, original(state))


def _around(time: Any) -> Any:
    return (time * 3 + 1) % 1_009  # nothing that the compiler sees through


# fault -> (method, what it is replaced by, words of the complaint)
TRACED: dict[str, tuple[str, Callable[..., Any], str]] = {
    "reset raises": ("reset", _raise, "`reset(key)` failed under jax tracing: RuntimeError: the ball is lost (tests"),
    "step raises": ("step", _raise, "`step(state, action, key)` failed under jax tracing: RuntimeError"),
    "observe raises": ("observe", _raise, "`observe(state)` failed under jax tracing: RuntimeError"),
    "avail raises": ("avail", _raise, "`avail(state)` failed under jax tracing: RuntimeError"),
    "state raises": ("state", _raise, "`state(state)` failed under jax tracing: RuntimeError"),
    "branches": ("step", lambda f, s, a, k: f(s, a, k) if s.time > 3 else None, "failed under jax tracing: Tracer"),
    "to numpy": ("observe", lambda f, s: np.asarray(f(s)) * 2, "`observe(state)` failed under jax tracing: Tracer"),
    "exits": ("step", lambda f, *args: (_ for _ in ()).throw(SystemExit(0)), "failed under jax tracing: SystemExit"),
    "obs integers": ("observe", lambda f, s: f(s).astype(int), "returns int32[2, 4]; expected float32[2, 4]"),
    "obs turned": ("observe", lambda f, s: f(s).T, "returns float32[4, 2]; expected float32[2, 4]"),
    "obs none": ("observe", lambda f, s: None, "`observe(state)` returns"),
    "obs dictionary": ("observe", lambda f, s: {"a": f(s)}, "`observe(state)` returns 'dict'"),
    "state short": ("state", lambda f, s: f(s)[:2], "`state(state)` returns float32[2]; expected float32[4]"),
    "avail floats": ("avail", lambda f, s: f(s) * 1.0, "`avail(state)` returns float32[2, 3]; expected bool[2, 3]"),
    "step nothing": ("step", lambda f, *args: None, "`step(state, action, key)` failed"),
    "step grows": ("step", lambda f, s, a, k: ((s, s), f(s, a, k)[1]), "differ from those of `reset`"),
    "reward vector": (
        "step",
        outcome(reward=lambda x: jnp.zeros(2)),
        "outcome.reward is float32[2]; expected",
    ),
    "reward integer": ("step", outcome(reward=lambda x: jnp.int32(1)), "outcome.reward is int32[]; expected a scalar"),
    "reward text": ("step", outcome(reward=lambda x: "much"), "failed under jax tracing"),
    "won integer": ("step", outcome(won=lambda x: jnp.int32(1)), "outcome.won is int32[]; expected a scalar bool"),
}
PLAYED: dict[str, tuple[str, Callable[..., Any], str]] = {
    "obs NaN": ("observe", later(float("nan")), "NaN or infinity in obs: nan at [0, 0]"),
    "state infinite": ("state", later(float("inf")), "NaN or infinity in state: inf at [0]"),
    "avail none": ("avail", lambda f, s: f(s) & (s.time < 2), "an agent has no available action"),
    "reward NaN": ("step", outcome(reward=lambda x: x * jnp.nan), "the reward is NaN or infinite"),
    "both ends": ("step", outcome(truncated=lambda x: True | x, terminated=lambda x: True | x), "are both true"),
    "no end": ("step", outcome(truncated=lambda x: x & False, terminated=lambda x: x & False), "goes on after"),
    "raises inside": ("step", from_host(_raise), "the ball is lost"),
}
COMPILED_LETHAL: dict[str, tuple[str, Callable[..., Any], str]] = {
    "hangs inside": ("step", from_host(lambda: time.sleep(1000)), "did not come back within"),
    "loops for ever": (
        "step",
        lambda f, s, a, k: f(s._replace(time=jax.lax.while_loop(lambda t: t >= 0, _around, s.time)), a, k),
        "did not come back within",
    ),
}
ALL = TRACED | PLAYED | COMPILED_LETHAL


@dataclasses.dataclass(frozen=True)
class Compiled(CountingEnv):
    """One method replaced; the replacement gets the original first."""

    fault: str = ""

    def _call(self, method: str, *args: Any) -> Any:
        original = getattr(super(), method)
        wrong, replacement, _ = ALL.get(self.fault, ("", None, ""))
        return replacement(original, *args) if replacement and wrong == method else original(*args)

    def reset(self, key: Any) -> Any:
        return self._call("reset", key)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        return self._call("step", state, action, key)

    def observe(self, state: Any) -> Any:
        return self._call("observe", state)

    def avail(self, state: Any) -> Any:
        return self._call("avail", state)

    def state(self, state: Any) -> Any:
        return self._call("state", state)
