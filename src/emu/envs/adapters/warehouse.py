"""The multi-robot warehouse, the package `rware`: robots bring requested shelves to a goal, and put them back.

    emu train --algo ippo --env rware:rware-tiny-2ag-v2

There is no end but the clock, and no goal that is reached or not: teams are compared by their return, the number of
shelves delivered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.envs.adapters.draw_cells import Scene, draw_scene, warehouse_scene
from emu.envs.adapters.gymnasium_team import GymnasiumTeam, require_package


class WarehouseEnv(GymnasiumTeam):
    prefix = "rware"

    def __init__(self, target: str, /, **args: Any) -> None:
        require_package("rware", self.prefix, target)
        super().__init__(target, **{"return_range": (0.0, np.inf), **args})

    def snapshot(self) -> Scene:
        return warehouse_scene(self.env.unwrapped, f"step {self.time}   return {self.total:g}")

    def draw(self, state: Scene) -> np.ndarray:
        return draw_scene(state)
