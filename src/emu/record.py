"""One episode, step by step on the host, and the GIF of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from emu.envs.base import Drawable, Env
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.types import PyTree


class Recording(NamedTuple):
    states: list[PyTree]  # T+1 environment states
    total: float
    won: bool


def record(env: Env, learner: Learner, policy: PyTree, seed: int) -> Recording:
    """Play one greedy episode."""
    first, later = jax.random.split(jax.random.PRNGKey(seed))

    @jax.jit
    def play(state: PyTree, carry: PyTree, key: Any) -> tuple[Any, ...]:
        act_key, step_key, key = jax.random.split(key, 3)
        obs, avail = env.observe(state)[None], env.avail(state)[None]
        action, carry = learner.act(policy, carry, obs, avail, jnp.float32(0), act_key)
        state, outcome = env.step(state, action[0], step_key)
        return state, carry, key, outcome

    state, carry, key = jax.jit(env.reset)(first), learner.initial_carry(1), later
    states, total, won, over = [jax.device_get(state)], 0.0, False, False
    while not over:
        state, carry, key, outcome = play(state, carry, key)
        states.append(jax.device_get(state))
        total += float(outcome.reward)
        won |= bool(outcome.won)
        over = bool(outcome.terminated) or bool(outcome.truncated)
    return Recording(states, total, won)


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


def save_gif(env: Env, states: Sequence[PyTree], out: Path, fps: float = 5.0) -> Path:
    """Draw every state; the last picture stays a little longer."""
    if not isinstance(env, Drawable):
        raise EnvError(f"Environment '{env.spec.name}' cannot be drawn: it has no `draw(state)` method.")
    frames = [Image.fromarray(np.asarray(env.draw(state))) for state in states]
    duration = int(1000 / fps)
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        out,
        save_all=True,
        append_images=frames[1:],
        duration=[duration] * (len(frames) - 1) + [max(1500, duration)],
        loop=0,
    )
    return out
