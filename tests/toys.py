"""Small pieces that several tests share: an environment that can be checked slot by slot, a learner without
parameters, a learning run of a few seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.config import Config
from emu.config.presets import preset
from emu.envs import EnvSpec
from emu.training.progress import Progress
from emu.types import Episode, Outcome

LIMIT = 7
REACH = 0.3
ACTIONS = 3


class CountState(NamedTuple):
    name: Any  # () int32: drawn at reset, so that every slot tells which episode it belongs to
    time: Any  # () int32
    action: Any  # (2,) int32: the joint action that led here, -1 at the start


@dataclasses.dataclass(frozen=True)
class CountingEnv:
    """Observations and states show (episode, time, last action). An episode named n has 1 + n % LIMIT steps; it ends
    terminated and won if n is odd, truncated if n is even. The reward tells the episode and the time."""

    limit: int = LIMIT

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("counting", "1", 2, ACTIONS, 4, 4, self.limit, 1, True, (-1e6, 1e6))

    def reset(self, key: Any) -> CountState:
        name = jax.random.randint(key, (), 0, 60_000)
        return CountState(name, jnp.int32(0), jnp.full(2, -1, jnp.int32))

    def step(self, state: CountState, action: Any, key: Any) -> tuple[CountState, Outcome]:
        over = state.time + 1 >= length_of(state.name)
        odd = state.name % 2 == 1
        reward = (state.name + 0.125 * state.time).astype(jnp.float32)
        following = CountState(state.name, state.time + 1, action.astype(jnp.int32))
        return following, Outcome(reward, over & odd, over & ~odd, over & odd)

    def observe(self, state: CountState) -> Any:
        agent = jnp.arange(2)
        return jnp.stack([self._shared(state, i) for i in agent])

    def _shared(self, state: CountState, agent: Any) -> Any:
        return jnp.stack([state.name, state.time, state.action[agent], agent]).astype(jnp.float32)

    def avail(self, state: CountState) -> Any:
        return jnp.ones((2, ACTIONS), bool)

    def state(self, state: CountState) -> Any:
        return jnp.concatenate([jnp.stack([state.name, state.time]), state.action]).astype(jnp.float32)


class PointState(NamedTuple):
    place: Any  # (2,) float32
    time: Any  # () int32


@dataclasses.dataclass(frozen=True)
class Point:
    """One agent on a plane that should go to the origin; an action is a step of at most REACH each way. The nearer, the
    better; within 0.1 it has won and the episode is over, after LIMIT steps the clock has run out."""

    limit: int = LIMIT

    @property
    def spec(self) -> EnvSpec:
        bounds = (-50.0, 0.0)
        return EnvSpec("point", "1", 1, 1, 2, 2, self.limit, 2, True, bounds, action_dim=2, state_is_obs=True)

    def reset(self, key: Any) -> PointState:
        return PointState(jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0), jnp.int32(0))

    def step(self, state: PointState, action: Any, key: Any) -> tuple[PointState, Outcome]:
        place, time = state.place + REACH * action[0], state.time + 1
        distance = jnp.sum(place**2)
        won = distance < 0.01
        return PointState(place, time), Outcome(-distance, won, (time >= self.limit) & ~won, won)

    def observe(self, state: PointState) -> Any:
        return state.place[None]

    def avail(self, state: PointState) -> Any:
        return jnp.ones((1, 1), bool)

    def state(self, state: PointState) -> Any:
        return state.place


def length_of(name: Any) -> Any:
    return 1 + name % LIMIT


class CountingLearner:
    """Acts by how many slots its carry has lived through: action t % ACTIONS in step t of every episode."""

    on_policy = True

    def init(self, key: Any) -> Any:
        return {"unused": jnp.zeros(1)}

    def policy(self, state: Any) -> Any:
        return state

    def initial_carry(self, copies: int) -> Any:
        return jnp.zeros(copies, jnp.int32)

    def act(self, policy: Any, carry: Any, obs: Any, avail: Any, explore: Any, key: Any) -> tuple[Any, Any]:
        action = jnp.broadcast_to(carry[:, None] % ACTIONS, (carry.shape[0], 2))
        return action.astype(jnp.int32), carry + 1

    def log_prob(self, carry: Any) -> Any:
        """Tells agent and time: -t for the first agent, -t - 1/2 for the second, t counted from 1."""
        return -carry[:, None] - jnp.array([0.0, 0.5])

    def update(self, state: Any, batches: Any, recall: Any, step: Any) -> Any:
        raise NotImplementedError


def make_episode(spec: EnvSpec, length: int, number: int = 0, log_prob: bool = False) -> Episode:
    """An episode whose every entry tells where it belongs."""
    rng = np.random.default_rng(number)
    n = spec.n_agents
    ends = np.arange(length) == length - 1
    obs = rng.normal(size=(length + 1, n, spec.obs_dim)).astype(np.float32)
    state = rng.normal(size=(length + 1, spec.state_dim)).astype(np.float32)
    continuous = rng.uniform(-1, 1, (length, n, spec.action_dim)).astype(np.float32)
    return Episode(
        obs=obs,
        state=obs[:, 0] if spec.state_is_obs else state,
        avail=rng.random((length + 1, n, spec.n_actions)) < 0.7,
        action=continuous if spec.action_dim else rng.integers(0, spec.n_actions, (length, n), dtype=np.int32),
        reward=(number + np.arange(length) / 64).astype(np.float32),
        terminated=ends & (number % 2 == 0),
        truncated=ends & (number % 2 == 1),
        won=np.asarray(number % 2 == 0),
        log_prob=rng.normal(size=(length, n)).astype(np.float32) if log_prob else None,
    )


def same_episode(a: Episode, b: Episode) -> bool:
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True)]  # also of None
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


TINY: dict[str, Any] = {
    "steps": 400,
    "log_interval": 50,
    "tensorboard": False,
    "rollout.envs": 4,
    "rollout.chunk": 8,
    "rollout.epsilon_steps": 200,
    "replay.episodes": 40,
    "agent.hidden": 8,
    "mixer.embed": 4,
    "mixer.hyper_hidden": 8,
    "learner.batch_size": 4,
    "learner.updates_per_call": 1,
    "learner.length_buckets": 1,
    "memory.capacity": 2_000,
    "memory.embedder.interval": 100,
    "memory.embedder.samples": 256,
    "memory.embedder.batch_size": 64,
    "eval.interval": 100,
    "eval.episodes": 4,
    "checkpoint.interval": 150,
}


def tiny_config(algo: str = "qmix", env: str = "gridworld/tiny", **changes: Any) -> Config:
    """A run of a second or two, once compiled."""
    return preset(algo, env, **{**TINY, **changes})


def silent() -> Progress:
    return Progress(quiet=True)


def flip_byte(path: Path, where: float = 0.5) -> None:
    """Damage one byte of a file."""
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 0xFF
    path.write_bytes(content)


def collected(rollout, learner, chunks, seed=0):
    """The episodes of some chunks of a rollout, in order, and the steps taken."""
    state, policy = rollout.init(jax.random.PRNGKey(seed)), learner.init(None)
    episodes, steps = [], 0
    for _ in range(chunks):
        state, ended, taken = rollout.collect(policy, state, 0.0)
        episodes += ended
        steps += taken
    return episodes, steps
