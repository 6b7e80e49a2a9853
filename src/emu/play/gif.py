"""GIFs of played episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from emu.envs.protocols import Drawable, Env, PythonEnv
from emu.errors import EnvError
from emu.play.episode import PlayedEpisode


def best_of(episodes: int, play: Callable[[int], PlayedEpisode]) -> PlayedEpisode:
    """The first won of several episodes, else the one with the highest return."""
    best: PlayedEpisode | None = None
    for seed in range(episodes):
        episode = play(seed)
        if best is None or (episode.won, episode.total) > (best.won, best.total):
            best = episode
        if best.won:
            break
    assert best is not None
    return best


def save_gif(env: Env | PythonEnv, states: Sequence[Any], out: Path, fps: float = 5.0) -> Path:
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
