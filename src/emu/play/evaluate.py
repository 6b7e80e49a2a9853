"""Testing: a number of greedy episodes in one compiled call."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from emu.devices import DATA, Devices
from emu.envs.protocols import Env
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.types import Array, PyTree


class TestResult(NamedTuple):
    """One entry per episode."""

    total: np.ndarray  # undiscounted return
    won: np.ndarray
    length: np.ndarray

    def summary(self) -> dict[str, float]:
        return {
            "test_win_rate": float(self.won.mean()),
            "test_return": float(self.total.mean(dtype=np.float64)),
            "test_return_std": float(self.total.std(dtype=np.float64)),
            "test_length": float(self.length.mean()),
        }


class Evaluator:
    """Runs `episodes` copies until each has finished one episode."""

    def __init__(self, env: Env, learner: Learner, episodes: int, devices: Devices) -> None:
        self.env, self.learner, self.episodes = env, learner, episodes
        self.shards = devices.sharding_for(episodes)
        self._run = jax.jit(
            jax.shard_map(
                self._play, mesh=self.shards.mesh, in_specs=(P(), P(DATA)), out_specs=P(DATA), check_vma=False
            )
        )

    def test(self, policy: PyTree, seed: int, number: int) -> TestResult:
        """The `number`-th test of a run: its episodes depend on nothing but the seed and this number."""
        key = jax.random.fold_in(jax.random.key_data(jax.random.key(seed ^ 0x7E57)), number)
        keys = self.shards.put(jax.random.split(key, self.episodes))
        *result, over = jax.device_get(self._run(self.shards.replicate(policy), keys))
        if not over.all():
            raise EnvError(
                f"An episode of '{self.env.spec.name}' goes on after spec.episode_limit = "
                f"{self.env.spec.episode_limit} steps. Run `emu check` on the environment."
            )
        return TestResult(*result)

    def _play(self, policy: PyTree, keys: Array) -> tuple[Array, Array, Array, Array]:
        copies = keys.shape[0]
        keys = jax.vmap(jax.random.split)(keys)
        state = jax.vmap(self.env.reset)(keys[:, 0])
        zeros = jnp.zeros(copies)

        def unfinished(loop: Any) -> Array:
            over, length = loop[2], loop[5]
            return ~over.all() & (length.max() < self.env.spec.episode_limit)

        def step(loop: Any) -> Any:
            state, carry, over, total, won, length, keys = loop
            split = jax.vmap(lambda k: jax.random.split(k, 3))(keys)
            obs, avail = jax.vmap(self.env.observe)(state), jax.vmap(self.env.avail)(state)
            action, carry = self.learner.act(policy, carry, obs, avail, jnp.float32(0), split[0, 1])
            state, outcome = jax.vmap(self.env.step)(state, action, split[:, 2])
            total += jnp.where(over, 0.0, outcome.reward)
            won |= outcome.won & ~over
            length += ~over
            over |= outcome.terminated | outcome.truncated
            return state, carry, over, total, won, length, split[:, 0]

        over = jnp.zeros(copies, bool)
        first = (
            state,
            self.learner.initial_carry(copies),
            over,
            zeros,
            over,
            jnp.zeros(copies, jnp.int32),
            keys[:, 1],
        )
        _, _, over, total, won, length, _ = jax.lax.while_loop(unfinished, step, first)
        return total, won, length, over
