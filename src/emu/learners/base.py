"""What the loop asks of an algorithm.

A learner is pure: its whole state is one pytree. The loop calls `act` inside the compiled rollout and `update` between
rollouts; it never looks inside. A new learner is a class derived from `Learner`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax

from emu.config import Config
from emu.config.build import settings_of
from emu.devices import Devices
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.terms.base import Context, Term, Terms
from emu.registry import NoSettings
from emu.types import Array, Batch, PyTree


class Learner(abc.ABC):
    """An algorithm as the loop sees it. One from outside derives from this class and overrides what is abstract."""

    on_policy: ClassVar[bool] = False  # learn once from the newest episodes; else from samples of the replay
    teams: ClassVar[bool] = True  # false: for one agent only
    actions: ClassVar[Literal["discrete", "continuous"]] = "discrete"
    context: ClassVar[type[Context] | None] = None  # what its terms may read; None: it has no terms
    Settings: ClassVar[type] = NoSettings

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        self.require_fit(config, spec, terms)
        self.config, self.spec = config.learner, spec
        self.settings = settings_of(type(self), config.learner.settings, "learner.settings")
        self.terms = Terms(terms)
        self.shards = devices.sharding_for(config.learner.batch_size)
        self.update = self.shards.compiled_update(self._updates)  # (state, batches, recall, step) -> state, metrics

    @classmethod
    def require_fit(cls, config: Config, spec: EnvSpec, terms: Sequence[Term]) -> None:
        """Refuse an environment or terms that this learner cannot deal with."""
        found = "continuous" if spec.action_dim else "discrete"
        if found != cls.actions or (spec.n_agents > 1 and not cls.teams):
            raise ConfigError(
                f"{config.algo} (learner.kind {config.learner.kind}) is for {'teams' if cls.teams else 'one agent'} "
                f"with {cls.actions} actions; '{spec.name}' has {spec.n_agents} with {found} ones. "
                "`emu algos` lists what else there is."
            )
        if cls.on_policy and config.replay.unit != "episodes":
            raise ConfigError(f"{config.algo} learns from whole episodes: leave replay.unit at episodes.")
        if spec.own_rewards and (terms or not cls.learns_independently(config)):
            raise ConfigError(
                f"'{spec.name}' keeps the agents' own rewards, which only agents that learn by themselves can use: iql "
                f'and ippo, without a memory or other terms. For {config.algo} leave team_reward at "sum".'
            )
        unfit = [term.name for term in terms if cls.context is None or not issubclass(cls.context, term.context)]
        if unfit:
            raise ConfigError(f"{config.algo} has no use for these terms: switch off {', '.join(unfit)}.")

    @classmethod
    def learns_independently(cls, config: Config) -> bool:
        """Whether every agent has values of its own, so that it can learn from a reward of its own."""
        return False

    @property
    def needs_memory(self) -> bool:
        """Whether the run keeps an episodic memory, whose answers are then in `context.recall`."""
        return any(term.needs_memory for term in self.terms)

    @abc.abstractmethod
    def init(self, key: Array) -> PyTree:
        """Parameters, targets, optimiser states and counters, as one pytree."""

    @abc.abstractmethod
    def policy(self, state: PyTree) -> PyTree:
        """The part of the state that acting needs."""

    @abc.abstractmethod
    def initial_carry(self, copies: int) -> PyTree:
        """What acting remembers at the start of an episode; leading axis `copies`."""

    @abc.abstractmethod
    def act(
        self, policy: PyTree, carry: PyTree, obs: Array, avail: Array, explore: Array, key: Array
    ) -> tuple[Array, PyTree]:
        """Joint actions (E, N) for observations (E, N, O) and availability (E, N, A).

        `explore`, a scalar in [0, 1], is the amount of exploration: with 0 the actions are greedy, with 1 the learner
        explores as much as it ever does. How is its own affair, and said at its `act`.
        """

    def log_prob(self, carry: PyTree) -> Array | None:
        """Log-probabilities (E, N) of the actions that `act` returned with this carry, to be kept with the episode.

        None unless the learner is on policy: nobody else asks for them.
        """
        return None

    @abc.abstractmethod
    def learn(self, state: PyTree, context: Context) -> tuple[PyTree, dict[str, Array]]:
        """One update from one batch, and what to log of it.

        Runs inside one compiled program, on each device's share of the batch: gradients and metrics are shares, to be
        summed with `sum_over_devices`.
        """

    def _updates(self, state: PyTree, batches: Batch, recall: Any, step: Array) -> tuple[PyTree, dict[str, Array]]:
        """One update per leading entry of `batches`; the metrics keep that leading axis."""

        def body(state, inputs):
            batch, known = inputs
            return self.learn(state, Context.of(batch, known, step))

        return jax.lax.scan(body, state, (batches, recall))
