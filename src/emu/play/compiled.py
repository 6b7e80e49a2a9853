"""Playing in compiled environments: E copies step in one compiled program.

`Rollout` collects episodes for learning, a chunk of slots at a time (see `slots`). `CompiledEvaluator` plays whole
greedy episodes; scripted players go through the same loop, `play_copies`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from emu.devices import DATA, Devices
from emu.envs.protocols import Env
from emu.envs.scripted import Player, final_counts_of, remembering
from emu.errors import EnvError, described
from emu.learners.base import Learner
from emu.play.acting import choose
from emu.play.episode import Evaluator, PlayedEpisode
from emu.play.slots import Slot, SlotStream, require_limit, unsound
from emu.seeds import EpisodeSeeds, next_key_first
from emu.types import Array, Episode, Outcome, PyTree

AT_A_TIME = 16  # one in so many copies begins anew at a time
AT_ONCE = 1024  # episodes of an evaluation; more would take memory and wait for the longest of them


@contextlib.contextmanager
def callbacks_of(env: Env) -> Iterator[None]:
    """Compiled environments may call Python (`jax.pure_callback`); what that raises is theirs, not ours."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "callback" not in str(error).lower():
            raise
        raise EnvError(f"Environment '{env.spec.name}' failed: {described(error)}. Run `emu check` on it.") from error


def begin_again(env: Env, states: PyTree, ended: Array, keys: Array) -> PyTree:
    """The states of E copies, those whose episode has ended replaced by new beginnings.

    Few episodes end in one step, so few begin at a time: a beginning may cost more than a step (in SMACv2 a battle is
    drawn and its units are packed), and computed for all copies it would be thrown away for nearly all of them.
    """
    copies = len(ended)
    few = max(1, copies // AT_A_TIME)

    def begin(loop: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        states, waiting = loop
        rows = jnp.nonzero(waiting, size=few, fill_value=copies)[0]  # those beyond the last copy are dropped
        fresh = jax.vmap(env.reset)(keys[jnp.minimum(rows, copies - 1)])
        states = jax.tree.map(lambda all_, new: all_.at[rows].set(new, mode="drop"), states, fresh)
        return states, waiting.at[rows].set(False, mode="drop")

    return jax.lax.while_loop(lambda loop: loop[1].any(), begin, (states, ended))[0]


class RolloutState(NamedTuple):
    """Everything the next chunk needs, one row per environment copy."""

    env: PyTree
    carry: PyTree
    ended: Array  # (E,) bool: the episode of this copy is over, the next slot shows its last observation
    key: Array  # (E, 2) uint32


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
            out_shardings=(self.shards.along(0), self.shards.along(1)),  # XLA drops the sharding of empty arrays
        )

    def init(self, key: Array) -> RolloutState:
        keys = jax.random.split(key, self.copies + 1)
        env = jax.jit(jax.vmap(self.env.reset))(jax.random.split(keys[0], self.copies))
        state = RolloutState(env, self.learner.initial_carry(self.copies), jnp.zeros(self.copies, bool), keys[1:])
        self._clear()
        return self.shards.put(state)

    def collect(self, policy: PyTree, state: RolloutState, epsilon: float) -> tuple[RolloutState, list[Episode], int]:
        """Run one chunk. Returns the new state, the episodes that ended, and the number of steps taken."""
        with callbacks_of(self.env):
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
                begin_again(self.env, stepped, last, keys[:, 3]),
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


class Keep(NamedTuple):
    """What is kept of every step beside its reward."""

    states: bool = False  # state vectors
    frames: bool = False  # states of the environment
    last: bool = False  # the state of the environment at the end of the episode only


class Record(NamedTuple):
    """What is known of one episode in each of E copies, L being the longest episode possible."""

    total: Array  # (E,) undiscounted return
    won: Array  # (E,)
    length: Array  # (E,)
    over: Array  # (E,) false at the end: the episode goes on after its limit
    reward: Array  # (L, E); beyond an episode's end whatever followed
    states: Array | None  # (L+1, E, S)
    frames: PyTree | None  # (L+1, E, ...)
    last: PyTree | None  # (E, ...)

    @classmethod
    def begin(cls, env: Env, first: PyTree, keep: Keep) -> Record:
        """Room for every step; only the first states are known."""
        limit, vectors = env.spec.episode_limit, jax.vmap(env.state)(first)
        copies = vectors.shape[0]

        def room(leaf: Array) -> Array:
            return jnp.broadcast_to(leaf[None], (limit + 1, *leaf.shape))

        return cls(
            total=jnp.zeros(copies),
            won=jnp.zeros(copies, bool),
            length=jnp.zeros(copies, jnp.int32),
            over=jnp.zeros(copies, bool),
            reward=jnp.zeros((limit, copies)),
            states=room(vectors) if keep.states else None,
            frames=jax.tree.map(room, first) if keep.frames else None,
            last=first if keep.last else None,
        )

    def add(self, env: Env, time: Array, following: PyTree, outcome: Outcome, keep: Keep) -> Record:
        """The step at `time`, which led to the states `following`; nothing counts of episodes that are over."""
        over = self.over

        def put(room: Array, leaf: Array) -> Array:
            return room.at[time + 1].set(leaf)

        return Record(
            total=self.total + jnp.where(over, 0.0, outcome.reward),
            won=self.won | (outcome.won & ~over),
            length=self.length + ~over,
            over=over | outcome.terminated | outcome.truncated,
            reward=self.reward.at[time].set(outcome.reward),
            states=put(self.states, jax.vmap(env.state)(following)) if self.states is not None else None,
            frames=jax.tree.map(put, self.frames, following) if keep.frames else None,
            last=choose(over, self.last, following) if keep.last else None,
        )

    @staticmethod
    def layout(keep: Keep) -> Record:
        """How the fields are divided among devices."""
        copies, steps = P(DATA), P(None, DATA)
        optional = (steps if keep.states else None, steps if keep.frames else None, copies if keep.last else None)
        return Record(copies, copies, copies, copies, steps, *optional)


Choose = Callable[[PyTree, PyTree, Array], tuple[Array, PyTree]]  # carry, environments, keys -> joint actions, carry
StepKeys = Callable[[Array], tuple[Array, Array, Array]]


def play_copies(env: Env, act: Choose, carry: PyTree, keys: Array, step_keys: StepKeys, keep: Keep) -> Record:
    """One episode in each of E copies, until all are over; to be compiled."""
    limit = env.spec.episode_limit
    begin = jax.vmap(jax.random.split)(keys)
    first = jax.vmap(env.reset)(begin[:, 0])

    def unfinished(loop: Any) -> Array:
        *_, time, record = loop
        return ~record.over.all() & (time < limit)

    def step(loop: Any) -> Any:
        state, carry, keys, time, record = loop
        keys, act_keys, env_keys = jax.vmap(step_keys)(keys)
        action, carry = act(carry, state, act_keys)
        state, outcome = jax.vmap(env.step)(state, action, env_keys)
        return state, carry, keys, time + 1, record.add(env, time, state, outcome, keep)

    loop = first, carry, begin[:, 1], jnp.int32(0), Record.begin(env, first, keep)
    *_, record = jax.lax.while_loop(unfinished, step, loop)
    return record


def episodes_of(env: Env, record: Record) -> list[PlayedEpisode]:
    """The episodes of a record that has been copied to the host."""
    if not record.over.all():
        require_limit(env.spec, env.spec.episode_limit + 1)

    def episode(copy: int) -> PlayedEpisode:
        length = int(record.length[copy])

        def frame(time: int) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[time, copy], record.frames)

        return PlayedEpisode(
            reward=record.reward[:length, copy],
            total=float(record.total[copy]),
            won=bool(record.won[copy]),
            states=None if record.states is None else record.states[: length + 1, copy],
            frames=None if record.frames is None else [frame(time) for time in range(length + 1)],
            final=None if record.last is None else {name: float(value[copy]) for name, value in record.last.items()},
        )

    return [episode(copy) for copy in range(len(record.total))]


