"""The didactic gridworld of EMC (Zheng et al., 2021): two agents in two halves of a room must arrive together.

Both on their goals in the same step: +10, won. Only one of them: -penalty, and the episode goes on. Random exploration
meets the joint arrival rarely, and the penalty makes "stay away" a strong local optimum.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.spec import EnvSpec, Sketch
from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome

Sight = Literal["origin", "reversed", "full_observation", "pomdp"]
SIGHTS = ("origin", "reversed", "full_observation", "pomdp")

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]], dtype=np.int32)  # up, down, left, right, stay
STAY = 4
GOAL_REWARD = 10.0


class GridState(NamedTuple):
    position: Array  # (2, 2) int32: row and column of each agent
    time: Array  # () int32
    noise: Array  # (2, noise_dim) float32


@dataclasses.dataclass(frozen=True)
class GridWorld:
    """Observation: one-hot row and column of oneself, then of the other agent (zeros while unseen), then noise.

    | | shape | values |
    |---|---|---|
    | observation | (2, 2·(rows+columns) + noise_dim) | 0, 1, and Gaussian noise if asked for |
    | state | (2 · observation,) | both observations, one after the other |
    | action | (2,) | up, down, left, right, stay; moves into a wall or over the middle line are unavailable |
    | reward | scalar | +10 both on goal, -penalty exactly one on goal, else 0 |
    | end | | terminated when won; at `limit` truncated (or terminated, with `timeout="terminated"`) |

    Who sees whom (`sight`), given the light room in the middle: `origin`: an agent inside sees the other; `reversed`:
    an agent sees the other while the other is inside; `full_observation`: always; `pomdp`: while both are inside.
    """

    rows: int = 11
    columns: int = 12
    limit: int = 30
    penalty: float = 2.0
    sight: Sight = "reversed"
    timeout: Literal["truncated", "terminated"] = "truncated"
    slip: float = 0.0  # probability that an agent's move is replaced by a random available one
    noise_dim: int = 0  # Gaussian numbers appended to every observation
    reward_noise: float = 0.0  # standard deviation of the noise added per agent standing in the top rows
    noisy_rows: int = 2

    def __post_init__(self) -> None:
        if self.sight not in SIGHTS:
            raise EnvError(f"gridworld has no sight '{self.sight}'. {did_you_mean(self.sight, SIGHTS)}")
        if self.timeout not in ("truncated", "terminated"):
            raise EnvError(f"gridworld's timeout is 'truncated' or 'terminated', not '{self.timeout}'.")
        if self.rows < 3 or self.columns < 4 or self.columns % 2:
            raise EnvError("gridworld needs at least 3 rows and an even number of columns, at least 4.")
        if self.limit < 1 or self.penalty < 0 or not 0 <= self.slip <= 1 or self.noise_dim < 0 or self.reward_noise < 0:
            raise EnvError(
                "gridworld needs limit >= 1, penalty >= 0, 0 <= slip <= 1, noise_dim >= 0, reward_noise >= 0."
            )

    @property
    def spec(self) -> EnvSpec:
        obs_dim = 2 * (self.rows + self.columns) + self.noise_dim
        return EnvSpec(
            name="gridworld",
            version="1",
            n_agents=2,
            n_actions=5,
            obs_dim=obs_dim,
            state_dim=2 * obs_dim,
            episode_limit=self.limit,
            unit_dim=obs_dim,
            has_goal=True,
            return_range=self._return_range,
        )

    @property
    def _return_range(self) -> tuple[float, float]:
        if self.reward_noise:
            return -np.inf, np.inf
        return -self.penalty * (self.limit - 1), GOAL_REWARD  # nobody starts on a goal

    @property
    def starts(self) -> np.ndarray:
        return np.array([[0, 0], [self.rows - 1, self.columns - 1]], dtype=np.int32)

    @property
    def goals(self) -> np.ndarray:
        centre = self.columns // 2
        return np.array([[self.rows // 2, centre - 1], [self.rows // 2, centre]], dtype=np.int32)

    @property
    def light_room(self) -> tuple[int, int, int, int]:
        """First and last row, first and last column."""
        row, column = self.rows // 2, self.columns // 2
        return row - 2, row + 2, column - 3, column + 2

    def reset(self, key: Array) -> GridState:
        return GridState(jnp.asarray(self.starts), jnp.int32(0), self._noise(key))

    def step(self, state: GridState, action: Array, key: Array) -> tuple[GridState, Outcome]:
        slip_key, noise_key, reward_key = jax.random.split(key, 3)
        if self.slip:
            action = self._slipped(state, action, slip_key)
        position = state.position + jnp.asarray(MOVES)[action]
        time = state.time + 1

        arrived = jnp.all(position == self.goals, axis=-1)
        won = jnp.all(arrived)
        alone = jnp.any(arrived) & ~won
        reward = GOAL_REWARD * won - self.penalty * alone
        if self.reward_noise:
            in_top = position[:, 0] < self.noisy_rows
            reward += self.reward_noise * jnp.sum(in_top * jax.random.normal(reward_key, (2,)))

        timed_out = (time >= self.limit) & ~won
        ends = self.timeout == "terminated"
        outcome = Outcome(reward.astype(jnp.float32), won | (timed_out & ends), timed_out & (not ends), won)
        return GridState(position, time, self._noise(noise_key)), outcome

    def observe(self, state: GridState) -> Array:
        own = jnp.concatenate(
            [
                jax.nn.one_hot(state.position[:, 0], self.rows),
                jax.nn.one_hot(state.position[:, 1], self.columns),
            ],
            axis=-1,
        )
        other = own[::-1] * self._sees_other(state.position)[:, None]
        return jnp.concatenate([own, other, state.noise], axis=-1)

    def avail(self, state: GridState) -> Array:
        target = state.position[:, None] + MOVES  # (2, 5, 2)
        first_column = np.array([0, self.columns // 2])[:, None]
        row_ok = (target[..., 0] >= 0) & (target[..., 0] < self.rows)
        column_ok = (target[..., 1] >= first_column) & (target[..., 1] < first_column + self.columns // 2)
        return row_ok & column_ok

    def state(self, state: GridState) -> Array:
        return self.observe(state).reshape(-1)

    def _sees_other(self, position: Array) -> Array:
        """Whether each agent sees the other one, (2,) float32."""
        top, bottom, left, right = self.light_room
        row, column = position[:, 0], position[:, 1]
        inside = (row >= top) & (row <= bottom) & (column >= left) & (column <= right)
        sees = {
            "origin": inside,
            "reversed": inside[::-1],
            "full_observation": jnp.ones(2, bool),
            "pomdp": jnp.broadcast_to(inside.all(), (2,)),
        }[self.sight]
        return sees.astype(jnp.float32)

    def _slipped(self, state: GridState, action: Array, key: Array) -> Array:
        when_key, where_key = jax.random.split(key)
        logits = jnp.where(self.avail(state), 0.0, -jnp.inf)
        anywhere = jax.random.categorical(where_key, logits)
        return jnp.where(jax.random.bernoulli(when_key, self.slip, (2,)), anywhere, action)

    def _noise(self, key: Array) -> Array:
        if not self.noise_dim:
            return jnp.zeros((2, 0), jnp.float32)
        return jax.random.normal(key, (2, self.noise_dim))

    def draw(self, state: GridState) -> Any:
        from emu.envs.draw import draw_grid

        return draw_grid(self, np.asarray(state.position), int(state.time))

    def sketch(self, states: np.ndarray) -> Sketch:
        from emu.envs.draw import sketch_grid

        return sketch_grid(self, states)
