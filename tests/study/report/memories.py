"""Snapshots made of invented memories, so that reports can be tested without training."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from emu import envs
from emu.run.snapshots import Memories, Snapshot, Trail, write_snapshot


def invent_snapshot(run: Path, env_name: str, step: int, rows: int = 60, places: int = 9) -> Snapshot:
    """Memories along a spiral: returns, visits and times rise with the row; every third is desirable."""
    env = envs.make(env_name)
    start = np.asarray(jax.device_get(env.state(env.reset(jax.random.PRNGKey(0)))), np.float16)
    share = np.linspace(0, 1, rows)
    number = np.arange(rows)
    memories = Memories(
        key=_spiral(share, step),
        state=np.tile(start, (rows, 1)),
        best_return=(10 * share).astype(np.float32),
        desirable=number % 3 == 0,
        visits=(1 + number).astype(np.int32),
        desirable_visits=np.where(number % 3 == 0, 1, 0).astype(np.int32),
        time=(number % 12).astype(np.int32),
    )
    along, found = np.linspace(0.1, 0.9, places), np.arange(places) % 4 != 3
    episode = Trail(
        key=_spiral(along, step) + 0.2,
        state=np.tile(start, (places, 1)),
        time=np.arange(places, dtype=np.int32),
        total=np.linspace(0, 10, places).astype(np.float32),
        found=found,
        best_return=np.where(found, 10 * along, 0).astype(np.float32),
        desirable=found & (np.arange(places) % 2 == 0),
    )
    shot = Snapshot(step, 10 * rows, 0.0013, True, memories, episode)
    write_snapshot(run, shot)
    return shot


def _spiral(share: np.ndarray, step: int) -> np.ndarray:
    angle = 9 * share + step / 1e5
    flat = [share * np.cos(angle) * 3, share * np.sin(angle) * 2, 0.1 * share, 0.05 * np.sin(20 * share)]
    return np.stack(flat, axis=1).astype(np.float32)
