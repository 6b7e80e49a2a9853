"""A tiny world, batches of episodes in it with every kind of end, and compiled learners that tests share."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from emu.config import Config, replace
from emu.envs.base import EnvSpec
from emu.learners.base import Context, Term
from emu.learners.value import ValueLearner
from emu.runtime import Devices
from emu.types import Batch

N, A, O, S, T, B = 2, 3, 2, 5, 4, 4
SPEC = EnvSpec("tiny", "1", N, A, O, S, T, 2, True, (0.0, 1.0))
LENGTHS = (4, 2, 3, 1)  # of the episodes in a batch; the padding of the second is long
TERMINATED = (True, True, False, False)  # the others are truncated
SMALL = {
    "agent.hidden": 3,
    "mixer.kind": "vdn",
    "mixer.embed": 2,
    "mixer.hyper_hidden": 3,
    "mixer.heads": 2,
    "mixer.kernels": 2,
    "learner.batch_size": B,
    "replay.episodes": 8,
}


def config(**changes) -> Config:
    """A small VDN; keys with '__' for '.'."""
    return replace(Config(), SMALL | {key.replace("__", "."): value for key, value in changes.items()})


def batch(seed: int = 0, padding: float = 0.0, length: int = T) -> Batch:
    """Episodes that end at different steps; `padding` is what lies beyond their ends."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    avail = rng.random((B, length + 1, N, A)) < 0.7
    avail[..., 0] |= ~avail.any(-1)
    values = Batch(
        obs=normal(B, length + 1, N, O),
        state=normal(B, length + 1, S),
        avail=avail,
        action=np.zeros((B, length, N), np.int32),
        reward=normal(B, length),
        terminated=np.zeros((B, length), bool),
        truncated=np.zeros((B, length), bool),
        filled=np.arange(length) < np.array(LENGTHS)[:, None],
    )
    for row, (steps, terminated) in enumerate(zip(LENGTHS, TERMINATED, strict=True)):
        for t in range(steps):
            for agent in range(N):
                values.action[row, t, agent] = rng.choice(np.flatnonzero(avail[row, t, agent]))
        (values.terminated if terminated else values.truncated)[row, steps - 1] = True
        for field in (values.obs, values.state):
            field[row, steps + 1 :] = padding
        values.avail[row, steps + 1 :] = True
        values.reward[row, steps:] = padding
    return values


def stacked(*batches):
    """Along the axis of updates that one call does."""
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)


def time_major(tree):
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def learner_of(config: Config, terms: Sequence[Term] = (), devices: int = 2) -> ValueLearner:
    return ValueLearner(config, SPEC, Devices.of(devices), terms)


@functools.cache
def plain_learner(kind: str, **changes) -> ValueLearner:
    """Compiled once for all tests that need it."""
    return learner_of(config(mixer__kind=kind, **changes))


def started(learner: ValueLearner, seed: int = 0):
    return learner.shards.replicate(learner.init(jax.random.PRNGKey(seed)))


def updated(learner: ValueLearner, state, *batches, recall=None, step: int = 0):
    """The state after one update per batch, and the metrics; `state` stays usable."""
    state = jax.tree.map(jnp.copy, state)
    put = functools.partial(learner.shards.put, axis=1)
    recall = None if recall is None else put(stacked(*recall))
    return learner.update(state, put(stacked(*batches)), recall, np.int32(step))


def context_of(batch: Batch, agent=None, params=None, recall=None, step: int = 0) -> Context:
    """What a term sees of a batch, on one device."""
    batch = time_major(batch)
    onehot = jax.nn.one_hot(batch.action, A)
    last_action = jnp.concatenate([jnp.zeros_like(onehot[:1]), onehot])
    q = hidden = own = jnp.zeros(())
    if agent is not None:
        q, hidden, own = agent.apply(params, batch.obs, last_action, method="unroll")
    mask = batch.filled.astype(jnp.float32)
    recall = None if recall is None else time_major(recall)
    return Context(batch, recall, q, hidden, own, last_action, mask, mask.sum(), jnp.int32(step))


def assert_trees_close(actual, expected, rtol=1e-5, atol=1e-6):
    flat, tree = jax.tree.flatten_with_path(expected)
    assert jax.tree.structure(actual) == tree
    for (path, want), got in zip(flat, jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(got, want, rtol, atol, err_msg=jax.tree_util.keystr(path))
