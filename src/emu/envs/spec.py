"""What is said of an environment and what it shows: its specification, a view between two steps, sketches of states."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a learner must know of an environment before the first step.

    Required: `name`, `version`, `n_agents`, `n_actions`, `obs_dim`, `state_dim`, `episode_limit`. Everything else has a
    default; say `has_goal=True` if episodes can be won.
    """

    name: str
    version: str  # change it whenever the dynamics, rewards or features change: results are not comparable across
    n_agents: int
    n_actions: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    unit_dim: int = -1  # agent i's own features are state[i * unit_dim : (i + 1) * unit_dim]; -1: an equal share each
    has_goal: bool = False  # whether `won` means anything; without a goal, desirability comes from the return
    return_range: tuple[float, float] = (-math.inf, math.inf)  # smallest and largest undiscounted return possible
    action_dim: int = 0  # continuous actions: this many numbers in [-1, 1], and n_actions is 1; 0: discrete actions
    state_is_obs: bool = False  # the state is the observation of the only agent: nobody needs to keep it twice
    obs_type: str = "float32"  # how observations are kept; pictures as uint8
    state_type: str = "float32"  # how states are kept; features as float16
    picture: tuple[int, int] | None = None  # observations are grey pictures, 0 ... 255, of this height and width
    stack: int = 1  # a learner of single steps sees so many observations, the oldest first; zeros before the first
    own_rewards: bool = False  # a reward for each agent, (N,); a return is the sum of all. Python environments only

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.generic):  # sizes are often computed with NumPy
                object.__setattr__(self, field.name, value.item())
        sized = isinstance(self.n_agents, int) and isinstance(self.state_dim, int)  # if not, the checker says so
        if self.unit_dim == -1 and sized and self.n_agents > 0:
            object.__setattr__(self, "unit_dim", self.state_dim // self.n_agents)

    @property
    def step_fields(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and type of what one step holds, by the names that `Episode` gives them."""
        n = self.n_agents
        return {
            "obs": ((n, self.obs_dim), self.obs_type),
            "state": ((self.state_dim,), self.state_type),
            "avail": ((n, self.n_actions), np.bool_),
            "action": ((n, self.action_dim), np.float32) if self.action_dim else ((n,), np.int32),
            "reward": ((n,) if self.own_rewards else (), np.float32),
            "terminated": ((), np.bool_),
            "truncated": ((), np.bool_),
        }

    @property
    def step_bytes(self) -> int:
        """Bytes that one step takes, as long as nothing is left out."""
        return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in self.step_fields.values())


class View(NamedTuple):
    """What there is to see of a Python environment between two steps."""

    obs: np.ndarray  # (N, O) float32
    state: np.ndarray  # (S,) float32
    avail: np.ndarray  # (N, A) bool: at least one action for every agent, at the end of an episode too


class Sketch(NamedTuple):
    """Many states as figures on one scene, compact enough to send thousands of them to a browser.

    The scene is JSON: `width` and `height` in units of its own (x to the right, y down), `background`, `shapes` drawn
    behind (`polygon`, `box` or `line` with `fill`, `stroke`, `thickness`), and what each of the F `figures` looks like
    (`corners`, `turn`, `size`, `fill`, `stroke`, `letter`, `rings`: whether life and shield are drawn). With `closest`,
    only the part where the figures are is shown, at least so wide.
    """

    scene: dict[str, Any]
    figures: np.ndarray  # (n, F, 4) float32: x, y, life and shield in [0, 1]; life 0: not there
