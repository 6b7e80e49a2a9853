"""Playing in Python environments: worker processes step, one compiled call finds the actions of a group of copies.

The workers form two groups. While one group steps, actions are found for the other; and the last step of a chunk is
left under way, so that simulators go on while the learner learns. Who waits for whom is fixed, so the same seed gives
the same episodes in the same order, as long as no worker fails.

    round of a group:    hear the answers  ->  write the slots  ->  act  ->  give the next orders
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from emu.config import RolloutConfig
from emu.devices import Devices, cpu_count
from emu.envs.protocols import PythonEnv
from emu.envs.workers.pool import Pool, groups_of, seed_of
from emu.envs.workers.process import Processes
from emu.envs.workers.ray import Actors
from emu.envs.workers.shared_arrays import STEP, Board
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.play.compiled import Slot, SlotStream, empty_slots, make_act, require_limit, unsound
from emu.play.evaluate import TestResult
from emu.types import Array, Episode, PyTree

IDLE = -2  # in an order: nothing to do at this place


class Host:
    """The worker processes of one run, started when first needed: places of the rollout first, then of the tests."""

    def __init__(
        self,
        env: PythonEnv,
        learner: Learner,
        devices: Devices,
        config: RolloutConfig,
        copies: int,
        tests: int,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.env, self.learner, self.config, self.warn = env, learner, config, warn
        self.device = devices.devices[0]
        self.places = {"train": range(copies), "test": range(copies, copies + tests)}
        self.act = make_act(learner)

    @functools.cached_property
    def pool(self) -> Pool:
        c, count = self.config, sum(map(len, self.places.values()))
        crew = functools.partial(Actors, address=c.cluster) if c.where == "ray" else Processes
        workers = min(c.workers or cpu_count(), max(map(len, self.places.values())))
        return Pool(self.env, count, workers, c.timeout, c.max_failures, warn=self.warn, crew=crew)

    def close(self) -> None:
        if "pool" in self.__dict__:
            self.pool.close()


class Group:
    """Some workers' places on one channel, as rows of a batch."""

    def __init__(self, host: Host, channel: str, workers: list[int]) -> None:
        self.host, self.channel = host, channel
        parts = [(w, host.pool.places_of(w, host.places[channel])) for w in workers]
        self.places = np.concatenate([places for _, places in parts])
        ends = np.cumsum([len(places) for _, places in parts]).tolist()
        self.rows = [(w, slice(end - len(p), end)) for (w, p), end in zip(parts, ends, strict=True)]
        self.orders = np.full(len(self.places), IDLE, np.int64)  # what each row was told: a seed, STEP or IDLE
        self.carry = jax.device_put(host.learner.initial_carry(len(self.places)), host.device)

    def order(self, orders: np.ndarray) -> None:
        """Give every row an order, at once for all rows of a worker."""
        self.orders[:] = orders
        for worker, rows in self.rows:
            wanted = orders[rows] != IDLE
            if wanted.any():
                self.host.pool.ask(self.channel, worker, self.places[rows][wanted], orders[rows][wanted])

    def hear(self) -> np.ndarray:
        """Wait for the answers; (rows,) bool, false where a worker failed and its episodes are lost."""
        fine = np.ones(len(self.places), bool)
        for worker, rows in self.rows:
            if (self.orders[rows] != IDLE).any():
                fine[rows] = self.host.pool.answer(self.channel, worker)
        self.now = Board(*(array[self.places] for array in self.host.pool.board))
        self._require_sound(fine)
        return fine

    def act(
        self, policy: PyTree, fresh: np.ndarray, epsilon: float, key: np.ndarray, tick: int
    ) -> dict[str, np.ndarray]:
        """Joint actions of all rows, also written onto the board; `fresh` rows have forgotten what came before.

        Returned by the names that a slot has for what is done.
        """
        obs, avail = self.now.obs, self.now.avail
        done, self.carry = self.host.act(
            policy, self.carry, fresh, obs, avail, np.float32(epsilon), key, np.int32(tick)
        )
        done = jax.device_get(done)
        self.host.pool.board.action[self.places] = done["action"]
        return done

    def _require_sound(self, fine: np.ndarray) -> None:
        """Refuse what no learner should see: NaN, infinity, an agent that cannot act."""
        now, stepped = self.now, self.orders == STEP
        sound = np.isfinite(now.obs).all((1, 2)) & np.isfinite(now.state).all(1) & now.avail.any(-1).all(-1)
        sound &= np.isfinite(now.reward) | ~stepped
        bad = np.flatnonzero(fine & (self.orders != IDLE) & ~sound)
        if len(bad):
            shown = {name: getattr(now, name)[bad[0]] for name in ("obs", "state", "reward")}
            raise EnvError(unsound(self.host.env.spec.name, int(self.places[bad[0]]), **shown))