class CompiledEvaluator(Evaluator):
    """Greedy episodes: a copy for each, until all have finished one; many episodes in parts of `AT_ONCE`."""

    env: Env

    def __init__(self, env: Env, learner: Learner, episodes: int, devices: Devices) -> None:
        self.env, self.learner, self.episodes, self.devices = env, learner, episodes, devices
        self._run = jax.jit(self._play, static_argnums=(2, 3))

    def play(
        self, policy: PyTree, seeds: EpisodeSeeds, states: bool = False, frames: bool = False
    ) -> list[PlayedEpisode]:
        keys, keep, episodes = seeds.keys(), Keep(states, frames), []
        for start in range(0, seeds.count, AT_ONCE):
            part = keys[start : start + AT_ONCE]
            shards = self.devices.sharding_for(len(part))
            with callbacks_of(self.env):
                record = self._run(shards.replicate(policy), shards.put(part), seeds.step_keys, keep)
                record = jax.device_get(record)
            episodes += episodes_of(self.env, record)
        return episodes

    def _play(self, policy: PyTree, keys: Array, step_keys: StepKeys, keep: Keep) -> Record:
        """An episode for each key, divided among the devices."""

        def share(policy: PyTree, keys: Array) -> Record:
            carry = self.learner.initial_carry(keys.shape[0])
            return play_copies(self.env, self._greedy(policy), carry, keys, step_keys, keep)

        mesh, layout = self.devices.sharding_for(len(keys)).mesh, Record.layout(keep)
        divided = jax.shard_map(share, mesh=mesh, in_specs=(P(), P(DATA)), out_specs=layout, check_vma=False)
        return divided(policy, keys)

    def _greedy(self, policy: PyTree) -> Choose:
        def act(carry: PyTree, state: PyTree, keys: Array) -> tuple[Array, PyTree]:
            obs, avail = jax.vmap(self.env.observe)(state), jax.vmap(self.env.avail)(state)
            return self.learner.act(policy, carry, obs, avail, jnp.float32(0), keys[0])

        return act


def play_scripted_copies(env: Env, player: Player, keys: Array, frames: bool = False) -> list[PlayedEpisode]:
    """Episodes of a scripted player (see `emu.envs.scripted`), many of them at once."""
    final_counts, scripted = final_counts_of(env), remembering(player)
    keep = Keep(frames=frames, last=final_counts is not None)

    def act(memory: PyTree, state: PyTree, keys: Array) -> tuple[Array, PyTree]:
        return jax.vmap(lambda *one: scripted.act(env, *one))(state, keys, memory)

    @jax.jit
    def program(keys: Array) -> Record:
        memory = jax.vmap(lambda _: scripted.start(env))(keys)
        record = play_copies(env, act, memory, keys, next_key_first, keep)
        return record._replace(last=jax.vmap(final_counts)(record.last)) if final_counts else record

    with callbacks_of(env):
        records = [jax.device_get(program(keys[start : start + AT_ONCE])) for start in range(0, len(keys), AT_ONCE)]
    return [episode for record in records for episode in episodes_of(env, record)]
