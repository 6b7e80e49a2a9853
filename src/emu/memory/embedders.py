"""Trainable state embedders f_φ (paper: Eq. 4 and 5, Algorithm 1): random projection, EmbNet, dCAE.

One small interface: `init`, `encode` ((n, S) states and (n,) times to (n, D)), `train` ((n, S), (n,), (n,) returns).
This module imports JAX; the rest of `emu.memory` does not. The time enters the networks as t / episode_limit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from emu.memory.options import EmbedderOptions, LossCase
from emu.registry import NoSettings

LOSS_CASES: tuple[str, ...] = get_args(LossCase)  # cases 1 to 4 of the paper's ablation
BLOCK = 256  # rows encoded at a time: every batch is cut into blocks of one size, so a state's bits never depend on it
SIZES = tuple(BLOCK * 2**k for k in range(7))  # compiled sizes of an encoder call: 256 … 16,384 rows
SHARED_ABOVE = 2_048  # rows above which an encoder call is shared out over the CPU devices


class EmbedderState(NamedTuple):
    """All that changes as an embedder learns: a pytree to be checkpointed."""

    params: Any
    optimiser: Any
    count: Any  # () int32: gradient steps taken


class Prediction(NamedTuple):
    value: Any  # (B,) predicted highest return
    state: Any  # (B, S) reconstructed state, or None


class Projection(nn.Module):
    """x = s P, P fixed, P_ij ~ N(0, 1/D)."""

    key_dim: int

    @nn.compact
    def __call__(self, states: jax.Array, times: jax.Array) -> jax.Array:
        matrix = self.param("matrix", nn.initializers.normal(self.key_dim**-0.5), (states.shape[-1], self.key_dim))
        return states @ matrix


class EmbNetEncoder(nn.Module):
    key_dim: int

    @nn.compact
    def __call__(self, states: jax.Array, times: jax.Array) -> jax.Array:
        hidden = nn.relu(nn.Dense(64)(states))
        return nn.LayerNorm()(nn.Dense(self.key_dim)(hidden))


class EmbNetDecoder(nn.Module):
    state_dim: int

    @nn.compact
    def __call__(self, x: jax.Array, times: jax.Array) -> Prediction:
        hidden = nn.relu(nn.Dense(128)(nn.relu(nn.Dense(128)(x))))
        return Prediction(nn.Dense(1)(hidden)[..., 0], None)


class WithTime(nn.Module):
    """Dense layer on [inputs, t] without building the concatenation."""

    features: int

    @nn.compact
    def __call__(self, inputs: jax.Array, times: jax.Array) -> jax.Array:
        weight = self.param("time", nn.initializers.normal(inputs.shape[-1] ** -0.5), (self.features,))
        return nn.Dense(self.features)(inputs) + times[..., None] * weight


class DcaeEncoder(nn.Module):
    key_dim: int

    @nn.compact
    def __call__(self, states: jax.Array, times: jax.Array) -> jax.Array:
        hidden = nn.relu(nn.Dense(64)(nn.relu(WithTime(64)(states, times))))
        return nn.Dense(self.key_dim)(hidden)


class DcaeDecoder(nn.Module):
    """Two heads, return and state, on a shared trunk."""

    state_dim: int

    @nn.compact
    def __call__(self, x: jax.Array, times: jax.Array) -> Prediction:
        trunk = nn.relu(nn.Dense(64)(nn.relu(WithTime(64)(x, times))))
        return Prediction(nn.Dense(1)(trunk)[..., 0], nn.Dense(self.state_dim)(trunk))


@dataclasses.dataclass(frozen=True)
class Embedder:
    """f_φ and its decoder f_ψ as pure functions of an `EmbedderState`.

    One from outside derives from this class and overrides `make_encoder`, and `make_decoder` or `trainable`.
    """

    Settings: ClassVar[type] = NoSettings

    state_dim: int
    episode_limit: int
    key_dim: int = 4
    options: EmbedderOptions = dataclasses.field(default_factory=EmbedderOptions)
    settings: Any = None  # of a class from outside: its `Settings`

    def make_encoder(self) -> nn.Module:
        """A module from states (n, S) and times t / episode_limit (n,) to embeddings (n, D)."""
        kinds = {"random": Projection, "embnet": EmbNetEncoder, "dcae": DcaeEncoder}
        return kinds[self.options.kind](self.key_dim)

    def make_decoder(self) -> nn.Module:
        """A module from embeddings (n, D) and times (n,) to a `Prediction`."""
        return (DcaeDecoder if self.options.kind == "dcae" else EmbNetDecoder)(self.state_dim)

    @functools.cached_property
    def _encoder(self) -> nn.Module:
        return self.make_encoder()

    @functools.cached_property
    def _decoder(self) -> nn.Module:
        return self.make_decoder()

    @functools.cached_property
    def _optimiser(self) -> optax.GradientTransformation:
        o = self.options
        # flat: one vector for all weights, so a step is a few operations instead of some for every array
        return optax.flatten(optax.chain(optax.clip_by_global_norm(o.max_grad_norm), optax.adam(o.learning_rate)))

    @functools.cached_property
    def _mesh(self) -> Mesh:
        """The devices that share the work: all CPU devices there are (a power of two of them), or one accelerator.

        One XLA program on one CPU device keeps one core busy with matrices this small; two devices keep two.
        """
        devices = jax.local_devices()
        count = len(devices) if devices[0].platform == "cpu" else 1
        while count & (count - 1) or self.options.batch_size % count:
            count -= 1
        return Mesh(np.array(devices[:count]), ("rows",))

    @property
    def _devices(self) -> list[Any]:
        return list(self._mesh.devices.flat)

    def _spread(self, tree: Any, *axes: str | None) -> Any:
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec(*axes)))

    @property
    def trainable(self) -> bool:
        return self.options.kind != "random"

    def init(self, key: jax.Array) -> EmbedderState:
        """Fresh weights, drawn as PyTorch draws a linear layer's: uniform within ±1/√inputs, biases included.

        Drawn by numpy from the key: compiling a dozen JAX generators would take longer than an interval of training.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        one, time = jnp.zeros((1, self.state_dim)), jnp.zeros(1)
        shapes = {"encoder": jax.eval_shape(self._encoder.init, key, one, time)}
        if self.trainable:
            shapes["decoder"] = jax.eval_shape(self._decoder.init, key, jnp.zeros((1, self.key_dim)), time)
        params = _drawn(shapes, rng)
        return EmbedderState(params, self._optimiser.init(params), jnp.zeros((), jnp.int32))

    def _scaled(self, times: jax.Array) -> jax.Array:
        """t / episode_limit; 0 throughout in the loss case without time."""
        without = self.options.kind == "dcae" and self.options.loss_case == "reconstruction_no_time"
        return jnp.zeros(times.shape) if without else times.astype(jnp.float32) / self.episode_limit

    def encode(self, state: EmbedderState, states: np.ndarray, times: np.ndarray) -> np.ndarray:
        """(n, S), (n,) → (n, D) numpy."""
        return self.encoder(state)(states, times)

    def encoder(self, state: EmbedderState) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """A memory's `encode`: as above, the weights being laid on the devices only once."""
        weights = [jax.device_put(state.params["encoder"], device) for device in self._devices]
        return functools.partial(self._encode_with, weights)

    def _encode_with(self, weights: list[Any], states: np.ndarray, times: np.ndarray) -> np.ndarray:
        states, times = np.asarray(states, np.float32), np.asarray(times, np.int32)
        out = np.empty((len(states), self.key_dim), np.float32)
        devices = len(weights) if len(states) > SHARED_ABOVE else 1
        rows = min(SIZES[-1], max(1, -(-len(states) // devices)))
        under_way: deque[tuple[slice, Any]] = deque()  # a chunk on every device, and one that waits
        for number, start in enumerate(range(0, len(states), rows)):
            part = slice(start, min(start + rows, len(states)))
            size = next(s for s in SIZES if s >= part.stop - start)
            x = self._encode(weights[number % devices], _padded(states[part], size), _padded(times[part], size))
            under_way.append((part, x))
            if len(under_way) > devices:
                _fetch(under_way.popleft(), out)
        for chunk in under_way:
            _fetch(chunk, out)
        return out

    def _encode_blocks(self, params: Any, states: jax.Array, times: jax.Array) -> jax.Array:
        blocks = states.reshape(-1, BLOCK, self.state_dim), self._scaled(times).reshape(-1, BLOCK)
        x = jax.lax.map(lambda block: self._encoder.apply(params, *block), blocks)
        return x.reshape(-1, self.key_dim)

    @functools.cached_property
    def _encode(self) -> Any:
        return jax.jit(self._encode_blocks)

    def train(
        self, state: EmbedderState, states: np.ndarray, times: np.ndarray, returns: np.ndarray, key: jax.Array
    ) -> tuple[EmbedderState, dict[str, float]]:
        """One interval: one pass over the samples (in the order given) in minibatches, one compiled loop.

        ⌊n / batch_size⌋ full minibatches, as Algorithm 1 has it; while there are fewer samples than one minibatch, all
        of them make a single smaller one. `key` is used only to start anew (`warm_start` off).
        """
        if not self.trainable or len(states) == 0:
            return state, {}
        if not self.options.warm_start:
            state = self.init(key)
        o, count = self.options, min(len(states), self.options.samples)
        few = -(-o.samples // 8 // o.batch_size) * o.batch_size  # a second, small shape: young memories train quickly
        room = few if count <= few else o.samples // o.batch_size * o.batch_size
        shape = room // o.batch_size, o.batch_size
        data = [_padded(a[: min(count, room)], room).reshape(*shape, *a.shape[1:]) for a in (states, times, returns)]
        trained, metrics = self._train(self._spread(state), *self._spread(data, None, "rows"), np.int32(count))
        home = jax.tree.leaves(state)[0].sharding
        return jax.device_put(trained, home), {name: float(value) for name, value in metrics.items()}

    @functools.cached_property
    def _train(self) -> Any:
        size, shares = self.options.batch_size, self._mesh.size

        def train(state: EmbedderState, states: Any, times: Any, returns: Any, count: Any) -> Any:
            batches, rows = jnp.maximum(count // size, 1), jnp.arange(size // shares)
            first = jax.lax.axis_index("rows") * len(rows)  # of this device's part of every minibatch
            weights = jnp.where(first + rows < count, 1.0, 0.0) / jnp.minimum(count, size)

            def step(i: Any, carry: Any) -> Any:
                state, sums = carry
                batch = [jax.lax.dynamic_index_in_dim(a, i, keepdims=False) for a in (states, times, returns)]
                (_, parts), grads = jax.value_and_grad(self._loss, has_aux=True)(state.params, *batch, weights)
                # one vector: the devices meet once a step, not once for every array
                vector, split = jax.flatten_util.ravel_pytree((grads, parts))
                vector = jax.lax.psum(vector, "rows")
                grads, parts = split(vector)
                updates, optimiser = self._optimiser.update(grads, state.optimiser, state.params)
                params = optax.apply_updates(state.params, updates)
                state = EmbedderState(params, optimiser, state.count + 1)
                return state, jax.tree.map(jnp.add, sums, parts | {"grad_norm": jnp.linalg.norm(vector[: -len(parts)])})

            zeros = {"loss": 0.0, "return_loss": 0.0, "reconstruction_loss": 0.0, "grad_norm": 0.0}
            state, sums = jax.lax.fori_loop(0, batches, step, (state, jax.tree.map(jnp.float32, zeros)))
            return state, jax.tree.map(lambda total: total / batches, sums)

        whole, rows = PartitionSpec(), PartitionSpec(None, "rows")
        return jax.jit(
            jax.shard_map(
                train,
                mesh=self._mesh,
                in_specs=(whole, rows, rows, rows, whole),
                out_specs=whole,
                check_vma=False,  # with it, gradients of shared weights would be summed a second time
            )
        )

    def _loss(self, params: Any, states: Any, times: Any, returns: Any, weights: Any) -> tuple[Any, dict[str, Any]]:
        """(H − Ĥ)² and ‖s − ŝ‖², summed over state dimensions, weighted as the loss case says, mean over samples."""
        scaled = self._scaled(times)
        x = self._encoder.apply(params["encoder"], states, scaled)
        prediction = self._decoder.apply(params["decoder"], x, scaled)
        assert isinstance(prediction, Prediction)
        return_loss = jnp.sum(weights * (returns - prediction.value) ** 2)
        reconstruction = jnp.float32(0)
        if prediction.state is not None:
            reconstruction = jnp.sum(weights * jnp.sum((states - prediction.state) ** 2, axis=-1))
        return_weight, state_weight = self._weights
        loss = return_weight * return_loss + state_weight * reconstruction
        return loss, {"loss": loss, "return_loss": return_loss, "reconstruction_loss": reconstruction}

    @property
    def _weights(self) -> tuple[float, float]:
        """Of the return's and the state's part of the loss."""
        if self.options.kind != "dcae" or self.options.loss_case == "return_only":
            return 1.0, 0.0
        return (1.0, self.options.reconstruction_weight) if self.options.loss_case == "both" else (0.0, 1.0)


def _drawn(shapes: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The weights of a layer, or of the layers inside it; what it has besides kernels goes by its kernel's inputs."""
    kernel = shapes.get("kernel", shapes.get("Dense_0", {}).get("kernel"))
    bound = 0.0 if kernel is None else kernel.shape[0] ** -0.5
    drawn: dict[str, Any] = {}
    for name, leaf in sorted(shapes.items()):
        if isinstance(leaf, dict):
            drawn[name] = _drawn(leaf, rng)
            continue
        if name == "matrix":  # the random projection: N(0, 1/D)
            values = rng.normal(size=leaf.shape, scale=leaf.shape[1] ** -0.5)
        elif name == "scale":  # of the layer norm
            values = np.ones(leaf.shape)
        else:
            values = rng.uniform(-bound, bound, leaf.shape)
        drawn[name] = jnp.asarray(values, jnp.float32)
    return drawn


def _fetch(chunk: tuple[slice, Any], out: np.ndarray) -> None:
    """Wait for the embeddings of a chunk; what it was padded with is left out."""
    part, x = chunk
    out[part] = np.asarray(x)[: part.stop - part.start]


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    if len(array) == size:
        return array
    out = np.zeros((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
