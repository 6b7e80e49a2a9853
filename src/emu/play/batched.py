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
from emu.errors import CheckpointError
from emu.learners.base import Learner
from emu.play.acting import make_act
from emu.play.episode import Evaluator, PlayedEpisode
from emu.play.slots import SlotStream, empty_slots, require_limit
from emu.seeds import EpisodeSeeds, rollout_episode
from emu.types import Array, Episode, PyTree


class BatchedRolloutState(NamedTuple):
    """What the next chunk needs beside the slots of unfinished episodes."""

    key: Array  # (2,) uint32
    carry: PyTree  # of the learner, one row per copy
    fresh: Array  # (E,) bool: the next slot is the first of an episode
    ended: Array  # (E,) bool: the next slot only shows the end of an episode
    episodes: Array  # (E,) int32: episodes begun by each copy; their seeds depend on it
    tick: Array  # (1,) int32: how often actions were found


class ActingCopies:
    """Copies of an environment, opened when first needed, and how a learner acts in them."""

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


class BatchedRollout(SlotStream):
    """`Rollout` for environments that step many copies at once: same slots, same episodes."""

    env: VectorEnv

    def __init__(self, acting: ActingCopies, chunk: int, devices: Devices) -> None:
        super().__init__(acting.env, acting.copies, chunk)
        self.acting, self.shards = acting, devices.sharding_for(1)
        self.slot_spec = dataclasses.replace(acting.env.spec, state_dim=0)  # states are found for whole episodes
        self.running = False

    def init(self, key: Array) -> BatchedRolloutState:
        self._clear()
        self.running = False
        yes, no = np.ones(self.copies, bool), np.zeros(self.copies, bool)
        carry = jax.device_get(self.acting.learner.initial_carry(self.copies))
        begun = np.ones(self.copies, np.int32)
        return BatchedRolloutState(np.asarray(key, np.uint32), carry, yes, no, begun, np.zeros(1, np.int32))

    def collect(
        self, policy: PyTree, state: BatchedRolloutState, epsilon: float
    ) -> tuple[BatchedRolloutState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        policy = jax.device_put(policy, self.acting.device)
        fresh, ended, episodes, tick = (np.array(field) for field in state[2:])
        key, carry, games = np.array(state.key), state.carry, self.acting.games
        if not self.running:
            self.obs = self._play_again(key, episodes)
            self.running = True
        slots = empty_slots(self.slot_spec, self.chunk, self.copies, self.acting.learner.on_policy)
        slots.avail[...] = True
        for row in range(self.chunk):
            done, carry = self.acting.act(policy, carry, fresh, self.obs, epsilon, key, int(tick[0]))
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
        return BatchedRolloutState(key, carry, fresh, ended, episodes, tick), cut, int((~slots.last).sum())

    def _seeds(self, key: np.ndarray, episodes: np.ndarray, copies: np.ndarray) -> np.ndarray:
        """Seeds of the newest episodes of some copies."""
        return np.array([rollout_episode(key, copy, episodes[copy]) for copy in np.flatnonzero(copies)], np.int64)

    def _play_again(self, key: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Begin an episode everywhere, and take the actions that the slots hold of it; what is shown then.

        A copy that has taken fewer than others waits: it begins when as many actions are left as it has taken.
        """
        everyone, games = np.ones(self.copies, bool), self.acting.games
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
        self.acting.close()


class BatchedEvaluator(Evaluator):
    """Episodes in environments that step many copies at once: until each episode that was asked for is over.

    With `epsilon`, as is the custom for Atari, so many of the actions are random.
    """

    env: VectorEnv

    def __init__(self, acting: ActingCopies, epsilon: float = 0.0, episodes: int | None = None) -> None:
        self.acting, self.epsilon = acting, epsilon
        self.env, self.episodes = acting.env, episodes or acting.copies

    def play(self, policy: PyTree, seeds: EpisodeSeeds, states: bool = False) -> list[PlayedEpisode]:
        """As many at a time as there are copies."""
        copies, episodes = self.acting.copies, []
        for first in range(0, seeds.count, copies):
            part = seeds if seeds.count <= copies else seeds.part(first, min(copies, seeds.count - first))
            episodes += self._play(policy, part, states)
        return episodes

    def _play(self, policy: PyTree, seeds: EpisodeSeeds, states: bool) -> list[PlayedEpisode]:
        acting, copies, wanted = self.acting, self.acting.copies, seeds.count
        numbers = np.array(seeds.rows(copies), np.int64)
        policy, carry = jax.device_put(policy, acting.device), acting.learner.initial_carry(copies)
        over, won = np.zeros(copies, bool), np.zeros(copies, bool)
        obs, key = acting.games.reset(~over, numbers), np.array(numbers[[0, -1]], np.uint32)
        seen, rewards, length = [obs[:wanted].copy()], [], np.zeros(copies, np.int32)
        while not over[:wanted].all():
            require_limit(self.env.spec, len(rewards) + 1)
            done, carry = acting.act(policy, carry, length == 0, obs, self.epsilon, key, len(rewards))
            obs, outcome = acting.games.step(done["action"])
            if states:
                seen.append(obs[:wanted].copy())
            rewards.append(np.where(over, np.float32(0), outcome.reward))
            won |= outcome.won & ~over
            length += ~over
            over |= outcome.terminated | outcome.truncated
        reward = np.stack(rewards)
        total = np.cumsum(reward, axis=0, dtype=np.float32)[-1]  # in order, as it was played
        return [
            PlayedEpisode(
                reward=reward[: length[copy], copy],
                total=float(total[copy]),
                won=bool(won[copy]),
                states=self._states(seen, copy, length[copy]) if states else None,
            )
            for copy in range(wanted)
        ]

    def _states(self, seen: list[np.ndarray], copy: int, length: int) -> np.ndarray:
        obs = np.stack([rows[copy] for rows in seen[: length + 1]])
        return self.env.states(obs).astype(np.float32)
