"""The workers of a run in two groups, each acting as one batch: what rollouts and evaluations share.

While one group steps, actions are found for the other. Who waits for whom is fixed, so the same seed gives the same
episodes in the same order, as long as no worker fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np

from emu.config import RolloutConfig
from emu.devices import Devices, cpu_count
from emu.envs.protocols import PythonEnv
from emu.envs.workers.pool import Pool, groups_of
from emu.envs.workers.process import ProcessBackend
from emu.envs.workers.ray import RayBackend
from emu.envs.workers.shared_arrays import STEP, SharedArrays
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.play.acting import make_act
from emu.play.slots import unsound
from emu.types import PyTree

IDLE = -2  # in an order: nothing to do for this copy


class Workers:
    """The workers of one run, started when first needed: copies of the rollout first, then those of evaluations."""

    def __init__(
        self,
        env: PythonEnv,
        learner: Learner,
        devices: Devices,
        config: RolloutConfig,
        copies: int,
        evaluated: int,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.env, self.learner, self.config, self.warn = env, learner, config, warn
        self.device = devices.devices[0]
        self.copies = {"train": range(copies), "evaluation": range(copies, copies + evaluated)}
        self.act = make_act(learner)

    @functools.cached_property
    def pool(self) -> Pool:
        c, count = self.config, sum(map(len, self.copies.values()))
        backend = functools.partial(RayBackend, address=c.cluster) if c.where == "ray" else ProcessBackend
        workers = min(c.workers or cpu_count(), max(map(len, self.copies.values())))
        return Pool(self.env, count, workers, c.timeout, c.max_failures, warn=self.warn, backend=backend)

    def close(self) -> None:
        if "pool" in self.__dict__:
            self.pool.close()


class Group:
    """The copies of some workers on one channel, as rows of a batch."""

    def __init__(self, workers: Workers, channel: str, members: list[int]) -> None:
        self.workers, self.channel = workers, channel
        parts = [(w, workers.pool.copies_of(w, workers.copies[channel])) for w in members]
        self.copies = np.concatenate([copies for _, copies in parts])
        ends = np.cumsum([len(copies) for _, copies in parts]).tolist()
        self.rows = [(w, slice(end - len(p), end)) for (w, p), end in zip(parts, ends, strict=True)]
        self.orders = np.full(len(self.copies), IDLE, np.int64)  # what each row was told: a seed, STEP or IDLE
        self.carry = jax.device_put(workers.learner.initial_carry(len(self.copies)), workers.device)

    def send(self, orders: np.ndarray) -> None:
        """Give every row an order, at once for all rows of a worker."""
        self.orders[:] = orders
        for worker, rows in self.rows:
            wanted = orders[rows] != IDLE
            if wanted.any():
                self.workers.pool.ask(self.channel, worker, self.copies[rows][wanted], orders[rows][wanted])

    def receive(self) -> np.ndarray:
        """Wait for the answers; (rows,) bool, false where a worker failed and its episodes are lost."""
        fine = np.ones(len(self.copies), bool)
        for worker, rows in self.rows:
            if (self.orders[rows] != IDLE).any():
                fine[rows] = self.workers.pool.answer(self.channel, worker)
        self.now = SharedArrays(*(array[self.copies] for array in self.workers.pool.arrays))
        self._require_sound(fine)
        return fine

    def act(
        self, policy: PyTree, fresh: np.ndarray, epsilon: float, key: np.ndarray, tick: int
    ) -> dict[str, np.ndarray]:
        """Joint actions of all rows, also written into the shared arrays; `fresh` rows have forgotten what came before.

        Returned by the names that a slot has for what is done.
        """
        obs, avail = self.now.obs, self.now.avail
        done, self.carry = self.workers.act(
            policy, self.carry, fresh, obs, avail, np.float32(epsilon), key, np.int32(tick)
        )
        done = jax.device_get(done)
        self.workers.pool.arrays.action[self.copies] = done["action"]
        return done

    def _require_sound(self, fine: np.ndarray) -> None:
        """Refuse what no learner should see: NaN, infinity, an agent that cannot act."""
        now, stepped = self.now, self.orders == STEP
        sound = np.isfinite(now.obs).all((1, 2)) & np.isfinite(now.state).all(1) & now.avail.any(-1).all(-1)
        sound &= np.isfinite(now.reward).reshape(len(stepped), -1).all(1) | ~stepped
        bad = np.flatnonzero(fine & (self.orders != IDLE) & ~sound)
        if len(bad):
            shown = {name: getattr(now, name)[bad[0]] for name in ("obs", "state", "reward")}
            raise EnvError(unsound(self.workers.env.spec.name, int(self.copies[bad[0]]), **shown))


def make_groups(workers: Workers, channel: str) -> list[Group]:
    busy = [w for w in range(len(workers.pool.workers)) if len(workers.pool.copies_of(w, workers.copies[channel]))]
    return [Group(workers, channel, [busy[i] for i in part]) for part in groups_of(len(busy))]
