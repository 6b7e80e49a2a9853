"""GIFs of played episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from emu.envs.protocols import Drawable, Env, PythonEnv
from emu.errors import EmuError, EnvError
from emu.files import writing
from emu.play.episode import PlayedEpisode


def best_of(
    episodes: int, play: Callable[[int], PlayedEpisode], record: Callable[[int], PlayedEpisode] | None = None
) -> PlayedEpisode:
    """The first won of several episodes, else the one with the highest return.

    With `record` the chosen one is played once more by it, for environments whose pictures take long.
    """
    best, chosen = play(0), 0
    for seed in range(1, episodes):
        if best.won:
            break
        episode = play(seed)
        if (episode.won, episode.total) > (best.won, best.total):
            best, chosen = episode, seed
    return record(chosen) if record else best


def require_gif(out: Path) -> Path:
    """Refuse another kind of file before an episode is played for it."""
    if out.suffix.lower() != ".gif":
        raise EmuError(f"Episodes are drawn as a .gif file, not '{out.name}'.")
    return out


def save_gif(env: Env | PythonEnv, states: Sequence[Any], out: Path, fps: float | None = None) -> Path:
    """Draw every state (or, where the environment offers `frames`, also what lies between); the last one stays.

    Without `fps`, so many states a second as the environment says, or five.
    """
    require_gif(out)
    if not isinstance(env, Drawable):
        raise EnvError(f"Environment '{env.spec.name}' cannot be drawn: it has no `draw(state)` method.")
    pictures = env.frames(states) if hasattr(env, "frames") else map(env.draw, states)  # type: ignore[attr-defined]
    frames = [Image.fromarray(np.asarray(picture)) for picture in pictures]
    duration = int(1000 / (fps or getattr(env, "fps", 5.0)) * (len(states) - 1 or 1) / (len(frames) - 1 or 1))
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        frames[0].save(
            out,
            save_all=True,
            append_images=frames[1:],
            duration=[duration] * (len(frames) - 1) + [max(1500, duration)],
            loop=0,
        )
    return out
