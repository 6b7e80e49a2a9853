"""The twenty-three maps of SMAC as declarations: who stands where, against whom, on what ground, for how long.

A map of your own is one `MapSpec`; `SmacEnv(map=my_map)` plays it. Units of a group are packed around its point.
"""

from __future__ import annotations

import dataclasses

from emu.envs.smac import terrain as ground
from emu.envs.smac.terrain import Terrain

Point = tuple[float, float]
WEST: Point = (9.0, 16.0)
EAST: Point = (23.0, 16.0)
FAR_CORNER: Point = (4.47, 4.33)
NORTH_EAST: Point = (27.91, 28.24)


@dataclasses.dataclass(frozen=True)
class Group:
    """Units created around one point, in this order: ((type, count), ...)."""

    point: Point
    units: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class MapSpec:
    """One battle.

    `attack` is where enemies attack-move to; "unit": they hunt ally 0; "nearest": each hunts its nearest ally, as in
    SMACv2; None: they stay.
    """

    name: str
    allies: tuple[Group, ...]
    enemies: tuple[Group, ...]
    limit: int
    terrain: Terrain = ground.STRIP
    attack: Point | str | None = WEST
    attack_to: Point | None = None  # the enemies' point is drawn between `attack` and this one, for every battle
    healers_do_not_count: bool = False  # a side of healers only has lost

    @property
    def counts(self) -> tuple[int, int]:
        return _count(self.allies), _count(self.enemies)


def _count(groups: tuple[Group, ...]) -> int:
    return sum(count for group in groups for _, count in group.units)


def _facing(name: str, allies: dict[str, int], enemies: dict[str, int], limit: int, **rest) -> MapSpec:
    """The standard layout: two groups facing each other along a strip."""
    west, east = Group(WEST, tuple(allies.items())), Group(EAST, tuple(enemies.items()))
    return MapSpec(name, (west,), (east,), limit, **rest)


def _mmm(name: str, limit: int, marauders: int, marines: int) -> MapSpec:
    allies = {"marauder": 2, "marine": 7, "medivac": 1}
    enemies = {"marauder": marauders, "marine": marines, "medivac": 1}
    return _facing(name, allies, enemies, limit, healers_do_not_count=True)


def _group(point: Point, unit: str, count: int) -> Group:
    return Group(point, ((unit, count),))


MAPS: dict[str, MapSpec] = {
    spec.name: spec
    for spec in (
        _facing("3m", {"marine": 3}, {"marine": 3}, 60),
        _facing("8m", {"marine": 8}, {"marine": 8}, 120),
        _facing("25m", {"marine": 25}, {"marine": 25}, 150),
        _facing("5m_vs_6m", {"marine": 5}, {"marine": 6}, 70),
        _facing("10m_vs_11m", {"marine": 10}, {"marine": 11}, 150),
        _facing("27m_vs_30m", {"marine": 27}, {"marine": 30}, 180),
        _facing("2s3z", {"stalker": 2, "zealot": 3}, {"stalker": 2, "zealot": 3}, 120),
        _facing("3s5z", {"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 5}, 150),
        _facing("3s5z_vs_3s6z", {"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 6}, 170),
        _facing(
            "1c3s5z", {"colossus": 1, "stalker": 3, "zealot": 5}, {"colossus": 1, "stalker": 3, "zealot": 5}, 180
        ),
        _facing("3s_vs_5z", {"stalker": 3}, {"zealot": 5}, 250, terrain=ground.OPEN),
        _facing("8m_vs_9m", {"marine": 8}, {"marine": 9}, 120),
        _facing("3s_vs_3z", {"stalker": 3}, {"zealot": 3}, 150, terrain=ground.OPEN),
        _facing("3s_vs_4z", {"stalker": 3}, {"zealot": 4}, 200, terrain=ground.OPEN),
        _mmm("MMM", 150, 2, 7),
        _mmm("MMM2", 180, 3, 8),
        MapSpec(
            "6h_vs_8z", (_group((14.60, 9.49), "hydralisk", 6),), (_group((14.41, 16.76), "zealot", 8),), 150,
            terrain=ground.HYDRA_PIT, attack=(14.60, 9.49),
        ),
        MapSpec(
            "corridor", (_group((19.04, 19.12), "zealot", 6),), (_group(NORTH_EAST, "zergling", 24),), 400,
            terrain=ground.CORRIDOR, attack=FAR_CORNER,
        ),
        MapSpec(
            "so_many_baneling", (_group((11.47, 12.02), "zealot", 7),), (_group(NORTH_EAST, "baneling", 32),), 100,
            terrain=ground.DIAGONAL_BAND, attack=FAR_CORNER,
        ),
        MapSpec(
            "bane_vs_bane",
            (_group((16, 11), "zergling", 20), _group((16, 8), "baneling", 4)),
            (_group((16, 21), "zergling", 20), _group((16, 24), "baneling", 4)),
            200, terrain=ground.BANE_PIT, attack=(16.0, 8.0),
        ),
        MapSpec(
            "2m_vs_1z", (_group((13, 12), "marine", 1), _group((19, 12), "marine", 1)),
            (_group((16, 19), "zealot", 1),), 150, terrain=ground.BANE_PIT, attack=(13.0, 12.0), attack_to=(19.0, 12.0),
        ),
        MapSpec(
            "2s_vs_1sc", (_group((11.12, 10.34), "stalker", 1), _group((16.98, 10.37), "stalker", 1)),
            (_group((13.92, 20.04), "spine_crawler", 1),), 300, terrain=ground.HOUSE, attack=None,
        ),
        MapSpec(
            "2c_vs_64zg", (_group((16, 16), "colossus", 2),), (_group((16, 9), "zergling", 64),), 400,
            terrain=ground.PLATEAU, attack="unit",
        ),
    )
}  # fmt: skip
