"""Collecting episodes: E copies of a JAX environment in one compiled scan, a chunk of steps at a time.

Each copy writes a stream of slots. A slot holds what is seen and what is done; the end of an episode is a slot of its
own that holds the last observation and takes no step, after which the copy starts anew:

    slot     0     1     2     3     4     5   ...
    sees    o_0   o_1   o_2   o_3   o_0'  o_1'          an episode of T steps is T+1 slots in a row,
    does    a_0   a_1   a_2    -    a_0'  a_1'          just as `Episode` wants them

so that episode boundaries are exact, whatever the chunk, and no observation is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from emu.devices import DATA, Devices
from emu.envs.protocols import Env, PythonEnv
from emu.envs.spec import EnvSpec
from emu.errors import EnvError
from emu.learners.base import Learner
from emu.types import DONE, SEEN, Array, Episode, Outcome, PyTree


class RolloutState(NamedTuple):
    """Everything the next chunk needs, one row per environment copy."""

    env: PyTree
    carry: PyTree
    ended: Array  # (E,) bool: the episode of this copy is over, the next slot shows its last observation
    key: Array  # (E, 2) uint32


class Slot(NamedTuple):
    """One slot of every copy; stacked over time by the scan."""

    obs: Array
    state: Array
    avail: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    won: Array
    last: Array  # this slot only shows the end of an episode
    sound: Array  # everything finite, every agent has an available action
    log_prob: Array | None = None  # of the actions, where the learner keeps it


class SlotStream:
    """Slots in, episodes out. `stream` holds the unfinished episodes' slots on the host."""

    def __init__(self, env: Env | PythonEnv, copies: int, chunk: int) -> None:
        self.env, self.copies, self.chunk = env, copies, chunk
        self._clear()

    def _clear(self) -> None:
        self.stream: list[Slot] = []  # host chunks, each (chunk, E, ...), that unfinished episodes still need
        self.begun = np.zeros(self.copies, np.int64)  # per copy: slot in the stream at which its episode began

    def _cut(self, slots: Slot, void: np.ndarray | None = None) -> list[Episode]:
        """Cut the finished episodes out of the stream, in the order in which they ended, and drop what nobody needs.

        A void slot, (chunk, E) bool, holds nothing: the episode that it interrupts is lost.
        """
        self.stream.append(slots)
        base = (len(self.stream) - 1) * self.chunk
        episodes = []
        for row, copy in np.argwhere(slots.last if void is None else slots.last | void):
            end = base + int(row)
            if void is None or not void[row, copy]:
                require_limit(self.env.spec, end - int(self.begun[copy]))
                episodes.append(self._episode(int(copy), int(self.begun[copy]), end))
            self.begun[copy] = end + 1
        require_limit(self.env.spec, len(self.stream) * self.chunk - int(self.begun.min()))
        unneeded = int(self.begun.min()) // self.chunk
        del self.stream[:unneeded]
        self.begun -= unneeded * self.chunk
        return episodes

    def _episode(self, copy: int, begin: int, end: int) -> Episode:
        """Slots begin..end of one copy, the last of which only shows."""
        chunk = self.chunk
        pieces = []
        for index in range(begin // chunk, end // chunk + 1):
            rows = slice(max(begin - index * chunk, 0), min(end + 1 - index * chunk, chunk))
            pieces.append((self.stream[index], rows))

        def field(name: str) -> np.ndarray:
            return np.concatenate([getattr(slots, name)[rows, copy] for slots, rows in pieces])

        seen = {name: field(name) for name in SEEN}
        done = {name: field(name)[:-1] for name in DONE if getattr(self.stream[0], name) is not None}
        return Episode(**seen, **done, won=np.asarray(field("won")[:-1].any()))

    def save(self) -> dict[str, np.ndarray]:
        """The unfinished episodes' slots, as plain arrays."""
        arrays: dict[str, np.ndarray] = {"begun": self.begun}
        if self.stream:
            for name, first in self.stream[0]._asdict().items():
                if first is not None:
                    arrays[name] = np.concatenate([getattr(slots, name) for slots in self.stream])
        return arrays

    def load(self, arrays: dict[str, Any]) -> None:
        self.begun = np.array(arrays["begun"])
        self.stream = []
        if "obs" in arrays:
            count = len(arrays["obs"]) // self.chunk
            fields = {name: np.split(np.asarray(arrays[name]), count) for name in Slot._fields if name in arrays}
            self.stream = [Slot(**{name: parts[i] for name, parts in fields.items()}) for i in range(count)]


class Rollout(SlotStream):
    """Collects with a learner's policy."""

    env: Env

    def __init__(self, env: Env, learner: Learner, copies: int, chunk: int, devices: Devices) -> None:
        super().__init__(env, copies, chunk)
        self.learner = learner
        self.shards = devices.sharding_for(copies)
        rows = P(DATA)
        self._run = jax.jit(
            jax.shard_map(
                self._scan,
                mesh=self.shards.mesh,
                in_specs=(P(), rows, P()),
                out_specs=(rows, P(None, DATA)),
                check_vma=False,
            ),
            donate_argnums=1,
            out_shardings=(self.shards.along(0), self.shards.along(1)),  # said aloud: XLA forgets that of empty arrays
        )

    def init(self, key: Array) -> RolloutState:
        keys = jax.random.split(key, self.copies + 1)
        env = jax.jit(jax.vmap(self.env.reset))(jax.random.split(keys[0], self.copies))
        state = RolloutState(env, self.learner.initial_carry(self.copies), jnp.zeros(self.copies, bool), keys[1:])
        self._clear()
        return self.shards.put(state)

    def collect(self, policy: PyTree, state: RolloutState, epsilon: float) -> tuple[RolloutState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        state, slots = self._run(self.shards.replicate(policy), state, np.float32(epsilon))
        slots = jax.device_get(slots)
        if not slots.sound.all():
            raise EnvError(self._complaint(slots))
        return state, self._cut(slots), int((~slots.last).sum())

    def _scan(self, policy: PyTree, state: RolloutState, epsilon: Array) -> tuple[RolloutState, Slot]:
        copies = state.ended.shape[0]
        fresh = self.learner.initial_carry(copies)

        def slot(state: RolloutState, _: None) -> tuple[RolloutState, Slot]:
            keys = jax.vmap(lambda k: jax.random.split(k, 4))(state.key)
            obs = jax.vmap(self.env.observe)(state.env)
            avail = jax.vmap(self.env.avail)(state.env)
            features = jax.vmap(self.env.state)(state.env)
            action, carry = self.learner.act(policy, state.carry, obs, avail, epsilon, keys[0, 1])
            stepped, outcome = jax.vmap(self.env.step)(state.env, action, keys[:, 2])
            renewed = jax.vmap(self.env.reset)(keys[:, 3])

            last = state.ended
            outcome = Outcome(*(jnp.where(last, jnp.zeros_like(x), x) for x in outcome))
            shown = Slot(
                obs,
                features,
                avail,
                action,
                *outcome,
                last,
                self._sound(obs, features, avail, outcome.reward),
                self.learner.log_prob(carry),
            )
            following = RolloutState(
                choose(last, renewed, stepped),
                choose(last, fresh, carry),
                outcome.terminated | outcome.truncated,
                keys[:, 0],
            )
            return following, shown

        return jax.lax.scan(slot, state, None, length=self.chunk)

    @staticmethod
    def _sound(obs: Array, features: Array, avail: Array, reward: Array) -> Array:
        finite = jnp.isfinite(obs).all(axis=(1, 2)) & jnp.isfinite(features).all(axis=1) & jnp.isfinite(reward)
        return finite & avail.any(axis=-1).all(axis=-1)

    def _complaint(self, slots: Slot) -> str:
        row, copy = (int(i) for i in np.argwhere(~slots.sound)[0])
        shown = {name: getattr(slots, name)[row, copy] for name in ("obs", "state", "reward")}
        return unsound(self.env.spec.name, copy, **shown)

    def stats(self) -> dict[str, float]:
        """Nothing to report: what is compiled does not fail."""
        return {}

    def close(self) -> None:
        """Nothing is running outside this process."""


def make_act(learner: Learner) -> Callable[..., tuple[dict[str, Array], PyTree]]:
    """A compiled call that finds joint actions for environments outside of it; `fresh` rows begin an episode.

    Returns what is done by the names that a slot has for it, and the new carry.
    """

    def act(policy, carry, fresh, obs, avail, epsilon, key, tick):
        carry = choose(fresh, learner.initial_carry(fresh.shape[0]), carry)
        action, carry = learner.act(policy, carry, obs, avail, epsilon, jax.random.fold_in(key, tick))
        log_prob = learner.log_prob(carry)
        return {"action": action} | ({} if log_prob is None else {"log_prob": log_prob}), carry

    return jax.jit(act)


def empty_slots(spec: EnvSpec, chunk: int, copies: int, log_prob: bool) -> Slot:
    """A chunk of slots on the host, to be written."""
    shape = (chunk, copies)
    fields: dict[str, np.ndarray] = {
        name: np.zeros((*shape, *rest), kind) for name, (rest, kind) in spec.step_fields.items()
    }
    if log_prob:
        fields["log_prob"] = np.zeros((*shape, spec.n_agents), np.float32)
    won, last = np.zeros(shape, bool), np.zeros(shape, bool)
    return Slot(**fields, won=won, last=last, sound=np.ones(shape, bool))


def choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Choose per copy between two trees with leading axis E."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (b.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


def unsound(env: str, copy: int, **shown: np.ndarray) -> str:
    """What is wrong with what a copy shows: the fields that are not finite, else an agent that cannot act."""
    wrong = [name for name, value in shown.items() if not np.isfinite(value).all()]
    what = f"returned NaN or infinity in {', '.join(wrong)}" if wrong else "left an agent without any available action"
    return (
        f"Environment '{env}' {what} (copy {copy}). The run stopped before learning from it. "
        "Run `emu check` on the environment, or `check_env(env)`, to find the step that does this."
    )


def require_limit(spec: EnvSpec, steps: int) -> None:
    if steps > spec.episode_limit:
        raise EnvError(
            f"An episode of '{spec.name}' goes on after spec.episode_limit = {spec.episode_limit} steps. "
            "Run `emu check` on the environment, or `check_env(env)`."
        )
