"""Playing in environments that step many copies at once in this process (`VectorEnv`): one compiled call finds the
actions of all copies, one call of the environment takes them.

An episode begins with a seed of its own and follows from its actions, so nothing of the environments is saved: a
resumed run plays the unfinished episodes again from their seeds, with the actions that the slots hold, and goes on
exactly.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from emu.devices import Devices, cpu_count
from emu.envs.protocols import Copies, VectorEnv
from emu.envs.workers.pool import seed_of
from emu.errors import CheckpointError
from emu.learners.base import Learner
from emu.play.compiled import SlotStream, empty_slots, make_act, require_limit
from emu.play.evaluate import TestResult
from emu.types import Array, Episode, PyTree


class VectorState(NamedTuple):
    """What the next chunk needs beside the slots of unfinished episodes."""

    key: Array  # (2,) uint32
    carry: PyTree  # of the learner, one row per copy
    fresh: Array  # (E,) bool: the next slot is the first of an episode
    ended: Array  # (E,) bool: the next slot only shows the end of an episode
    episodes: Array  # (E,) int32: episodes begun by each copy; their seeds depend on it
    tick: Array  # (1,) int32: how often actions were found


class Player:
    """Some copies, opened when first needed, and how a learner acts in them."""

    def __init__(self, env: VectorEnv, learner: Learner, copies: int, threads: int, devices: Devices) -> None:
        self.env, self.learner, self.copies, self.threads = env, learner, copies, threads or cpu_count()
        self.device, self._act = devices.devices[0], make_act(learner)
        self.avail = np.ones((copies, env.spec.n_agents, env.spec.n_actions), bool)

    @functools.cached_property
    def games(self) -> Copies:
        return self.env.open(self.copies, self.threads)

    def act(self, policy: PyTree, carry: PyTree, fresh: Any, obs: Any, epsilon: float, key: Any, tick: int) -> Any:
        done, carry = self._act(policy, carry, fresh, obs, self.avail, np.float32(epsilon), key, np.int32(tick))
        return jax.device_get(done), carry

    def close(self) -> None:
        if "games" in self.__dict__:
            self.games.close()


class VectorRollout(SlotStream):
    """`Rollout` for vector environments: same slots, same episodes."""

    env: VectorEnv

    def __init__(self, player: Player, chunk: int, devices: Devices) -> None:
        super().__init__(player.env, player.copies, chunk)
        self.player, self.shards = player, devices.sharding_for(1)
        self.slot_spec = dataclasses.replace(player.env.spec, state_dim=0)  # states are found for whole episodes
        self.running = False

    def init(self, key: Array) -> VectorState:
        self._clear()
        self.running = False
        yes, no = np.ones(self.copies, bool), np.zeros(self.copies, bool)
        carry = jax.device_get(self.player.learner.initial_carry(self.copies))
        begun = np.ones(self.copies, np.int32)
        return VectorState(np.asarray(key, np.uint32), carry, yes, no, begun, np.zeros(1, np.int32))

    def collect(self, policy: PyTree, state: VectorState, epsilon: float) -> tuple[VectorState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        policy = jax.device_put(policy, self.player.device)
        fresh, ended, episodes, tick = (np.array(field) for field in state[2:])
        key, carry, games = np.array(state.key), state.carry, self.player.games
        if not self.running:
            self.obs = self._play_again(key, episodes)
            self.running = True
        slots = empty_slots(self.slot_spec, self.chunk, self.copies, self.player.learner.on_policy)
        slots.avail[...] = True
        for row in range(self.chunk):
            done, carry = self.player.act(policy, carry, fresh, self.obs, epsilon, key, int(tick[0]))
            tick += 1
            slots.obs[row], slots.last[row] = self.obs, ended
            for name, value in done.items():
                getattr(slots, name)[row] = value
            obs, outcome = games.step(done["action"])
            for name, value in outcome._asdict().items():
                getattr(slots, name)[row] = np.where(ended, np.zeros_like(value), value)
            if ended.any():
                episodes[ended] += 1
                obs = games.reset(ended, self._seeds(key, episodes, ended))
            self.obs, fresh = obs, ended
            ended = np.logical_or(slots.terminated[row], slots.truncated[row])
        cut = [episode._replace(state=self.env.states(episode.obs)) for episode in self._cut(slots)]
        return VectorState(key, carry, fresh, ended, episodes, tick), cut, int((~slots.last).sum())

    def _seeds(self, key: np.ndarray, episodes: np.ndarray, copies: np.ndarray) -> np.ndarray:
        """Seeds of the newest episodes of some copies."""
        return np.array([seed_of(*key, copy, episodes[copy]) for copy in np.flatnonzero(copies)], np.int64)

    def _play_again(self, key: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Begin an episode everywhere, and take the actions that the slots hold of it; what is shown then.

        A copy that has taken fewer than others waits: it begins when as many actions are left as it has taken.
        """
        everyone, games = np.ones(self.copies, bool), self.player.games
        obs = games.reset(everyone, self._seeds(key, episodes, everyone))
        slots = len(self.stream) * self.chunk
        for slot in range(int(self.begun.min()), slots):
            begins = self.begun == slot
            if begins.any():
                obs = games.reset(begins, self._seeds(key, episodes, begins))
            held, row = self.stream[slot // self.chunk], slot % self.chunk
            playing = self.begun <= slot
            if not np.array_equal(held.obs[row, playing], obs[playing]):
                raise CheckpointError(
                    f"The unfinished episodes of '{self.env.spec.name}' do not play as they did before the run was "
                    f"stopped. It was made with another version of the environment ({self.env.spec.version} now)."
                )
            obs, _ = games.step(np.where(playing[:, None], held.action[row], 0))
        begins = self.begun == slots
        return games.reset(begins, self._seeds(key, episodes, begins)) if begins.any() else obs

    def load(self, arrays: dict[str, Any]) -> None:
        super().load(arrays)
        self.running = False

    def stats(self) -> dict[str, float]:
        """What the unfinished episodes hold: the only part of a run that grows with the length of an episode."""
        held = sum(field.nbytes for slots in self.stream for field in slots if field is not None)
        return {"rollout_bytes": held}

    def close(self) -> None:
        self.player.close()


class VectorEvaluator:
    """`Evaluator` for vector environments: as many copies as episodes, until each has finished one."""

    def __init__(self, player: Player, epsilon: float) -> None:
        self.player, self.epsilon = player, epsilon

    def test(self, policy: PyTree, seed: int, number: int) -> TestResult:
        """The `number`-th test of a run: its seeds depend on nothing but the seed and this number."""
        seeds = [seed_of(seed, 0x7E57, number, episode) for episode in range(self.player.copies)]
        total, length, _ = self.play(policy, np.array(seeds, np.int64))
        return TestResult(total, np.zeros(len(total), bool), length)

    def walk(self, policy: PyTree, key: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One episode as the memory's photographer wants it: states, rewards, all true, won."""
        seeds = [seed_of(*np.asarray(key), copy) for copy in range(self.player.copies)]
        _, _, (obs, reward) = self.play(policy, np.array(seeds, np.int64), first_only=True)
        yes = np.ones(len(reward), bool)
        return self.player.env.states(obs).astype(np.float32), reward, yes, ~yes

    def play(
        self, policy: PyTree, seeds: np.ndarray, first_only: bool = False
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """An episode for every seed: (E,) returns and lengths; observations and rewards of the first, which may be the
        only one that is played to its end."""
        player, copies = self.player, self.player.copies
        policy, carry = jax.device_put(policy, player.device), player.learner.initial_carry(copies)
        total, length, over = np.zeros(copies, np.float32), np.zeros(copies, np.int32), np.zeros(copies, bool)
        obs, key = player.games.reset(~over, seeds), np.array(seeds[[0, -1]], np.uint32)
        shown, rewards = [obs[0].copy()], []
        while not (over[:1] if first_only else over).all():
            require_limit(player.env.spec, int(length.max()) + 1)
            done, carry = player.act(policy, carry, length == 0, obs, self.epsilon, key, int(length.max()))
            obs, outcome = player.games.step(done["action"])
            if not over[0]:
                shown.append(obs[0].copy())
                rewards.append(outcome.reward[0])
            total += np.where(over, 0, outcome.reward)
            length += ~over
            over |= outcome.terminated | outcome.truncated
        return total, length, (np.stack(shown), np.array(rewards, np.float32))
