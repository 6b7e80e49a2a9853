"""A Python environment for EMU to start from: copy it, change it, and train on it.

    emu check my_environment:Lights                      from the folder that holds this file
    emu train --algo qmix --env my_environment:Lights --env-args '{"agents": 3}' --steps 20000

Each agent has a lamp of its own and sees only its neighbour's. All lamps lit together is the goal; switching costs.
"""

from __future__ import annotations

import numpy as np

from emu.envs import EnvSpec, PythonEnv, View
from emu.types import Outcome

LEAVE, SWITCH = 0, 1


class Lights(PythonEnv):
    def __init__(self, agents: int = 2, limit: int = 10) -> None:
        self.agents, self.limit = agents, limit
        self.spec = EnvSpec(
            name="lights",
            version="1",  # change it when results are no longer comparable
            n_agents=agents,
            n_actions=2,
            obs_dim=2,
            state_dim=agents + 1,
            episode_limit=limit,
            unit_dim=1,  # agent i's own features are state[i * unit_dim : (i + 1) * unit_dim]
            has_goal=True,  # `won` means something
            return_range=(-0.1 * agents * limit, 1.0),
        )

    def reset(self, seed: int) -> View:
        """Start an episode; everything random comes from the seed."""
        rng = np.random.default_rng(seed)
        self.lit, self.time = rng.random(self.agents) < 0.3, 0
        self.lit[rng.integers(self.agents)] = False  # never won before it begins
        return self.look()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        """One joint action, (N,) int32."""
        self.lit ^= action == SWITCH
        self.time += 1
        won = bool(self.lit.all())
        reward = float(won) - 0.1 * float((action == SWITCH).mean())
        truncated = self.time >= self.limit and not won  # the clock, not the task: never both
        return self.look(), Outcome(reward, terminated=won, truncated=truncated, won=won)

    def look(self) -> View:
        clock = self.time / self.limit
        obs = np.stack([np.roll(self.lit, 1), np.full(self.agents, clock)], axis=1)  # (N, O)
        state = np.append(self.lit, clock)  # (S,)
        avail = np.ones((self.agents, 2), bool)  # (N, A): at least one action each, at the end too
        return View(obs.astype(np.float32), state.astype(np.float32), avail)
