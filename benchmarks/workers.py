"""Worker processes: steps a second with 1, 2, 4 and 8 of them, and what the framework costs per environment step.

    python benchmarks/workers.py [--env NAME] [--env-args JSON] [--work MICROSECONDS] [--seconds S]

Without --env it plays a cheap environment that computes for --work microseconds a step; --env football/... plays
Google Research Football. "alone" is that environment in a plain loop in this process; for football there is also
gfootball's own environment in such a loop. The overhead is the processor time that the supervising process spends per
step, once with and once without finding the actions (the network of a VDN agent): it depends less than the wall clock
does on how many cores are free, but a busy machine makes it larger too.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from typing import Any

import jax
import numpy as np

from emu import envs
from emu.config import RolloutConfig
from emu.config.presets import preset
from emu.devices import Devices, configure_cpu_devices
from emu.envs import PythonEnv
from emu.envs.football.env import FootballEnv
from emu.envs.scripted import random_action, random_shape
from emu.play.worker_groups import Group, Workers
from emu.play.workers import WorkerRollout


def alone(env: PythonEnv, seconds: float) -> float:
    """Steps a second of random play in a plain loop."""
    rng, view, steps = np.random.default_rng(0), env.reset(0), 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        view, outcome = env.step(random_action(env.spec, view.avail, rng.random(random_shape(env.spec))))
        steps += 1
        if outcome.terminated or outcome.truncated:
            view = env.reset(steps)
    return steps / (time.perf_counter() - started)


def gfootball_alone(env: FootballEnv, seconds: float) -> float:
    """The same of gfootball's own environment on the same scenario, without features made of what it shows."""
    from gfootball.env import create_environment  # pyright: ignore[reportMissingImports]

    agents, rng, steps = env.spec.n_agents, np.random.default_rng(0), 0
    level = f"emu_{env.spec.name.removeprefix('football/')}"
    own = create_environment(level, representation="raw", number_of_left_players_agent_controls=agents)
    own.reset()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        over = own.step(rng.integers(env.spec.n_actions, size=agents).tolist())[2]
        steps += 1
        if over:
            own.reset()
    return steps / (time.perf_counter() - started)


def with_workers(env: PythonEnv, workers: int, copies: int, seconds: float) -> dict[str, float]:
    from emu.learners.build import build_learner

    devices = Devices.of()
    learner = build_learner(preset("vdn", "gridworld"), env.spec, devices)
    started = Workers(env, learner, devices, RolloutConfig(workers=workers), copies, 1)
    rollout = WorkerRollout(started, 16, devices)
    policy, state = learner.policy(learner.init(jax.random.PRNGKey(0))), rollout.init(jax.random.PRNGKey(1))
    acting = watch(Group, "act")
    try:
        for _ in range(3):
            state = rollout.collect(policy, state, 0.5)[0]
        started, processor, steps = time.perf_counter(), time.process_time(), 0
        acting[0] = 0.0
        while time.perf_counter() - started < seconds:
            state, _, taken = rollout.collect(policy, state, 0.5)
            steps += taken
        wall, processor = time.perf_counter() - started, time.process_time() - processor
    finally:
        rollout.close()
    rest = processor - acting[0]
    return {"steps": steps / wall, "with": 1000 * processor / steps, "without": 1000 * rest / steps}


def watch(owner: type, name: str) -> list[float]:
    """Add up the processor time spent in a method from now on."""
    method, spent = getattr(owner, name), [0.0]

    @functools.wraps(method)
    def watched(*args: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return method(*args, **named)
        finally:
            spent[0] += time.process_time() - started

    setattr(owner, name, watched)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="cheap_env:Cheap")
    parser.add_argument("--env-args", type=json.loads, default={})
    parser.add_argument("--work", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--copies", type=int, default=1, help="copies of the environment in every worker")
    options = parser.parse_args()
    configure_cpu_devices()
    args = {"work": options.work} if options.env.endswith(":Cheap") else options.env_args
    env = envs.make(options.env, **args)
    print(f"{options.env}: alone {alone(env, options.seconds):,.0f} steps/s")
    if isinstance(env, FootballEnv):
        print(f"gfootball's own environment alone {gfootball_alone(env, options.seconds):,.0f} steps/s")
    print(f"{'workers':>8} {'steps/s':>10} {'ms/step':>10} {'ms/step without acting':>24}")
    for workers in (1, 2, 4, 8):
        row = with_workers(env, workers, workers * options.copies, options.seconds)
        print(f"{workers:>8} {row['steps']:>10,.0f} {row['with']:>10.3f} {row['without']:>24.3f}", flush=True)


if __name__ == "__main__":
    main()
