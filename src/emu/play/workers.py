"""Playing in Python environments: worker processes step, one compiled call finds the actions of a group of copies.

The last step of a chunk is left under way, so that simulators go on while the learner learns.

    round of a group:    receive the answers  ->  write the slots  ->  act  ->  send the next orders
"""

from __future__ import annotations

import collections
import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from emu.devices import Devices
from emu.envs.protocols import PythonEnv
from emu.envs.workers.shared_arrays import STEP
from emu.play.episode import Evaluator, PlayedEpisode
from emu.play.slots import Slot, SlotStream, empty_slots, require_limit
from emu.play.worker_groups import IDLE, Group, Workers, make_groups
from emu.seeds import EpisodeSeeds, another_try, rollout_episode
from emu.types import Array, Episode, PyTree, team_rewards


class WorkerRolloutState(NamedTuple):
    """What is kept of a rollout in workers: environments cannot be saved, so a resumed run begins new episodes."""

    key: Array  # (2,) uint32
    episodes: Array  # (E,) int32: episodes begun by each copy; the next seed depends on it
    tick: Array  # (1,) int32: how often actions were found
    dropped: Array  # (1,) int32: episodes lost to failing workers
    failures: Array  # (1,) int32: of workers


class WorkerRollout(SlotStream):
    """`Rollout` for Python environments: same slots, same episodes."""

    env: PythonEnv

    def __init__(self, workers: Workers, chunk: int, devices: Devices) -> None:
        super().__init__(workers.env, len(workers.copies["train"]), chunk)
        self.workers, self.shards = workers, devices.sharding_for(1)
        self.running = False
        self.latest: WorkerRolloutState | None = None

    def init(self, key: Array) -> WorkerRolloutState:
        self.load({})
        zero = np.zeros(1, np.int32)
        return WorkerRolloutState(np.asarray(key, np.uint32), np.zeros(self.copies, np.int32), zero, zero, zero)

    def collect(
        self, policy: PyTree, state: WorkerRolloutState, epsilon: float
    ) -> tuple[WorkerRolloutState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        policy = jax.device_put(policy, self.workers.device)
        self.state = WorkerRolloutState(*(np.array(field) for field in state))  # written to while the chunk runs
        failures = self.workers.pool.failures
        if not self.running:
            self._begin(policy, epsilon)
        slots, void = self._empty_slots(), np.zeros((self.chunk, self.copies), bool)
        for row in range(self.chunk):
            for part in self.parts:
                self._round(part, policy, epsilon, slots, void, row)
        self.state.failures[0] += self.workers.pool.failures - failures
        self.latest = self.state
        return self.state, self._cut(slots, void), int((~slots.last & ~void).sum())

    def _begin(self, policy: PyTree, epsilon: float) -> None:
        """Start an episode everywhere and send the first actions."""
        self._clear()
        self.parts = [OpenSlots(group) for group in make_groups(self.workers, "train")]
        for part in self.parts:
            part.lost[:] = True
            part.group.send(self._seeds(part.group.copies))
        slots, void = self._empty_slots(), np.zeros((self.chunk, self.copies), bool)
        for part in self.parts:
            self._round(part, policy, epsilon, slots, void, 0)  # what it writes is empty
        self.running = True

    def _empty_slots(self) -> Slot:
        return empty_slots(self.env.spec, self.chunk, self.copies, self.workers.learner.on_policy)

    def _round(self, part: OpenSlots, policy: PyTree, epsilon: float, slots: Slot, void: np.ndarray, row: int) -> None:
        group, fine = part.group, part.group.receive()
        stepped = fine & (group.orders == STEP)
        self.state.dropped[0] += int((~fine & (group.orders == STEP)).sum())
        over = part.write(slots, void, row, fine, stepped)
        for worker, rows in group.rows:
            if over[rows].any():
                self.workers.pool.forgive(worker)
        done = group.act(policy, group.orders != STEP, epsilon, self.state.key, int(self.state.tick[0]))
        self.state.tick[0] += 1
        part.keep(done, over, ~fine)
        orders = np.full(len(group.copies), STEP, np.int64)
        anew = over | ~fine
        orders[anew] = self._seeds(group.copies[anew])
        group.send(orders)

    def _seeds(self, copies: np.ndarray) -> np.ndarray:
        """Seeds of the next episode of each of some copies."""
        seeds = [rollout_episode(self.state.key, copy, self.state.episodes[copy]) for copy in copies]
        self.state.episodes[copies] += 1
        return np.array(seeds, np.int64)

    def stats(self) -> dict[str, float]:
        """What went wrong so far, for the training rows."""
        failures, dropped = (self.latest.failures[0], self.latest.dropped[0]) if self.latest else (0, 0)
        return {"worker_failures": int(failures), "dropped_episodes": int(dropped)}

    def save(self) -> dict[str, np.ndarray]:
        """Nothing: unfinished episodes live in the workers' environments, which cannot be saved."""
        return {}

    def load(self, arrays: dict[str, Any]) -> None:
        """The next chunk begins new episodes everywhere."""
        self.running = False

    def close(self) -> None:
        self.workers.close()


class OpenSlots:
    """The open slots of a group: what was seen and done, waiting for what follows."""

    def __init__(self, group: Group) -> None:
        self.group = group
        count = len(group.copies)
        self.last, self.lost = np.zeros(count, bool), np.zeros(count, bool)
        self.seen: dict[str, np.ndarray] = {}

    def write(self, slots: Slot, void: np.ndarray, row: int, fine: np.ndarray, stepped: np.ndarray) -> np.ndarray:
        """Close the open slots into a row of the chunk; (rows,) bool: the episodes that are over."""
        copies = self.group.copies
        void[row, copies] = (self.lost | ~fine) & ~self.last  # a last slot needs no answer
        for name, value in self.seen.items():
            getattr(slots, name)[row, copies] = value
        slots.last[row, copies] = self.last
        for name in ("reward", "terminated", "truncated", "won"):
            value = getattr(self.group.now, name)
            getattr(slots, name)[row, copies] = np.where(
                stepped.reshape(-1, *[1] * (value.ndim - 1)), value, np.zeros_like(value)
            )
        return np.logical_or(slots.terminated[row, copies], slots.truncated[row, copies])

    def keep(self, done: dict[str, np.ndarray], over: np.ndarray, lost: np.ndarray) -> None:
        """Open the next slots: what the environments show now and what is done about it."""
        now = self.group.now
        self.seen = {"obs": now.obs, "state": now.state, "avail": now.avail, **done}
        self.last, self.lost = over, lost


class WorkerEvaluator(Evaluator):
    """Greedy episodes in Python environments, through the workers of the rollout, in environments of their own."""

    env: PythonEnv

    def __init__(self, workers: Workers, episodes: int) -> None:
        self.workers, self.env, self.episodes = workers, workers.env, episodes

    @functools.cached_property
    def groups(self) -> list[Group]:
        return make_groups(self.workers, "evaluation")

    def play(self, policy: PyTree, seeds: EpisodeSeeds, states: bool = False) -> list[PlayedEpisode]:
        """An episode that a failing worker loses is played again; one that fails again, with another seed."""
        policy = jax.device_put(policy, self.workers.device)
        queue = EpisodeQueue(seeds.numbers(), self.workers)
        batches = [EpisodeRows(group, queue, states) for group in self.groups]
        for batch in batches:
            batch.group.send(batch.orders)
        while any(batch.busy for batch in batches):
            for batch in batches:
                if batch.busy:
                    batch.round(policy)
        self.replaced_seeds += queue.replaced
        return queue.played


class EpisodeQueue:
    """The episodes that are to be played: those that wait, and those that are done.

    When a worker fails, all episodes that it played are under suspicion. Each is played again, alone on its worker;
    one that fails again has a seed that the environment cannot play, and gets another.
    """

    def __init__(self, seeds: list[int], workers: Workers) -> None:
        self.seeds, self.workers = list(seeds), workers
        self.waiting = collections.deque(range(len(seeds)))
        self.suspects: set[int] = set()
        self.replaced = 0
        self.played: list[Any] = [None] * len(seeds)  # PlayedEpisode, in the order of the seeds

    def next_beside(self, others: list[int]) -> int:
        """The next episode for a worker that is playing these others; -1 if none."""
        if self.suspects.isdisjoint(others):
            for number in self.waiting:
                if not others or number not in self.suspects:
                    self.waiting.remove(number)
                    return number
        return -1

    def put_back(self, number: int) -> None:
        """An episode was lost with its worker."""
        if number in self.suspects:
            self.suspects.remove(number)
            before, after = self.seeds[number], another_try(self.seeds[number])
            self.seeds[number], self.replaced = after, self.replaced + 1
            self.workers.warn(f"Evaluation episode {number} fails with seed {before}; seed {after} takes its place.")
        else:
            self.suspects.add(number)
        self.waiting.appendleft(number)


class EpisodeRows:
    """Which episode each row of a group plays, and what is known of it so far."""

    def __init__(self, group: Group, queue: EpisodeQueue, states: bool) -> None:
        self.group, self.queue, self.keeps_states, self.spec = group, queue, states, group.workers.env.spec
        self.episode = [-1] * len(group.copies)  # its number; -1: none
        self.states: list[list[np.ndarray]] = [[] for _ in group.copies]
        self.outcomes: list[list[tuple[float, bool]]] = [[] for _ in group.copies]
        self.orders = np.full(len(group.copies), IDLE, np.int64)
        self.fill_idle_rows()

    @property
    def busy(self) -> bool:
        return any(number >= 0 for number in self.episode)

    def fill_idle_rows(self) -> None:
        """Give an episode that waits to every row that has none."""
        for _, rows in self.group.rows:
            for row in range(rows.start, rows.stop):
                if self.episode[row] < 0:
                    self.begin(row, self.queue.next_beside([n for n in self.episode[rows] if n >= 0]))

    def begin(self, row: int, number: int) -> None:
        self.episode[row], self.states[row], self.outcomes[row] = number, [], []
        self.orders[row] = self.queue.seeds[number] if number >= 0 else IDLE

    def round(self, policy: PyTree) -> None:
        group, fine = self.group, self.group.receive()
        stepped = fine & (group.orders == STEP)
        group.act(policy, group.orders != STEP, 0.0, np.zeros(2, np.uint32), 0)
        over = (group.now.terminated | group.now.truncated) & stepped
        for row in np.flatnonzero(group.orders != IDLE).tolist():
            if fine[row]:
                self.note(row, bool(stepped[row]), bool(over[row]))
            else:
                self.queue.put_back(self.episode[row])
                self.episode[row] = -1
        for worker, rows in group.rows:
            if over[rows].any():
                group.workers.pool.forgive(worker)
        self.fill_idle_rows()
        group.send(self.orders)

    def note(self, row: int, stepped: bool, over: bool) -> None:
        """What a row shows now belongs to its episode."""
        now = self.group.now
        if self.keeps_states:
            self.states[row].append(now.state[row])
        if stepped:
            self.outcomes[row].append((now.reward[row], now.won[row]))
        self.orders[row] = STEP
        if over:
            self.finish(row)
        else:
            require_limit(self.spec, len(self.outcomes[row]) + 1)

    def finish(self, row: int) -> None:
        rewards, wins = zip(*self.outcomes[row], strict=True)
        reward = team_rewards(np.array(rewards, np.float32))
        states = np.stack(self.states[row]).astype(np.float32) if self.keeps_states else None
        episode = PlayedEpisode(reward, float(reward.sum(dtype=np.float32)), any(map(bool, wins)), states)
        self.queue.played[self.episode[row]] = episode
        self.queue.suspects.discard(self.episode[row])
        self.episode[row] = -1
