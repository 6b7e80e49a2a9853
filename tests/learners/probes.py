"""Environments of one or two steps whose values are known: each asks one thing of a learner, and nothing else.

constant   one step, reward 1                                    can it fit a value at all?
ahead      a sign is shown; a step later it is the reward        does it bootstrap, and discount?
action     one step; the action decides the reward               does it tell actions apart, and choose?
memory     a sign is shown, then hidden; the second action       does it remember the first observation?
           should match it
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs import EnvSpec
from emu.types import Batch, Outcome


class ProbeState(NamedTuple):
    sign: Any  # () float32: -1 or 1
    time: Any  # () int32


@dataclasses.dataclass(frozen=True)
class Probe:
    """Every agent sees the same; the team's action is the mean over its agents of ±1, or of the number in [-1, 1]."""

    kind: str
    agents: int = 1
    continuous: bool = False
    stack: int = 1
    gamma: float = 0.5

    @property
    def length(self) -> int:
        return 2 if self.kind in ("ahead", "memory") else 1

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=self.kind,
            version="1",
            n_agents=self.agents,
            n_actions=1 if self.continuous else 2,
            obs_dim=2,
            state_dim=2 * self.agents,
            episode_limit=self.length,
            unit_dim=2,
            has_goal=False,
            return_range=(-1.0, 1.0),
            action_dim=int(self.continuous),
            stack=self.stack,
        )

    def reset(self, key: Any) -> ProbeState:
        return ProbeState(jnp.where(jax.random.bernoulli(key), 1.0, -1.0), jnp.int32(0))

    def step(self, state: ProbeState, action: Any, key: Any) -> tuple[ProbeState, Outcome]:
        last = state.time + 1 >= self.length
        reward = jnp.where(last, self.reward(state.sign, self.done(action)), 0.0)
        return ProbeState(state.sign, state.time + 1), Outcome(reward, last, ~last & False, ~last & False)

    def done(self, action: Any) -> Any:
        """What the team did, in [-1, 1]: (N,) or (N, 1) -> ()."""
        return jnp.mean(action) if self.continuous else jnp.mean(2.0 * action - 1.0)

    def reward(self, sign: Any, done: Any) -> Any:
        """Of the last step."""
        return {"constant": 1.0 + 0.0 * done, "ahead": sign + 0.0 * done, "action": done, "memory": sign * done}[
            self.kind
        ]

    def observe(self, state: ProbeState) -> Any:
        shown = (state.time == 0) if self.kind == "memory" else self.kind == "ahead"
        view = jnp.stack([jnp.where(shown, state.sign, 0.0), state.time.astype(jnp.float32)])
        return jnp.tile(view, (self.agents, 1))

    def avail(self, state: ProbeState) -> Any:
        return jnp.ones((self.agents, self.spec.n_actions), bool)

    def state(self, state: ProbeState) -> Any:
        return self.observe(state).reshape(-1)

    def best(self, sign: np.ndarray, time: int) -> np.ndarray:
        """The value of what is seen at a time, if all goes on as well as it can."""
        final = {
            "constant": np.ones_like(sign),
            "ahead": sign,
            "action": np.ones_like(sign),
            "memory": np.ones_like(sign),
        }
        return self.gamma ** (self.length - 1 - time) * final[self.kind]

    def values(self, batch: Batch, sign: np.ndarray) -> np.ndarray:
        """Q (T, B) of the actions taken in a time-major batch."""
        rows = [self.best(sign, time) for time in range(self.length)]
        done = np.asarray(jax.vmap(self.done)(batch.action[-1]))
        rows[-1] = np.asarray(jax.vmap(self.reward)(sign, done))
        return np.stack(rows)


def play(env: Probe, learner: Any, policy: Any, explore: float, copies: int, key: Any) -> tuple[Batch, Any]:
    """Whole episodes of so many copies, batch-major, and the sign of each; all of one length, so nothing is padded."""
    keys = jax.random.split(key, env.length + 1)
    state = jax.vmap(env.reset)(jax.random.split(keys[0], copies))
    sign, carry, seen, done = state.sign, learner.initial_carry(copies), [_see(env, state)], []
    for key in keys[1:]:
        obs, _, avail = seen[-1]
        action, carry = learner.act(policy, carry, obs, avail, jnp.float32(explore), key)
        state, outcome = jax.vmap(env.step)(state, action, jax.random.split(key, copies))
        done.append((action, outcome.reward, outcome.terminated, outcome.truncated, learner.log_prob(carry)))
        seen.append(_see(env, state))
    obs, features, avail = (jnp.stack(rows, axis=1) for rows in zip(*seen, strict=True))
    action, reward, terminated, truncated, log_prob = (
        None if rows[0] is None else jnp.stack(rows, axis=1) for rows in zip(*done, strict=True)
    )
    filled = jnp.ones_like(terminated)
    time = jnp.broadcast_to(jnp.arange(env.length), filled.shape)
    return Batch(
        _stacked(obs, env.stack), features, avail, action, reward, terminated, truncated, filled, time, log_prob
    ), sign


def _see(env: Probe, state: ProbeState) -> tuple[Any, Any, Any]:
    return jax.vmap(env.observe)(state), jax.vmap(env.state)(state), jax.vmap(env.avail)(state)


def _stacked(obs: Any, stack: int) -> Any:
    """Each observation behind those before it, zeros before the first: as the replay of single steps shows them."""
    before = [jnp.zeros_like(obs[:, :1])] * (stack - 1)
    padded = jnp.concatenate([*before, obs], axis=1)
    length = obs.shape[1]
    return jnp.concatenate([padded[:, k : k + length] for k in range(stack)], axis=-1)
