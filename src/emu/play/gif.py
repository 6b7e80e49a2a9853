"""One episode, step by step on the host, and the GIF of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from emu.envs.protocols import Drawable, Env, PythonEnv
from emu.envs.scripted import snapshots_of
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.types import Outcome, PyTree


class Recording(NamedTuple):
    states: list[PyTree]  # T+1 environment states
    total: float
    won: bool


def player(env: Env | PythonEnv, learner: Learner, policy: PyTree) -> Callable[[int], Recording]:
    """A function that plays one greedy episode, given a seed; it is compiled once."""
    if isinstance(env, PythonEnv):
        return _host_player(env, learner, policy)
    reset = jax.jit(env.reset)

    @jax.jit
    def step(state: PyTree, carry: PyTree, key: Any) -> tuple[Any, ...]:
        act_key, step_key, key = jax.random.split(key, 3)
        obs, avail = env.observe(state)[None], env.avail(state)[None]
        action, carry = learner.act(policy, carry, obs, avail, jnp.float32(0), act_key)
        state, outcome = env.step(state, action[0], step_key)
        return state, carry, key, outcome

    def play(seed: int) -> Recording:
        first, key = jax.random.split(jax.random.PRNGKey(seed))
        state, carry = reset(first), learner.initial_carry(1)

        def advance() -> tuple[Any, Outcome]:
            nonlocal state, carry, key
            state, carry, key, outcome = step(state, carry, key)
            return jax.device_get(state), outcome

        return _recorded(jax.device_get(state), advance, env.spec.episode_limit)

    return play


def _recorded(first: Any, advance: Callable[[], tuple[Any, Outcome]], limit: int) -> Recording:
    """One episode, step by step until it ends."""
    states, total, won = [first], 0.0, False
    for _ in range(limit):
        state, outcome = advance()
        states.append(state)
        total += float(outcome.reward)
        won |= bool(outcome.won)
        if outcome.terminated or outcome.truncated:
            break
    return Recording(states, total, won)


def _host_player(env: PythonEnv, learner: Learner, policy: PyTree) -> Callable[[int], Recording]:
    """The same for a Python environment, in this process; its states are what it says of itself to be drawn."""
    snapshot, act = snapshots_of(env), jax.jit(learner.act)

    def play(seed: int) -> Recording:
        view, carry, key = env.reset(seed), learner.initial_carry(1), jax.random.PRNGKey(seed)

        def advance() -> tuple[Any, Outcome]:
            nonlocal view, carry, key
            key, now = jax.random.split(key)
            action, carry = act(policy, carry, view.obs[None], view.avail[None], jnp.float32(0), now)
            view, outcome = env.step(np.asarray(action[0]))
            return snapshot(), outcome

        return _recorded(snapshot(), advance, env.spec.episode_limit)

    return play


def best_of(episodes: int, play: Callable[[int], Recording]) -> Recording:
    """The first won of several episodes, else the one with the highest return."""
    best: Recording | None = None
    for seed in range(episodes):
        recording = play(seed)
        if best is None or (recording.won, recording.total) > (best.won, best.total):
            best = recording
        if best.won:
            break
    assert best is not None
    return best


def save_gif(env: Env | PythonEnv, states: Sequence[PyTree], out: Path, fps: float = 5.0) -> Path:
    """Draw every state (or, where the environment offers `frames`, also what lies between); the last one stays."""
    if not isinstance(env, Drawable):
        raise EnvError(f"Environment '{env.spec.name}' cannot be drawn: it has no `draw(state)` method.")
    pictures = env.frames(states) if hasattr(env, "frames") else map(env.draw, states)  # type: ignore[attr-defined]
    frames = [Image.fromarray(np.asarray(picture)) for picture in pictures]
    duration = int(1000 / fps * (len(states) - 1 or 1) / (len(frames) - 1 or 1))
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        out,
        save_all=True,
        append_images=frames[1:],
        duration=[duration] * (len(frames) - 1) + [max(1500, duration)],
        loop=0,
    )
    return out
