"""SMAX through the adapter against JaxMARL's own stepping loop: steps a second, in turns.

    python benchmarks/jaxmarl_speed.py [--env NAME] [--env-args JSON] [--copies E] [--steps T] [--turns R]

Both run E copies for T steps in one compiled scan with random available actions, start finished copies anew, and look
at everything that a learner would see: observations, masks, global state, rewards. "own" is `MultiAgentEnv.step`, which
starts anew by itself; "adapter" is what `emu.play.compiled` does with one of our environments.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from emu import envs
from emu.envs.adapters.jaxmarl import JaxMarlEnv
from emu.play.compiled import choose


def draw(key: Any, avail: Any) -> Any:
    """A random available action for every agent of every copy; avail (E, N, A)."""
    return jax.random.categorical(key, jnp.where(avail, 0.0, -jnp.inf))


def own_loop(env: JaxMarlEnv, copies: int, steps: int) -> Callable[[Any], Any]:
    theirs, agents = env.env, env.agents

    def masks(state: Any) -> Any:
        found = jax.vmap(theirs.get_avail_actions)(state)
        return jnp.stack([found[agent] > 0 for agent in agents], axis=1)

    def one(carry: Any, key: Any) -> Any:
        obs, state, seen = carry
        keys = jax.random.split(key, 2)
        action = draw(keys[0], masks(state))
        wanted = {agent: action[:, i] for i, agent in enumerate(agents)}
        obs, state, rewards, _, _ = jax.vmap(theirs.step)(jax.random.split(keys[1], copies), state, wanted)
        seen = seen + sum(x.sum() for x in obs.values()) + rewards[agents[0]].sum()
        return (obs, state, seen), None

    def run(key: Any) -> Any:
        obs, state = jax.vmap(theirs.reset)(jax.random.split(key, copies))
        return jax.lax.scan(one, (obs, state, 0.0), jax.random.split(key, steps))[0][2]

    return jax.jit(run)


def adapter_loop(env: JaxMarlEnv, copies: int, steps: int) -> Callable[[Any], Any]:
    def one(carry: Any, key: Any) -> Any:
        state, ended, seen = carry
        keys = jax.random.split(key, 3)
        obs, avail, world = jax.vmap(env.observe)(state), jax.vmap(env.avail)(state), jax.vmap(env.state)(state)
        stepped, outcome = jax.vmap(env.step)(state, draw(keys[0], avail), jax.random.split(keys[1], copies))
        renewed = jax.vmap(env.reset)(jax.random.split(keys[2], copies))
        seen = seen + obs.sum() + world.sum() + outcome.reward.sum()
        return (choose(ended, renewed, stepped), ~ended & (outcome.terminated | outcome.truncated), seen), None

    def run(key: Any) -> Any:
        state = jax.vmap(env.reset)(jax.random.split(key, copies))
        return jax.lax.scan(one, (state, jnp.zeros(copies, bool), 0.0), jax.random.split(key, steps))[0][2]

    return jax.jit(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="HeuristicEnemySMAX")
    parser.add_argument("--env-args", type=json.loads, default={"scenario": "3m"})
    parser.add_argument("--copies", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    env = envs.make(f"jaxmarl:{options.env}", **options.env_args)
    sizes = (options.copies, options.steps)
    loops = {"own": own_loop(env, *sizes), "adapter": adapter_loop(env, *sizes)}
    spent: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name, loop in loops.items():
            wall, processor = time.perf_counter(), time.process_time()
            loop(jax.random.PRNGKey(turn)).block_until_ready()
            if turn:  # the first compiles
                spent[name].append(time.process_time() - processor)
                wall = time.perf_counter() - wall
                print(f"{name:>8} {wall:8.3f} s wall, {spent[name][-1]:8.3f} s processor", flush=True)
    count = options.copies * options.steps
    middle = {name: statistics.median(times) for name, times in spent.items()}
    for name, seconds in middle.items():
        print(f"{name:>8}: {count / seconds:,.0f} steps per second of processor time (median of {options.turns})")
    ratios = [a / o for a, o in zip(spent["adapter"], spent["own"], strict=True)]
    print(f"adapter / own, turn by turn: median {statistics.median(ratios):.3f}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
