"""The three races of SMACv2: their unit types, how often each is drawn, how far each sees and may order an attack.

`types` is in the order of the one-hot bits; the agents are numbered by the game's order of allied types instead.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from emu.envs.smac.units import UNITS, UnitType

SIGHT = {
    "marine": 9, "marauder": 10, "medivac": 11,
    "stalker": 10, "zealot": 9, "colossus": 10,
    "hydralisk": 9, "zergling": 8, "baneling": 8,
}  # fmt: skip

# SMACv2's own table of what its Python code calls range; the simulator's weapons follow the game's data instead.
REACH = {
    "marine": 5, "marauder": 6, "medivac": 4,
    "stalker": 6, "zealot": 0.1, "colossus": 7,
    "hydralisk": 5, "zergling": 0.1, "baneling": 0.25,
}  # fmt: skip

PLAIN_SIGHT, PLAIN_REACH = 9, 6  # for every type, where use_unit_ranges is off


@dataclasses.dataclass(frozen=True)
class Race:
    """A race and the settings that its published configuration gives it."""

    name: str
    types: tuple[str, ...]
    weights: tuple[float, ...]
    exceptions: tuple[str, ...]  # a team may not consist of these alone
    shields: bool = False

    @property
    def units(self) -> tuple[UnitType, ...]:
        return tuple(UNITS[name] for name in self.types)

    @property
    def heals(self) -> bool:
        return any(unit.heal for unit in self.units)

    @functools.cached_property
    def health(self) -> np.ndarray:
        """Life and shield of a fresh unit of each type."""
        return np.array([unit.life + unit.shield for unit in self.units], np.float32)

    @functools.cached_property
    def rank(self) -> np.ndarray:
        """Place of each type in the agents' numbering, which is alphabetical."""
        return np.argsort(np.argsort(np.array(self.types))).astype(np.int32)

    def sight(self, use_unit_ranges: bool) -> np.ndarray:
        return self._by_type(SIGHT if use_unit_ranges else dict.fromkeys(SIGHT, PLAIN_SIGHT))

    def reach(self, use_unit_ranges: bool, least: float) -> np.ndarray:
        """Centre distance up to which a unit of each type may be told to attack (or heal)."""
        if not use_unit_ranges:
            return self._by_type(dict.fromkeys(REACH, PLAIN_REACH))
        return np.maximum(self._by_type(REACH), np.float32(least))

    def _by_type(self, table: Mapping[str, float]) -> np.ndarray:
        return np.array([table[name] for name in self.types], np.float32)


_WEIGHTS = (0.45, 0.45, 0.1)

RACES = {
    race.name: race
    for race in (
        Race("terran", ("marine", "marauder", "medivac"), _WEIGHTS, ("medivac",)),
        Race("protoss", ("stalker", "zealot", "colossus"), _WEIGHTS, (), shields=True),
        Race("zerg", ("zergling", "hydralisk", "baneling"), _WEIGHTS, ("baneling",)),
    )
}
