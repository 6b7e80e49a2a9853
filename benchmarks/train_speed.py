"""How fast the loop trains, and where the time goes.

    python benchmarks/train_speed.py                         # every row
    python benchmarks/train_speed.py --rows gridworld/qmix   # some
    python benchmarks/train_speed.py --ratio                 # EMU's time per update over QPLEX's, 500,000 memories

A row trains for a while, throws the first part away (compilation, filling of the replay), and prints environment steps
a second with one update of 32 episodes per episode, and the share of each part. Rollout alone is measured with 64
copies.
`sized` is a stand-in with the sizes of 3s_vs_5z and episodes of exactly 100 steps.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from emu import envs
from emu.config.presets import ALGORITHMS, preset
from emu.devices import Devices, configure_cpu_devices
from emu.envs.spec import EnvSpec
from emu.play.compiled import Rollout
from emu.training.loop import Trainer
from emu.training.progress import Progress
from emu.training.reporting import report
from emu.types import Outcome


class SizedState(NamedTuple):
    time: Any
    key: Any


@dataclasses.dataclass(frozen=True)
class Sized:
    """Random features in the sizes of 3s_vs_5z; every episode has exactly `limit` steps."""

    limit: int = 100

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("sized", "1", 3, 11, 48, 68, self.limit, 5, True, (0.0, float(self.limit)))

    def reset(self, key):
        return SizedState(jnp.int32(0), key)

    def step(self, state, action, key):
        over = state.time + 1 >= self.limit
        reward = (action[0] == 3).astype(jnp.float32)
        return SizedState(state.time + 1, key), Outcome(reward, over, jnp.zeros((), bool), over & (action[1] == 3))

    def observe(self, state):
        return jax.random.normal(state.key, (3, 48))

    def avail(self, state):
        return jnp.ones((3, 11), bool)

    def state(self, state):
        return jax.random.normal(state.key, (68,))


envs.register("sized", Sized, "benchmark stand-in with the sizes of 3s_vs_5z")


def measure_training(
    algo: str, env: str, warm_up: float, seconds: float, overrides: dict[str, Any], memories: int = 0
) -> dict[str, float]:
    """Steps and updates a second and the seconds of each part after the warm-up; the memory starts with `memories`."""
    config = preset(algo, env, **{"steps": 10**9, "tensorboard": False, "eval.interval": 10_000, **overrides})
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Path(folder), Progress(quiet=True))
        trainer.open_writer()
        if memories:
            fill_memory(trainer, memories)
        _loop(trainer, warm_up, at_least_updates=3 * config.learner.updates_per_call)
        before, step, updates = dict(trainer.clock.seconds), trainer.counters.step, trainer.counters.updates
        started, cpu_started = time.perf_counter(), time.process_time()
        _loop(trainer, seconds)
        spent, cpu_spent = time.perf_counter() - started, time.process_time() - cpu_started
        parts = {name: trainer.clock.seconds[name] - before[name] for name in before}
        return {
            "steps/s": (trainer.counters.step - step) / spent,
            "updates/s": (trainer.counters.updates - updates) / spent,
            "cpu/update": cpu_spent / (trainer.counters.updates - updates),
            **{name: part / spent for name, part in parts.items()},
        }


def fill_memory(trainer: Trainer, entries: int) -> None:
    """Episodes of random states, until the memory holds about so many; every state is new to it."""
    assert trainer.memory is not None
    memory, spec, rng = trainer.memory.memory, trainer.env.spec, np.random.default_rng(0)
    steps = spec.episode_limit
    while len(memory) < entries:
        states = rng.normal(size=(16, steps + 1, spec.state_dim)).astype(np.float32)
        rewards = rng.random((16, steps)).astype(np.float32)
        memory.update(
            [SimpleNamespace(state=s, reward=r, won=np.bool_(False)) for s, r in zip(states, rewards, strict=True)]  # type: ignore[arg-type]
        )
    trainer.memory.train_if_due(trainer.memory.interval)  # compiled before anything is timed


def measure_ratio(args: Args, out: Console) -> None:
    """EMU against QPLEX per update on `sized`, in turns, so that the machine's moods meet both.

    Once without curiosity on either side, once with it on both: EMC's curiosity is four more recurrent networks, two of
    them trained, whoever uses it.
    """
    rows, base_of = {}, {}
    for label, scale in (("", 0.0), (" with curiosity", 0.001)):
        base = f"qplex{label}"
        rows[base] = ("qplex", {"curiosity.scale": scale}, 0)
        for interval in (10_000, 1_000):
            name = f"emu_qplex{label}, t_emb {interval // 1000}K"
            settings = {"curiosity.scale": scale, "memory.embedder.interval": interval}
            rows[name], base_of[name] = ("emu_qplex", settings, args.memories), base
    times: dict[str, list[float]] = {name: [] for name in rows}
    cpu: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(args.repeats):
        for name, (algo, overrides, memories) in rows.items():
            settings = {"devices": args.devices, **overrides}
            run = measure_training(algo, "sized", args.warm_up, args.seconds, settings, memories)
            times[name].append(1e3 / run["updates/s"])
            cpu[name].append(1e3 * run["cpu/update"])
            both = f"{times[name][-1]:.1f} ms per update, {cpu[name][-1]:.1f} of processor time"
            out.print(f"{name}: {both}, {run['steps/s']:,.0f} steps/s", highlight=False)
    base_of["qplex with curiosity"] = "qplex"
    for name, base in base_of.items():
        for kind, spent in (("", times), (", processor time", cpu)):
            ratios = [mine / theirs for mine, theirs in zip(spent[name], spent[base], strict=True)]
            listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            out.print(f"{name} over {base}{kind}: {statistics.median(ratios):.2f} (all: {listed})", highlight=False)


def _loop(trainer: Trainer, seconds: float, at_least_updates: int = 0) -> None:
    goal = trainer.counters.updates + at_least_updates
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or trainer.counters.updates < goal:
        trainer.remember(trainer.collect())
        trainer.learn()
        trainer.train_embedder()
        report(trainer)
    trainer.settle()


def measure_rollout(env_name: str, copies: int = 64, chunk: int = 64, repeats: int = 15) -> float:
    """Steps a second of collecting alone, with the recurrent agent acting; median of several chunks."""
    env, devices = envs.make(env_name), Devices.of()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(preset("qmix", env_name, tensorboard=False), Path(folder), Progress(quiet=True))
        learner, policy = trainer.learner, trainer.learner.policy(trainer.state)
    rollout = Rollout(env, learner, copies, chunk, devices)
    state = rollout.init(jax.random.PRNGKey(0))
    rates = []
    for repeat in range(repeats + 2):
        started = time.perf_counter()
        state, _, steps = rollout.collect(policy, state, 0.1)
        if repeat >= 2:
            rates.append(steps / (time.perf_counter() - started))
    return statistics.median(rates)


@dataclasses.dataclass
class Args:
    """Measure training speed."""

    rows: tuple[str, ...] = ()  # ENV/ALGO pairs; default: every algorithm on gridworld and on `sized`
    seconds: float = 20.0  # measured time of a row
    warm_up: float = 10.0  # seconds thrown away first
    repeats: int = 1  # runs of each row; the median is printed
    devices: int = 0
    ratio: bool = False  # only EMU's time per update over QPLEX's on `sized`
    memories: int = 500_000  # entries EMU's memory starts with in --ratio


def main(args: Args) -> None:
    configure_cpu_devices(args.devices)
    out = Console(width=150)
    if args.ratio:
        measure_ratio(args, out)
        out.print(where_and_load(), highlight=False)
        return
    rows = args.rows or [f"{env}/{algo}" for env in ("gridworld", "sized") for algo in ALGORITHMS]
    parts = ("rollout", "memory", "sampling", "learner", "evaluation")
    title = "training, one update of 32 episodes per episode"
    table = Table("row", "steps/s", "updates/s", *parts, "other", title=title)
    for row in rows:
        env, _, algo = row.rpartition("/")
        settings = (args.warm_up, args.seconds, {"devices": args.devices})
        runs = [measure_training(algo, env, *settings) for _ in range(args.repeats)]
        figure = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        shares = [figure.get(part, 0.0) for part in parts]
        cells = [f"{share:.0%}" for share in [*shares, max(0.0, 1 - sum(shares))]]
        table.add_row(row, f"{figure['steps/s']:,.0f}", f"{figure['updates/s']:.1f}", *cells)
        out.print(f"{row}: {figure['steps/s']:,.0f} steps/s", highlight=False)
    out.print(table)
    out.print(f"rollout alone, gridworld, 64 copies: {measure_rollout('gridworld'):,.0f} steps/s", highlight=False)
    out.print(where_and_load(), highlight=False)


def where_and_load() -> str:
    load = "/".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{len(jax.devices())} x {jax.devices()[0].platform}, {os.cpu_count()} cores, load average {load}"


if __name__ == "__main__":
    main(tyro.cli(Args))
