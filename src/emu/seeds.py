"""The random streams of one seed, each with a name and written nowhere else.

Every stream is a pure function of the run's seed and of counters that a run keeps (an update, a step, an episode), so
a resumed run draws what it would have drawn. Streams never share numbers: evaluating a team or taking a snapshot
changes nothing that training draws.

    stream                        drawn from                    used by
    `training_keys`               seed                          the learner's parameters, the rollout
    `rollout_episode`             rollout key, copy, episode    episodes of Python environments in training
    `evaluation_episodes`         seed, evaluation              greedy episodes of an evaluation
    `snapshot_episode`            seed, step                    the greedy episode of a snapshot
    `snapshot_sample`             seed, step                    which entries of the memory a snapshot shows
    `recorded_episode`            seed                          GIFs, figures
    `scripted_keys`, `scripted_generator`                       `emu play`
    `replay_draw`                 seed, update                  what an update learns from
    `embedder_init`, `embedder_training`, `embedder_sample`     the memory's embedder

NumPy only, until a stream of JAX keys is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from emu.types import Array

# Words that keep streams of one seed apart.
_EVALUATION, _SNAPSHOT, _EMBEDDER = 0x7E57, 0x54A9, 0xE3B
_EMBEDDER_SAMPLE, _SNAPSHOT_SAMPLE = 1, 2


def seed_of(*words: Any) -> int:
    """A seed of 31 bits that depends on every word."""
    return int(np.random.SeedSequence([int(word) for word in words]).generate_state(1)[0] >> 1)


def _philox(seed: int, stream: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed, counter=[stream, 0, 0, number]))


# Training


def training_keys(seed: int) -> tuple[Array, Array]:
    """The key of the learner's parameters and that of the rollout."""
    import jax

    learner, rollout = jax.random.split(jax.random.PRNGKey(seed), 2)
    return learner, rollout


def rollout_episode(key: Array, copy: Any, number: Any) -> int:
    """The seed of the `number`-th episode that a copy of a Python environment plays in training."""
    return seed_of(*key, copy, number)


def replay_draw(seed: int, update: int) -> np.random.Generator:
    """What this very update draws from the replay."""
    key = np.array([seed, update], np.uint64)  # not the counter: neighbouring counters share most of their stream
    return np.random.Generator(np.random.Philox(key=key))


def embedder_init(seed: int) -> Array:
    import jax

    return jax.random.PRNGKey(seed ^ _EMBEDDER)


def embedder_training(seed: int, training: int) -> Array:
    """The key of the embedder's `training`-th training."""
    import jax

    return jax.random.fold_in(jax.random.PRNGKey(seed), training)


def embedder_sample(seed: int, training: int) -> np.random.Generator:
    """Which entries of the memory the embedder's `training`-th training learns from."""
    return _philox(seed, _EMBEDDER_SAMPLE, training)


def snapshot_sample(seed: int, step: int) -> np.random.Generator:
    """Which entries of the memory the snapshot of a step shows."""
    return _philox(seed, _SNAPSHOT_SAMPLE, step)


# Episodes that nobody learns from


def next_key_first(key: Array) -> tuple[Array, Array, Array]:
    """The key of the next step, that of this step's action, that of the environment's own step."""
    import jax

    following, act, step = jax.random.split(key, 3)
    return following, act, step


def next_key_last(key: Array) -> tuple[Array, Array, Array]:
    """As `next_key_first`, drawn in the other order: recorded episodes have always been drawn so."""
    import jax

    act, step, following = jax.random.split(key, 3)
    return following, act, step


@dataclasses.dataclass(frozen=True)
class EpisodeSeeds:
    """Where `count` episodes begin: keys for compiled environments, whole numbers for Python ones."""

    count: int
    keys: Callable[[], Array]  # (count, 2) uint32
    numbers: Callable[[], list[int]]  # (count,)
    rows: Callable[[int], list[int]]  # one for each of so many copies stepped together; the first `count` matter
    step_keys: Callable[[Array], tuple[Array, Array, Array]] = next_key_last

    def part(self, first: int, count: int) -> EpisodeSeeds:
        """Some of these episodes, as if they were all."""
        last = first + count
        return dataclasses.replace(
            self,
            count=count,
            keys=lambda: self.keys()[first:last],
            numbers=lambda: self.numbers()[first:last],
            rows=lambda copies: self.rows(first + copies)[first:],
        )


def evaluation_episodes(seed: int, number: int, count: int) -> EpisodeSeeds:
    """Those of a run's `number`-th evaluation."""

    def keys() -> Array:
        import jax

        key = jax.random.fold_in(jax.random.key_data(jax.random.key(seed ^ _EVALUATION)), number)
        return jax.random.split(key, count)

    def numbers(copies: int = count) -> list[int]:
        return [seed_of(seed, _EVALUATION, number, episode) for episode in range(copies)]

    return EpisodeSeeds(count, keys, numbers, numbers, next_key_first)


def snapshot_episode(seed: int, step: int) -> EpisodeSeeds:
    """The one that the snapshot of a step shows."""

    @functools.cache
    def key() -> np.ndarray:
        import jax

        return np.asarray(jax.random.fold_in(jax.random.PRNGKey(seed ^ _SNAPSHOT), step))

    return EpisodeSeeds(
        1, lambda: key()[None], lambda: [seed_of(*key())], lambda copies: [seed_of(*key(), c) for c in range(copies)]
    )


def recorded_episode(seed: int) -> EpisodeSeeds:
    """The one that a GIF or a figure shows; a Python environment begins with the seed itself."""

    def keys() -> Array:
        import jax

        return jax.random.PRNGKey(seed)[None]

    return EpisodeSeeds(1, keys, lambda: [seed], lambda copies: [seed, *(seed_of(seed, c) for c in range(1, copies))])


def scripted_keys(seed: int, count: int) -> Array:
    """(count, 2) keys of the episodes that a scripted player plays in a compiled environment."""
    import jax

    return jax.random.split(jax.random.PRNGKey(seed), count)


def scripted_generator(seed: int, number: int) -> np.random.Generator:
    """The same for a Python environment: the seed of the `number`-th episode, then what its player draws."""
    return np.random.default_rng((seed, number))


def another_try(number: int) -> int:
    """What takes the place of an evaluation episode's own seed when the environment cannot play that."""
    return seed_of(number, _EVALUATION)
