"""What terms are made of: the context they read, one term, and all the terms of a learner.

A term is one ingredient of a learner beside its TD error: an intrinsic reward, a bonus on the target, an extra loss.
Every learner adds its terms up through `Terms`, so that one place says in which order they count and what is logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import flax.struct
import jax
import jax.numpy as jnp

from emu.config import Config
from emu.devices import DATA
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.registry import NoSettings
from emu.types import Array, Batch, PyTree

if TYPE_CHECKING:
    from emu.memory import Recall

T = TypeVar("T")


class Context(flax.struct.PyTreeNode):
    """What one update learns from, and what the terms of any learner may read of it. Time-major: T first, then B.

    Everything is a constant for gradients except in `Term.loss`, which gets the differentiable values.
    """

    batch: Batch
    recall: Recall | None  # of next states, (T, B); None where there is no memory
    mask: Array  # (T, B) 1 where a real step is
    count: Array  # () number of real steps in the whole batch (all devices)
    step: Array  # () environment steps so far: what schedules go by
    prepared: PyTree = flax.struct.field(default=(), kw_only=True)  # what this term's own `prepare` returned

    @classmethod
    def of(cls, batch: Batch, recall: Recall | None, step: Array) -> Context:
        """From a batch-major batch and its recall, inside the compiled update."""
        batch, recall = time_major((batch, recall))
        mask = batch.filled.astype(jnp.float32)
        count = jnp.maximum(jax.lax.psum(mask.sum(), DATA), 1.0)
        return cls(batch, recall, mask, count, step)

    def mean(self, values: Array) -> Array:
        """This device's share of the mean over the real steps; shares are summed over devices with the gradients."""
        return (values * self.mask).sum() / self.count


class ValueContext(Context):
    """What the value learner of teams shows beside that. Its batches are whole episodes."""

    q: Array  # (T+1, B, N, A) online Q of every action
    hidden: Array  # (T+1, B, N, H)
    own_q: Array  # own heads' part of q, or a scalar zero
    last_action: Array  # (T+1, B, N, A) one-hot
    lengths: Array  # (B,) observations of each episode: recurrent networks need not go further


class Term:
    """One ingredient of a learner. A new ingredient overrides what it needs; the rest stays neutral.

    One from outside is made as `MyTerm(config, spec, settings)`, its `Settings` filled from the configuration.
    """

    name: ClassVar[str] = "term"  # before its values in metrics.jsonl
    context: ClassVar[type[Context]] = Context  # what it reads; only learners that show as much can have it
    needs_memory: ClassVar[bool] = False  # whether it reads `context.recall`
    Settings: ClassVar[type] = NoSettings

    def __init__(self, config: Config, spec: EnvSpec, settings: Any) -> None:
        self.config, self.spec, self.settings = config, spec, settings

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Term | None:
        """A term of this package, if its group of settings in the configuration switches it on."""
        return None

    def init(self, key: Array) -> PyTree:
        """The term's own parameters, optimiser state and the like."""
        return ()

    def prepare(self, state: PyTree, context: Any) -> PyTree:
        """What the methods below share, computed once per update; they find it in `context.prepared`."""
        return ()

    def reward(self, state: PyTree, context: Any) -> Array | float:
        """An intrinsic reward, (T, B), added to the environment's."""
        return 0.0

    def target(self, state: PyTree, context: Any, next_value: Array) -> Array | float:
        """A bonus on the TD target, (T, B), given the bootstrap value of the next states."""
        return 0.0

    def loss(self, state: PyTree, context: Any, q_tot: Array) -> Array | float:
        """A differentiable extra loss (this device's share of a mean) on the learner's own parameters."""
        return 0.0

    def update(self, state: PyTree, context: Any, renew_target: Array) -> tuple[PyTree, dict[str, Array]]:
        """Train what the term owns. `renew_target` is true on updates that move the target network.

        Gradients and metrics are this device's shares: sum them over `DATA` before they are used.
        """
        return state, {}


States = tuple[PyTree, ...]  # one entry per term, as everything below
Contexts = tuple[Any, ...]  # the context as each term sees it: with what its own `prepare` returned
Parts = dict[str, Array]  # values to log: this device's shares


class Terms(Sequence[Term]):
    """The terms of a learner, in the order in which they count."""

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        self._terms = tuple(terms)

    def init(self, key: Array) -> States:
        keys = jax.random.split(key, max(1, len(self)))
        return tuple(term.init(k) for term, k in zip(self, keys, strict=False))

    def prepare(self, states: States, context: Context) -> Contexts:
        """The context as each term sees it; all of it constant for gradients."""
        context = jax.lax.stop_gradient(context)
        prepared = [term.prepare(state, context) for term, state in zip(self, states, strict=True)]
        return tuple(context.replace(prepared=jax.lax.stop_gradient(p)) for p in prepared)

    def reward(self, states: States, contexts: Contexts, reward: Array) -> tuple[Array, Parts]:
        """The reward (T, B) with the terms' intrinsic rewards."""
        parts: Parts = {}
        for term, state, context in zip(self, states, contexts, strict=True):
            extra = term.reward(state, context)
            if not isinstance(extra, float):  # 0.0: the term has none
                _require_shape(term, "reward", extra, reward.shape)
                reward, parts[f"{term.name}_reward"] = reward + extra, context.mean(extra)
        return reward, parts

    def target(self, states: States, contexts: Contexts, target: Array, next_value: Array) -> tuple[Array, Parts]:
        """The TD target (T, B) with the terms' bonuses."""
        parts: Parts = {}
        for term, state, context in zip(self, states, contexts, strict=True):
            extra = term.target(state, context, next_value)
            if not isinstance(extra, float):
                _require_shape(term, "target", extra, target.shape)
                target, parts[f"{term.name}_bonus"] = target + extra, context.mean(extra)
        return target, parts

    def losses(self, states: States, contexts: Contexts, q_tot: Array) -> Parts:
        """The extra losses by the names they are logged under."""
        parts: Parts = {}
        for term, state, context in zip(self, states, contexts, strict=True):
            extra = term.loss(state, context, q_tot)
            if not isinstance(extra, float):
                _require_shape(term, "loss", extra, ())
                parts[f"{term.name}_loss"] = extra
        return parts

    def update(self, states: States, contexts: Contexts, renew_target: Array) -> tuple[States, Parts]:
        """Every term trains what it owns."""
        new, parts = [], {}
        for term, state, context in zip(self, states, contexts, strict=True):
            state, metrics = term.update(state, context, renew_target)
            new.append(state)
            parts |= {f"{term.name}_{key}": value for key, value in metrics.items()}
        return tuple(new), parts

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[Term]:
        return iter(self._terms)

    @overload
    def __getitem__(self, index: int) -> Term: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Term]: ...
    def __getitem__(self, index: int | slice) -> Term | Sequence[Term]:
        return self._terms[index]


def time_major(tree: T) -> T:
    """(B, T, ...) arrays as (T, B, ...)."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def _require_shape(term: Term, method: str, value: Array, wanted: tuple[int, ...]) -> None:
    """Say which term is wrong, before arithmetic fails somewhere else. Shapes that broadcast to the wanted one pass."""
    shape = jnp.shape(value)
    if len(shape) > len(wanted) or any(a not in (1, b) for a, b in zip(shape[::-1], wanted[::-1], strict=False)):
        meant = "a number: context.mean(...) gives one" if wanted == () else f"{list(wanted)}: time, then episodes"
        raise ConfigError(f"The {method} of term '{term.name}' has shape {list(shape)}; it must be {meant}.")
