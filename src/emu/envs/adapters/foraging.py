"""Level-based foraging, the package `lbforaging`: agents load food whose level is at most the sum of theirs.

    emu train --algo qmix --env lbf:Foraging-8x8-2p-3f-v3

There is no goal that is reached or not: teams are compared by their return. Rewards are divided so that an episode in
which everything was loaded gives the team 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from emu.envs.adapters.draw_cells import Scene, draw_scene, foraging_scene
from emu.envs.adapters.gymnasium_team import GymnasiumTeam, require_package
from emu.envs.spec import View


class ForagingEnv(GymnasiumTeam):
    prefix = "lbf"

    def __init__(self, target: str, /, **args: Any) -> None:
        require_package("lbforaging", self.prefix, target)
        super().__init__(target, **args)
        if "return_range" not in args:
            self.spec = dataclasses.replace(self.spec, return_range=self._return_range())

    def reset(self, seed: int) -> View:
        """The package keeps the places where players stood last free of others, so that a seed would not say all."""
        for player in self.env.unwrapped.players:
            player.position = None
        return super().reset(seed)

    def snapshot(self) -> Scene:
        return foraging_scene(self.env.unwrapped, f"step {self.time}   return {self.total:.2f}")

    def draw(self, state: Scene) -> np.ndarray:
        return draw_scene(state)

    def _return_range(self) -> tuple[float, float]:
        """From a penalty for every agent in every step to all food loaded."""
        settings = self.env.spec.kwargs
        share = 1 / self.spec.n_agents if self.team_reward == "mean" else 1.0
        worst = settings.get("penalty", 0.0) * self.spec.n_agents * self.spec.episode_limit
        return -worst * share, share if settings.get("normalize_reward", True) else np.inf
