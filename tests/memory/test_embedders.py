"""The embedders: shapes, bits, losses against hand-written ones, learning, and how often they compile."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from emu.errors import ConfigError
from emu.memory import EpisodicMemory
from emu.memory.embedders import LOSS_CASES, SIZES, Embedder
from emu.memory.options import EmbedderOptions

STATE_DIM, LIMIT = 7, 20


def make(kind: str = "dcae", **options: object) -> Embedder:
    return Embedder(STATE_DIM, LIMIT, options=EmbedderOptions(kind=kind, **options))  # type: ignore[arg-type]


def data(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States on a curve, so that four numbers can hold them; the return depends on the state."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(-1, 1, (count, 2))
    states = np.tanh(phase @ np.random.default_rng(99).normal(size=(2, STATE_DIM))).astype(np.float32)
    return states, rng.integers(0, LIMIT, count).astype(np.int32), (3 * states[:, 0] - states[:, 1]).astype(np.float32)


@pytest.mark.parametrize("kind", ["random", "embnet", "dcae"])
def test_encode_gives_the_same_bits_in_every_batch(kind: str) -> None:
    embedder = make(kind)
    state = embedder.init(jax.random.key(0))
    states, times, _ = data(5_000)
    together = embedder.encode(state, states, times)
    assert together.shape == (5_000, 4)
    assert together.dtype == np.float32
    for start, stop in ((0, 1), (0, 300), (4_000, 5_000), (17, 2_100)):
        np.testing.assert_array_equal(
            embedder.encode(state, states[start:stop], times[start:stop]), together[start:stop]
        )


def test_encode_compiles_a_few_sizes_only() -> None:
    embedder = make()
    state = embedder.init(jax.random.key(0))
    for count in (1, 2, 3, 100, 255, 256, 257, 300, 512):
        embedder.encode(state, *data(count)[:2])
    assert embedder._encode._cache_size() <= 2
    assert embedder.encode(state, *data(0)[:2]).shape == (0, 4)
    assert SIZES[0] == 256


@pytest.mark.parametrize("kind", ["embnet", "dcae"])
def test_training_lowers_the_loss_and_compiles_twice_at_most(kind: str) -> None:
    embedder = make(kind, samples=4_096, batch_size=128, learning_rate=3e-3)
    state = embedder.init(jax.random.key(0))
    losses = []
    for interval, count in enumerate((50, 300, 4_096, 5_000, 4_000, 4_096, 4_096, 4_096)):
        state, metrics = embedder.train(state, *data(count, interval), jax.random.key(interval))
        losses.append(metrics["return_loss"])
    assert losses[-1] < 0.1 * losses[0]
    assert embedder._train._cache_size() <= 2
    assert int(state.count) == 1 + 2 + 32 + 32 + 31 + 3 * 32


def test_dcae_reconstructs_states_from_four_numbers() -> None:
    embedder = make(samples=8_192, batch_size=256, learning_rate=3e-3)
    state = embedder.init(jax.random.key(1))
    for interval in range(12):
        state, metrics = embedder.train(state, *data(8_192, interval), jax.random.key(0))
    variance = float(data(8_192)[0].var(axis=0).sum())
    assert metrics["reconstruction_loss"] < 0.2 * variance


@pytest.mark.parametrize("case", LOSS_CASES)
def test_the_four_loss_cases_weigh_and_see_what_the_paper_says(case: str) -> None:
    embedder = make(loss_case=case, reconstruction_weight=0.25)
    state = embedder.init(jax.random.key(2))
    states, times, returns = data(64)
    weights = jnp.full(64, 1 / 64)
    loss, parts = jax.jit(embedder._loss)(state.params, states, times, returns, weights)
    mixed = {
        "reconstruction_no_time": parts["reconstruction_loss"],
        "reconstruction_time": parts["reconstruction_loss"],
        "return_only": parts["return_loss"],
        "both": parts["return_loss"] + 0.25 * parts["reconstruction_loss"],
    }
    np.testing.assert_allclose(loss, mixed[case], rtol=1e-6)
    later = embedder.encode(state, states, times + 5)
    same = np.array_equal(later, embedder.encode(state, states, times))
    assert same == (case == "reconstruction_no_time")


def test_the_loss_is_summed_over_state_dimensions_and_averaged_over_samples() -> None:
    embedder = make()
    state = embedder.init(jax.random.key(3))
    states, times, returns = data(32)
    x = embedder._encoder.apply(state.params["encoder"], states, times / LIMIT)
    prediction = embedder._decoder.apply(state.params["decoder"], x, times / LIMIT)
    expected = np.mean((returns - prediction.value) ** 2) + 0.1 * np.mean(  # type: ignore[union-attr]
        np.sum((states - prediction.state) ** 2, axis=1)  # type: ignore[union-attr]
    )
    loss, _ = jax.jit(embedder._loss)(state.params, states, times, returns, jnp.full(32, 1 / 32))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_fewer_samples_than_a_minibatch_make_one_smaller_minibatch() -> None:
    """Padding must not count: the step equals one on the samples alone."""
    few, states = make(samples=1_024, batch_size=512), data(36)
    exact = make(samples=1_024, batch_size=36)
    state = few.init(jax.random.key(0))
    a, _ = few.train(state, *states, jax.random.key(0))
    b, _ = exact.train(state, *states, jax.random.key(0))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), a.params, b.params)


def test_without_warm_start_each_interval_starts_anew() -> None:
    embedder = make(samples=256, batch_size=64, warm_start=False)
    state = embedder.init(jax.random.key(0))
    once, _ = embedder.train(state, *data(256), jax.random.key(5))
    again, _ = embedder.train(once, *data(256), jax.random.key(5))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert int(again.count) == 4


def test_the_random_projection_does_not_learn_and_has_the_right_scale() -> None:
    embedder = make("random")
    state = embedder.init(jax.random.key(0))
    same, metrics = embedder.train(state, *data(100), jax.random.key(0))
    assert same is state
    assert metrics == {}
    wide = Embedder(20_000, LIMIT, options=EmbedderOptions(kind="random")).init(jax.random.key(0))
    assert float(np.std(wide.params["encoder"]["params"]["matrix"])) == pytest.approx(0.5, rel=0.02)


def test_an_embedder_drives_the_memory() -> None:
    embedder = make(samples=512, batch_size=64)
    state = embedder.init(jax.random.key(0))
    memory = EpisodicMemory(
        state_dim=STATE_DIM, radius=1e-6, capacity=1_000, encode=functools.partial(embedder.encode, state)
    )
    states, _, returns = data(400)
    for start in range(0, 400, 20):
        block = slice(start, start + 20)
        memory.update([type("E", (), {"state": states[block], "reward": returns[start : start + 19], "won": True})()])
    state, _ = embedder.train(state, *memory.sample(512, np.random.default_rng(0)), jax.random.key(1))
    memory.reembed(functools.partial(embedder.encode, state))
    recall = memory.recall(states.reshape(20, 20, -1), np.tile(np.arange(20), (20, 1)))
    assert recall.found.all()  # the same bits again, whatever the batch, even at this radius


def test_two_cpu_devices_share_the_work_and_agree_with_one() -> None:
    shared, alone = (make(samples=1_024, batch_size=256) for _ in range(2))
    alone.__dict__["_mesh"] = Mesh(np.array(jax.local_devices()[:1]), ("rows",))
    assert shared._mesh.size == len(jax.local_devices()) == 2
    state = shared.init(jax.random.key(0))
    states, times, returns = data(5_000)
    np.testing.assert_array_equal(shared.encode(state, states, times), alone.encode(state, states, times))
    (a, seen), (b, expected) = (e.train(state, states, times, returns, jax.random.key(0)) for e in (shared, alone))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), a.params, b.params)
    assert seen["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert {leaf.sharding for leaf in jax.tree.leaves(a)} == {jax.tree.leaves(state)[0].sharding}


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="kind"):
        EmbedderOptions(kind="vae")
    with pytest.raises(ConfigError, match="loss_case"):
        EmbedderOptions(loss_case="none")
    with pytest.raises(ConfigError, match="batch_size"):
        EmbedderOptions(batch_size=10, samples=5)
