"""TD3 and EMU(TD3) on a Gymnasium task: steps a second with learning on, beside the environment alone, and bytes.

    python benchmarks/single_agent.py [--env gymnasium:Hopper-v4] [--steps 30000] [--schedule episode|step]

"alone" is the environment with random actions in a plain loop. A row's steps are counted after --warm-up steps, which
cover the random start and compiling; bytes are what replay and memory hold at the end, with bytes a step in brackets.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from emu import envs
from emu.config.presets import preset
from emu.devices import configure_cpu_devices
from emu.envs.protocols import PythonEnv
from emu.envs.scripted import random_action, random_shape
from emu.training.live import human_bytes
from emu.training.loop import Trainer
from emu.training.progress import Progress

SCHEDULES = {"episode": {}, "step": {"learner.updates_per_episode": 0, "learner.updates_per_step": 1.0}}


def alone(env: PythonEnv, seconds: float = 5.0) -> float:
    """Steps a second of random play in a plain loop."""
    rng, view, steps = np.random.default_rng(0), env.reset(0), 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        view, outcome = env.step(random_action(env.spec, view.avail, rng.random(random_shape(env.spec))))
        steps += 1
        if outcome.terminated or outcome.truncated:
            view = env.reset(steps)
    return steps / (time.perf_counter() - started)


def row(algo: str, options: argparse.Namespace) -> str:
    changes = {"steps": options.steps, "rollout.random_steps": options.warm_up // 2, "devices": options.devices}
    changes |= {"tensorboard": False, "eval.interval": 10**9, "checkpoint.interval": 10**9, "log_interval": 10**9}
    config = preset(algo, options.env, **changes, **SCHEDULES[options.schedule])
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Path(folder), Progress(quiet=True))
        try:
            return measured(trainer, options)
        finally:
            trainer.rollout.close()


def measured(trainer: Trainer, options: argparse.Namespace) -> str:
    def turn() -> None:
        trainer.remember(trainer.collect())
        trainer.learn()
        trainer.train_embedder()

    while trainer.counters.step < options.warm_up:
        turn()
    trainer.settle()
    step, updates = trainer.counters.step, trainer.counters.updates
    before, started = dict(trainer.clock.seconds), time.time()
    while trainer.counters.step < options.steps:
        turn()
    trainer.settle()
    wall = time.time() - started
    steps, updates = trainer.counters.step - step, trainer.counters.updates - updates
    shares = {name: (spent - before[name]) / wall for name, spent in trainer.clock.seconds.items()}
    per_update = 1000 * wall * shares["learner"] / max(updates, 1)
    replay, memory = trainer.replay, trainer.memory.memory if trainer.memory else None
    kept = f"{human_bytes(replay.nbytes)} ({replay.nbytes / max(trainer.counters.step, 1):.0f})"
    known = f"{human_bytes(memory.nbytes)} ({memory.nbytes / max(len(memory), 1):.0f})" if memory else "-"
    parts = " ".join(f"{shares[name]:>8.0%}" for name in ("rollout", "memory", "sampling", "learner"))
    head = f"{trainer.config.algo:<8} {steps / wall:>9,.0f} {updates / wall:>9,.0f} {per_update:>10.1f}"
    return f"{head} {parts}  {kept:>16} {known:>16}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="gymnasium:Hopper-v4")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--warm-up", type=int, default=10_000)
    parser.add_argument("--schedule", choices=SCHEDULES, default="episode", help="6 updates an episode, or 1 a step")
    parser.add_argument("--devices", type=int, default=0)
    options = parser.parse_args()
    configure_cpu_devices(options.devices)
    print(f"{options.env}: alone {alone(envs.make(options.env)):,.0f} steps/s")
    print(f"{'':<8} {'steps/s':>9} {'updates/s':>9} {'ms/update':>10}  rollout   memory sampling  learner", end="")
    print(f"  {'replay':>16} {'memory':>16}")
    for algo in ("td3", "emu_td3"):
        print(row(algo, options), flush=True)


if __name__ == "__main__":
    main()
