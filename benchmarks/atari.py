"""DQN's steps and updates a second beside the environment alone, and how many pictures a second frozen networks take.

    python benchmarks/atari.py [--game breakout] [--seconds 10]

Everything in processor seconds of one process with one thread, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from emu.devices import configure_cpu_devices

configure_cpu_devices(1)

from emu import envs  # noqa: E402
from emu.config.presets import preset  # noqa: E402
from emu.envs.atari.features.extractor import BLOCK, Extractor  # noqa: E402
from emu.training.loop import Trainer  # noqa: E402
from emu.training.progress import Progress  # noqa: E402


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units of work per processor second, after a first call that compiles."""
    work()
    done, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        done += work()
    return done / (time.process_time() - started)


def environment_alone(game: str, copies: int) -> Callable[[], int]:
    copies_of = envs.make(f"atari/{game}").open(copies, 1)
    rng, over = np.random.default_rng(0), np.zeros(copies, bool)
    copies_of.reset(~over, np.arange(copies))

    def step() -> int:
        copies_of.step(rng.integers(0, 4, (copies, 1)))
        return copies

    return step


def trainer_of(game: str, algo: str, folder: Path) -> Trainer:
    """A run with a replay to learn from, never to be tested or saved."""
    args = {"episode_limit": 100} | ({"features": "random"} if algo == "emu_dqn" else {})
    changes = {"rollout.random_steps": 10**9, "rollout.workers": 1, "replay.steps": 20_000, "devices": 1}
    trainer = Trainer(preset(algo, f"atari/{game}", **changes, env_args=args), folder, Progress(quiet=True))
    while not trainer.replay.holds(trainer.config.learner.batch_size):
        trainer.remember(trainer.collect())
    return trainer


def collecting(trainer: Trainer) -> Callable[[], int]:
    """Acting, stepping, and what becomes of finished episodes: features, memory, replay."""

    def cycle() -> int:
        before = trainer.counters.step
        for _ in range(7):  # as many slots as the longest episode takes
            trainer.remember(trainer.collect())
        return trainer.counters.step - before

    return cycle


def updating(trainer: Trainer) -> Callable[[], int]:
    def update() -> int:
        (batches,) = trainer.draw(1)
        trainer.update(batches)
        trainer.settle()
        return 1

    return update


def pictures(kind: str, cut: str) -> Callable[[], int]:
    extractor = Extractor(kind, cut=cut, pool=2)
    frames = np.random.default_rng(0).integers(0, 256, (BLOCK, 84, 84)).astype(np.uint8)

    def extract() -> int:
        extractor(frames)
        return BLOCK

    return extract


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--seconds", type=float, default=10.0, help="processor seconds per row")
    options = parser.parse_args()

    def row(name: str, work: Callable[[], int]) -> None:
        print(f"{rate(work, options.seconds):10,.1f} {name}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        row("steps/s, environment alone, 8 copies", environment_alone(options.game, 8))
        for cut in ("stem", "layer1", "layer2", "layer4"):
            row(f"pictures/s, ResNet18 to {cut}, batches of {BLOCK}", pictures("random", cut))
        for algo in ("dqn", "emu_dqn"):
            trainer = trainer_of(options.game, algo, Path(folder) / algo)
            row(f"steps/s, {algo} collecting", collecting(trainer))
            row(f"updates/s, {algo}, batches of {trainer.config.learner.batch_size}", updating(trainer))


if __name__ == "__main__":
    main()
