"""A tiny world, batches of episodes in it with every kind of end, and compiled learners that tests share."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from emu.config import Config, replace
from emu.devices import Devices
from emu.envs.spec import EnvSpec
from emu.learners.build import build_terms
from emu.learners.terms.base import Term, ValueContext
from emu.learners.terms.episodic import EpisodicControl
from emu.learners.value import ValueLearner
from emu.memory import Recall
from emu.types import Batch

N, A, S, T, B = 2, 3, 5, 4, 4
OBS = 2
SPEC = EnvSpec("tiny", "1", N, A, OBS, S, T, 2, True, (0.0, 1.0))
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
    "learner.max_grad_norm": 0.05,  # so small that it always clips
    "learner.target_interval": 2,
    "learner.updates_per_episode": 2,
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
        obs=normal(B, length + 1, N, OBS),
        state=normal(B, length + 1, S),
        avail=avail,
        action=np.zeros((B, length, N), np.int32),
        reward=normal(B, length),
        terminated=np.zeros((B, length), bool),
        truncated=np.zeros((B, length), bool),
        filled=np.arange(length) < np.array(LENGTHS)[:, None],
        time=np.broadcast_to(np.arange(length, dtype=np.int32), (B, length)),
        log_prob=np.random.default_rng(seed + 50).uniform(-2.0, -0.3, (B, length, N)).astype(np.float32),
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
        values.log_prob[row, steps:] = padding
    return values


def stacked(*batches):
    """Along the axis of updates that one call does."""
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)


def time_major(tree):
    return jax.tree.map(lambda x: x.swapaxes(0, 1), tree)


def learner_of(config: Config, terms: Sequence[Term] = (), devices: int = 2, kind=ValueLearner, spec=SPEC):
    """A learner whose update is compiled without the passes that only make it fast: half the time."""
    learner = kind(config, spec, Devices.of(devices), terms)
    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    learner.update = jax.jit(learner.update.__wrapped__, donate_argnums=0, compiler_options=quickly)
    return learner


@functools.cache
def plain_learner(kind: str, **changes) -> ValueLearner:
    """Compiled once for all tests that need it."""
    return learner_of(config(mixer__kind=kind, **changes))


EVERYTHING = {
    "agent__own_heads": True,
    "agent__agent_id": False,
    "curiosity__scale": 0.2,
    "curiosity__decay_interval": 100,
    "curiosity__target_factor": 3.0,
    "diversity__beta": 0.3,
    "diversity__hidden": 3,
    "diversity__minibatch": 8,  # three of them in a batch of 20 rows
    "elliptical__scale": 0.1,
    "memory__use": "incentive",
}


def learner_with_every_term(devices: int = 2, td_lambda: float = 0.0) -> ValueLearner:
    """A VDN with all there is, in a combination no algorithm has; compiled once for all tests that need it."""
    return _with_every_term(devices, td_lambda)


@functools.cache
def _with_every_term(devices: int, td_lambda: float) -> ValueLearner:
    c = config(**EVERYTHING, learner__td_lambda=td_lambda)
    return learner_of(c, [*build_terms(c, SPEC), EpisodicControl(c.learner.gamma, 0.1)], devices)


def term(learner: ValueLearner, state, name: str):
    """A term of a learner and its state."""
    place = [term.name for term in learner.terms].index(name)
    return learner.terms[place], state.terms[place]


def recall(seed: int = 0, length: int = T, dims: int = 3) -> Recall:
    """Answers of a memory that knows about half of the states."""
    rng = np.random.default_rng(seed + 100)
    found = rng.random((B, length)) < 0.6
    values = [rng.normal(size=(B, length)), rng.random((B, length))]
    best_return, ratio = (np.where(found, value, 0).astype(np.float32) for value in values)
    return Recall(found, best_return, ratio, ratio > 0, rng.normal(size=(B, length, dims)).astype(np.float32))


def started(learner: ValueLearner, seed: int = 0):
    """A state of random numbers with the optimisers at rest: no two networks are equal, so that mixing them up shows.

    Nothing is compiled for it, unlike for `learner.init`.
    """
    key = jax.random.PRNGKey(seed)
    return learner.shards.replicate(filled(jax.eval_shape(learner.init, key), seed))


def filled(shapes, seed: int = 0):
    """Random parameters in the given shapes; optimisers and counters 0."""
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        if shape.dtype != np.float32 or "optimiser" in jax.tree_util.keystr(path):
            return np.zeros(shape.shape, shape.dtype)
        return rng.normal(scale=0.5, size=shape.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def updated(learner: ValueLearner, state, *batches, recall=None, step: int = 0):
    """The state after one update per batch, and the metrics; `state` stays usable."""
    state = learner.shards.replicate(jax.device_get(state))  # the update takes its argument's memory over
    put = functools.partial(learner.shards.put, axis=1)
    recall = None if recall is None else put(stacked(*recall))
    return learner.update(state, put(stacked(*batches)), recall, np.int32(step))


def context_of(batch: Batch, agent=None, params=None, recall=None, step: int = 0) -> ValueContext:
    """What a term sees of a batch, on one device; without an agent all in NumPy."""
    batch, recall = time_major(batch), None if recall is None else time_major(recall)
    q = hidden = own = last_action = np.zeros(())
    if agent is not None:
        onehot = jax.nn.one_hot(batch.action, A)
        last_action = jnp.concatenate([jnp.zeros_like(onehot[:1]), onehot])
        q, hidden, own = agent.apply(params, batch.obs, last_action, method="unroll")
    mask = batch.filled.astype(np.float32)
    lengths = np.full(batch.filled.shape[1], len(batch.obs), np.int32)
    return ValueContext(batch, recall, mask, mask.sum(), np.int32(step), q, hidden, own, last_action, lengths)


def assert_trees_close(actual, expected, rtol=1e-5, atol=1e-6):
    flat, tree = jax.tree.flatten_with_path(expected)
    assert jax.tree.structure(actual) == tree
    for (path, want), got in zip(flat, jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(got, want, rtol, atol, err_msg=jax.tree_util.keystr(path))
