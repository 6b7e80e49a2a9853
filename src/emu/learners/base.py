"""What the loop asks of an algorithm, and what the terms of a value learner share.

A learner is pure: its whole state is one pytree. The loop calls `act` inside the compiled rollout and `update` between
rollouts; it never looks inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from emu.types import Array, Batch, PyTree


class Learner(Protocol):
    """An algorithm as the loop sees it."""

    on_policy: bool  # learn from the newest episodes only, from each in one update; else from samples of the replay

    def init(self, key: Array) -> PyTree:
        """Parameters, targets, optimiser states and counters, as one pytree."""
        ...

    def policy(self, state: PyTree) -> PyTree:
        """The part of the state that acting needs."""
        ...

    def initial_carry(self, copies: int) -> PyTree:
        """What acting remembers at the start of an episode; leading axis `copies`."""
        ...

    def act(
        self, policy: PyTree, carry: PyTree, obs: Array, avail: Array, epsilon: Array, key: Array
    ) -> tuple[Array, PyTree]:
        """Joint actions (E, N) for observations (E, N, O) and availability (E, N, A); greedy ones if epsilon is 0."""
        ...

    def log_prob(self, carry: PyTree) -> Array | None:
        """Log-probabilities (E, N) of the actions that `act` returned with this carry, to be kept with the episode.

        None unless the learner is on policy: nobody else asks for them.
        """
        ...

    def update(self, state: PyTree, batches: Batch, recall: Any, step: Array) -> tuple[PyTree, dict[str, Array]]:
        """One update per leading entry of `batches`; the metrics keep that leading axis."""
        ...


class Context(NamedTuple):
    """What one update has computed so far; terms read from it. Time-major: T first, then B.

    Everything is a constant for gradients except in `Term.loss`, which gets the differentiable values.
    """

    batch: Batch  # time-major
    recall: Any  # Recall of next states, (T, B), or None
    q: Array  # (T+1, B, N, A) online Q of every action
    hidden: Array  # (T+1, B, N, H)
    own_q: Array  # own heads' part of q, or a scalar zero
    last_action: Array  # (T+1, B, N, A) one-hot
    lengths: Array  # (B,) observations of each episode: recurrent networks need not go further
    mask: Array  # (T, B) 1 where a real step is
    count: Array  # () number of real steps in the whole batch (all devices)
    step: Array  # () environment steps so far: what schedules go by
    prepared: PyTree = None  # what this term's own `prepare` returned

    def mean(self, values: Array) -> Array:
        """This device's share of the mean over the real steps; shares are summed over devices with the gradients."""
        return (values * self.mask).sum() / self.count


class Term:
    """One ingredient of a value learner. A new ingredient overrides what it needs; the rest stays neutral."""

    name = "term"

    def init(self, key: Array) -> PyTree:
        """The term's own parameters, optimiser state and the like."""
        return ()

    def prepare(self, state: PyTree, context: Context) -> PyTree:
        """What the methods below share, computed once per update; they find it in `context.prepared`."""
        return None

    def reward(self, state: PyTree, context: Context) -> Array | float:
        """An intrinsic reward, (T, B), added to the environment's."""
        return 0.0

    def target(self, state: PyTree, context: Context, next_value: Array) -> Array | float:
        """A bonus on the TD target, (T, B), given the bootstrap value of the next states."""
        return 0.0

    def loss(self, state: PyTree, context: Context, q_tot: Array) -> Array | float:
        """A differentiable extra loss (this device's share of a mean) on the learner's own parameters."""
        return 0.0

    def update(self, state: PyTree, context: Context, renew_target: Array) -> tuple[PyTree, dict[str, Array]]:
        """Train what the term owns. `renew_target` is true on updates that copy the target network.

        Gradients and metrics are this device's shares: sum them over `DATA` before they are used.
        """
        return state, {}