def make_groups(host: Host, channel: str) -> list[Group]:
    busy = [w for w in range(len(host.pool.workers)) if len(host.pool.places_of(w, host.places[channel]))]
    return [Group(host, channel, [busy[i] for i in part]) for part in groups_of(len(busy))]


class HostState(NamedTuple):
    """What is kept of a host rollout: environments themselves cannot be saved, so a resumed run begins new episodes."""

    key: Array  # (2,) uint32
    episodes: Array  # (E,) int32: episodes begun by each copy; the next seed depends on it
    tick: Array  # (1,) int32: how often actions were found
    dropped: Array  # (1,) int32: episodes lost to failing workers
    failures: Array  # (1,) int32: of workers


class HostRollout(SlotStream):
    """`Rollout` for Python environments: same slots, same episodes."""

    env: PythonEnv

    def __init__(self, host: Host, chunk: int, devices: Devices) -> None:
        super().__init__(host.env, len(host.places["train"]), chunk)
        self.host, self.shards = host, devices.sharding_for(1)
        self.running = False
        self.latest: HostState | None = None

    def init(self, key: Array) -> HostState:
        self.load({})
        zero = np.zeros(1, np.int32)
        return HostState(np.asarray(key, np.uint32), np.zeros(self.copies, np.int32), zero, zero, zero)

    def collect(self, policy: PyTree, state: HostState, epsilon: float) -> tuple[HostState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        policy = jax.device_put(policy, self.host.device)
        self.book = HostState(*(np.array(field) for field in state))  # written to while the chunk runs
        failures = self.host.pool.failures
        if not self.running:
            self._begin(policy, epsilon)
        slots, void = self._empty_slots(), np.zeros((self.chunk, self.copies), bool)
        for row in range(self.chunk):
            for part in self.parts:
                self._round(part, policy, epsilon, slots, void, row)
        self.book.failures[0] += self.host.pool.failures - failures
        self.latest = self.book
        return self.book, self._cut(slots, void), int((~slots.last & ~void).sum())

    def _begin(self, policy: PyTree, epsilon: float) -> None:
        """Start an episode everywhere and send the first actions."""
        self._clear()
        self.parts = [Part(group) for group in make_groups(self.host, "train")]
        for part in self.parts:
            part.lost[:] = True
            part.group.order(self._seeds(part.group.places))
        slots, void = self._empty_slots(), np.zeros((self.chunk, self.copies), bool)
        for part in self.parts:
            self._round(part, policy, epsilon, slots, void, 0)  # what it writes is empty
        self.running = True

    def _empty_slots(self) -> Slot:
        return empty_slots(self.env.spec, self.chunk, self.copies, self.host.learner.on_policy)

    def _round(self, part: Part, policy: PyTree, epsilon: float, slots: Slot, void: np.ndarray, row: int) -> None:
        group, fine = part.group, part.group.hear()
        stepped = fine & (group.orders == STEP)
        self.book.dropped[0] += int((~fine & (group.orders == STEP)).sum())
        over = part.write(slots, void, row, fine, stepped)
        for worker, rows in group.rows:
            if over[rows].any():
                self.host.pool.praise(worker)
        done = group.act(policy, group.orders != STEP, epsilon, self.book.key, int(self.book.tick[0]))
        self.book.tick[0] += 1
        part.keep(done, over, ~fine)
        orders = np.full(len(group.places), STEP, np.int64)
        anew = over | ~fine
        orders[anew] = self._seeds(group.places[anew])
        group.order(orders)

    def _seeds(self, places: np.ndarray) -> np.ndarray:
        """Seeds of the next episode at each of some places."""
        seeds = [seed_of(*self.book.key, place, self.book.episodes[place]) for place in places]
        self.book.episodes[places] += 1
        return np.array(seeds, np.int64)

    def stats(self) -> dict[str, float]:
        """What went wrong so far, for the training rows."""
        book = self.latest
        return {
            "worker_failures": int(book.failures[0]) if book else 0,
            "dropped_episodes": int(book.dropped[0]) if book else 0,
        }

    def save(self) -> dict[str, np.ndarray]:
        """Nothing: unfinished episodes live in the workers' environments, which cannot be saved."""
        return {}

    def load(self, arrays: dict[str, Any]) -> None:
        """The next chunk begins new episodes everywhere."""
        self.running = False

    def close(self) -> None:
        self.host.close()


class Part:
    """A group and its open slots: what was seen and done, waiting for what follows."""

    def __init__(self, group: Group) -> None:
        self.group = group
        count = len(group.places)
        self.last, self.lost = np.zeros(count, bool), np.zeros(count, bool)
        self.seen: dict[str, np.ndarray] = {}

    def write(self, slots: Slot, void: np.ndarray, row: int, fine: np.ndarray, stepped: np.ndarray) -> np.ndarray:
        """Close the open slots into a row of the chunk; (rows,) bool: the episodes that are over."""
        places = self.group.places
        void[row, places] = (self.lost | ~fine) & ~self.last  # a last slot needs no answer
        for name, value in self.seen.items():
            getattr(slots, name)[row, places] = value
        slots.last[row, places] = self.last
        for name in ("reward", "terminated", "truncated", "won"):
            value = getattr(self.group.now, name)
            getattr(slots, name)[row, places] = np.where(stepped, value, np.zeros_like(value))
        return np.logical_or(slots.terminated[row, places], slots.truncated[row, places])

    def keep(self, done: dict[str, np.ndarray], over: np.ndarray, lost: np.ndarray) -> None:
        """Open the next slots: what the board shows now and what is done about it."""
        now = self.group.now
        self.seen = {"obs": now.obs, "state": now.state, "avail": now.avail, **done}
        self.last, self.lost = over, lost


class Walk(NamedTuple):
    """One greedy episode."""

    states: np.ndarray  # (T+1, S)
    reward: np.ndarray  # (T,)
    won: np.ndarray  # (T,) bool


class HostEvaluator:
    """`Evaluator` for Python environments, through the same workers (in environments of their own)."""

    def __init__(self, host: Host, episodes: int) -> None:
        self.host, self.episodes = host, episodes

    @functools.cached_property
    def groups(self) -> list[Group]:
        return make_groups(self.host, "test")

    def test(self, policy: PyTree, seed: int, number: int) -> TestResult:
        """The `number`-th test of a run: its seeds depend on nothing but the seed and this number."""
        walks = self.play(policy, [seed_of(seed, 0x7E57, number, episode) for episode in range(self.episodes)])
        total = np.array([walk.reward.sum(dtype=np.float32) for walk in walks])
        won = np.array([bool(walk.won.any()) for walk in walks])
        return TestResult(total, won, np.array([len(walk.reward) for walk in walks], np.int32))

    def walk(self, policy: PyTree, key: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One greedy episode as the memory's photographer wants it: states, rewards, all true, won."""
        (walk,) = self.play(policy, [seed_of(*np.asarray(key))])
        return walk.states, walk.reward, np.ones(len(walk.reward), bool), walk.won

    def play(self, policy: PyTree, seeds: list[int]) -> list[Walk]:
        """A greedy episode for every seed, in their order. An episode that a failing worker loses is played again."""
        policy = jax.device_put(policy, self.host.device)
        waiting = collections.deque(range(len(seeds)))
        walks: list[Any] = [None] * len(seeds)
        desks = [Desk(group, waiting, seeds) for group in self.groups]
        for desk in desks:
            desk.group.order(desk.orders)
        while any(desk.busy for desk in desks):
            for desk in desks:
                if desk.busy:
                    desk.round(policy, walks)
        return walks


class Desk:
    """Which test episode each row of a group plays, and what is known of it so far."""

    def __init__(self, group: Group, waiting: collections.deque[int], seeds: list[int]) -> None:
        self.group, self.waiting, self.seeds, self.spec = group, waiting, seeds, group.host.env.spec
        self.episode = [-1] * len(group.places)
        self.states: list[list[np.ndarray]] = [[] for _ in group.places]
        self.outcomes: list[list[tuple[float, bool]]] = [[] for _ in group.places]
        self.orders = np.full(len(group.places), IDLE, np.int64)
        for row in range(len(group.places)):
            self.take(row)

    @property
    def busy(self) -> bool:
        return any(number >= 0 for number in self.episode)

    def take(self, row: int) -> None:
        """The next episode that waits, if any."""
        self.episode[row] = self.waiting.popleft() if self.waiting else -1
        self.restart(row)

    def restart(self, row: int) -> None:
        number = self.episode[row]
        self.states[row], self.outcomes[row] = [], []
        self.orders[row] = self.seeds[number] if number >= 0 else IDLE

    def round(self, policy: PyTree, walks: list[Any]) -> None:
        group, fine = self.group, self.group.hear()
        stepped = fine & (group.orders == STEP)
        group.act(policy, group.orders != STEP, 0.0, np.zeros(2, np.uint32), 0)
        now = group.now
        over = (now.terminated | now.truncated) & stepped
        for row in np.flatnonzero(group.orders != IDLE).tolist():
            if not fine[row]:
                self.restart(row)
                continue
            self.states[row].append(now.state[row])
            if stepped[row]:
                self.outcomes[row].append((now.reward[row], now.won[row]))
            self.orders[row] = STEP
            if over[row]:
                self.finish(row, walks)
            else:
                require_limit(self.spec, len(self.outcomes[row]) + 1)
        for worker, rows in group.rows:
            if over[rows].any():
                group.host.pool.praise(worker)
        group.order(self.orders)

    def finish(self, row: int, walks: list[Any]) -> None:
        rewards, wins = zip(*self.outcomes[row], strict=True)
        walks[self.episode[row]] = Walk(np.stack(self.states[row]), np.array(rewards, np.float32), np.array(wins, bool))
        self.take(row)
