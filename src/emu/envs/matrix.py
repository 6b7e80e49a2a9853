"""One-step payoff games: all agents act once and share the entry of the payoff table that they picked.

They separate the mixers: VDN represents only additive tables, QMIX only monotonic ones, QPLEX every table.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from emu.envs.spec import EnvSpec
from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome

GAMES: dict[str, Any] = {
    # every agent's own share adds up: VDN and QMIX can represent it
    "coordination": [[8.0, 5.0, 2.0], [5.0, 2.0, -1.0], [2.0, -1.0, -4.0]],
    # a product of shares: monotonic, not additive
    "monotonic": [[9.0, 3.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
    # the game of the QTRAN and QPLEX papers: a monotonic mixer settles for 0
    "nonmonotonic": [[8.0, -12.0, -12.0], [-12.0, 0.0, 0.0], [-12.0, 0.0, 0.0]],
    # the climbing game (Claus and Boutilier, 1998)
    "climbing": [[11.0, -30.0, 0.0], [-30.0, 7.0, 6.0], [0.0, 0.0, 5.0]],
}


class MatrixState(NamedTuple):
    action: Array  # (N,) int32: the joint action taken, -1 before the move


@dataclasses.dataclass(frozen=True)
class MatrixGame:
    """Observation (N, 1) and state (N,) are constant ones; one step, always terminated; won on the highest payoff."""

    payoff: Any = dataclasses.field(default_factory=lambda: GAMES["nonmonotonic"])  # nested lists: an axis per agent

    def __post_init__(self) -> None:
        try:
            table = np.asarray(self.payoff, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise EnvError(f"A payoff table is a rectangular table of numbers: {error}.") from error
        if table.ndim < 1 or len(set(table.shape)) != 1 or table.shape[0] < 2:
            raise EnvError(
                f"A payoff table needs one axis per agent, all of the same length (at least 2); got {table.shape}."
            )
        if not np.isfinite(table).all():
            raise EnvError("A payoff table must be finite.")
        if table.min() == table.max():
            raise EnvError("The payoffs must differ: with only one value there is nothing to learn.")
        object.__setattr__(self, "payoff", tuple(table.ravel().tolist()))  # hashable, whatever was given
        object.__setattr__(self, "shape", table.shape)

    shape: tuple[int, ...] = dataclasses.field(init=False, default=())

    @property
    def table(self) -> np.ndarray:
        return np.array(self.payoff, dtype=np.float32).reshape(self.shape)

    @property
    def spec(self) -> EnvSpec:
        n_agents = len(self.shape)
        return EnvSpec(
            name="matrix",
            version="1",
            n_agents=n_agents,
            n_actions=self.shape[0],
            obs_dim=1,
            state_dim=n_agents,
            episode_limit=1,
            unit_dim=1,
            has_goal=True,
            return_range=(float(self.table.min()), float(self.table.max())),
        )

    def reset(self, key: Array) -> MatrixState:
        return MatrixState(jnp.full(len(self.shape), -1, jnp.int32))

    def step(self, state: MatrixState, action: Array, key: Array) -> tuple[MatrixState, Outcome]:
        table = jnp.asarray(self.table)
        reward = table[tuple(action)]
        true = jnp.ones((), bool)
        return MatrixState(action.astype(jnp.int32)), Outcome(reward, true, ~true, reward >= table.max())

    def observe(self, state: MatrixState) -> Array:
        return jnp.ones((len(self.shape), 1), jnp.float32)

    def avail(self, state: MatrixState) -> Array:
        return jnp.ones((len(self.shape), self.shape[0]), bool)

    def state(self, state: MatrixState) -> Array:
        return jnp.ones(len(self.shape), jnp.float32)

    def draw(self, state: MatrixState) -> Any:
        from emu.envs.draw import draw_payoff

        if len(self.shape) != 2:
            raise EnvError("Only payoff tables of two agents can be drawn.")
        return draw_payoff(self.table, np.asarray(state.action))


def named(game: str = "nonmonotonic", payoff: Any = None) -> MatrixGame:
    """A game by name, or with a payoff table of one's own."""
    if game not in GAMES:
        raise EnvError(f"No matrix game is called '{game}'. {did_you_mean(game, GAMES)}")
    return MatrixGame(GAMES[game] if payoff is None else payoff)
