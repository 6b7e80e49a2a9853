"""Unit data of the game version SMAC's maps use (Wings-of-Liberty base data, not Legacy of the Void).

Times are in seconds of "normal" speed, 16 game loops each; distances in map cells. Allied copies of a unit differ only
in that they never act on their own. The simulator converts to loops in `roster.py`.
"""

from __future__ import annotations

import dataclasses

LOOPS_PER_SECOND = 16
LOOPS_PER_STEP = 8


@dataclasses.dataclass(frozen=True)
class Weapon:
    """An attack: when its hits land and what they do. `range` is from edge to edge."""

    damage: float
    range: float
    period: float
    windup: float = 0.0  # from starting the attack to the hit or the launch, standing still
    backswing: float = 0.5  # standing still after it, while the target is in range and slop and no order comes
    slop: float = 1.0  # how much further the target may step while the attack is under way
    bonus: float = 0.0
    bonus_against: str = ""
    hits_at_once: int = 1
    hits_delayed: int = 0
    delay: float = 0.0  # of the delayed hits; a missile's flight instead where `missile_speed` is set
    missile_speed: float = 0.0
    channeled: bool = False  # delayed hits are lost when the attacker dies
    air: bool = False
    bar: tuple[float, float] = (0.0, 0.0)  # half length and half width of a bar across the shot, hit as a whole
    blast: float = 0.0  # radius around the attacker, which dies of it


@dataclasses.dataclass(frozen=True)
class Heal:
    """A healer's beam: single target, paid from energy."""

    range: float = 4.0
    search: float = 6.0
    rate: float = 9.0
    energy_per_life: float = 0.33
    energy_start: float = 50.0
    energy_max: float = 200.0
    energy_rate: float = 0.5625
    energy_to_begin: float = 5.0


@dataclasses.dataclass(frozen=True)
class UnitType:
    """One kind of unit. `order` is its rank in the allies' list, `game_id` its rank in the enemies'."""

    name: str
    life: float
    speed: float
    radius: float
    separation: float
    game_id: int
    order: int
    cooldown_divisor: float  # SMAC's own table, used verbatim in the state (two entries are swapped there)
    shield: float = 0.0
    armor: float = 0.0
    weapon: Weapon | None = None
    heal: Heal | None = None
    attributes: tuple[str, ...] = ()
    layer: str = "ground"  # "tall" units walk over cliffs and ground units; "air" units fly
    acceleration: float = 0.0  # 0: instant
    regeneration: float = 0.0
    building: bool = False
    letter: str = "?"


ZERG_REGENERATION = 0.2734
SHIELD_DELAY = 10.0
SHIELD_RATE = 2.0
SCAN_RANGE = 6.0

UNITS: dict[str, UnitType] = {
    unit.name: unit
    for unit in (
        UnitType(
            "marine", 45, 2.25, 0.375, 0.375, 48, 2, 15, letter="M", attributes=("light", "biological"),
            weapon=Weapon(6, 5, 0.8608, windup=0.05, backswing=0.75, air=True),
        ),
        UnitType(
            "marauder", 125, 2.25, 0.5625, 0.5, 51, 1, 25, armor=1, letter="R", attributes=("armored", "biological"),
            weapon=Weapon(10, 6, 1.5, backswing=0, bonus=10, bonus_against="armored",
                          hits_at_once=0, hits_delayed=1, missile_speed=20),
        ),
        UnitType(
            "medivac", 150, 2.75, 0.75, 0.75, 54, 3, 200, armor=1, letter="+", attributes=("armored", "mechanical"),
            layer="air", acceleration=2.3125, heal=Heal(),
        ),
        UnitType(
            "stalker", 80, 2.9531, 0.625, 0.625, 74, 2, 35, shield=80, armor=1, letter="S",
            attributes=("armored", "mechanical"),
            weapon=Weapon(10, 6, 1.44, windup=0.167, bonus=4, bonus_against="armored", air=True,
                          hits_at_once=0, hits_delayed=1, missile_speed=18.75),
        ),
        UnitType(
            "zealot", 100, 2.25, 0.5, 0.375, 73, 3, 22, shield=50, armor=1, letter="Z",
            attributes=("light", "biological"),
            weapon=Weapon(8, 0.1, 1.2, hits_delayed=1, delay=0.28, channeled=True),
        ),
        UnitType(
            "colossus", 200, 2.25, 1.0, 0.75, 4, 1, 24, shield=150, armor=1, letter="C", layer="tall",
            attributes=("armored", "mechanical", "massive"),
            weapon=Weapon(20, 6, 2.2, windup=0.083, slop=0, hits_at_once=0, hits_delayed=2, delay=0.3125,
                          channeled=True, bar=(1.25, 0.15)),
        ),
        UnitType(
            "hydralisk", 80, 2.25, 0.625, 0.5, 107, 1, 10, regeneration=ZERG_REGENERATION, letter="H",
            attributes=("light", "biological"),
            weapon=Weapon(12, 5, 0.83, windup=0.208, hits_at_once=0, hits_delayed=1, missile_speed=40, air=True),
        ),
        UnitType(
            "zergling", 35, 2.9531, 0.375, 0.375, 105, 2, 11, regeneration=ZERG_REGENERATION, letter="z",
            attributes=("light", "biological"), weapon=Weapon(5, 0.1, 0.696, windup=0.167),
        ),
        UnitType(
            "baneling", 30, 2.5, 0.375, 0.375, 9, 1, 1, regeneration=ZERG_REGENERATION, letter="B",
            attributes=("biological",), weapon=Weapon(20, 0.25, 0.8332, bonus=15, bonus_against="light", blast=2.2),
        ),
        UnitType(
            "spine_crawler", 300, 0.0, 0.875, 0.875, 98, 1, 15, armor=2, regeneration=ZERG_REGENERATION, letter="Y",
            attributes=("armored", "biological", "structure"), building=True,
            weapon=Weapon(25, 7, 1.6, windup=0.331, slop=0, bonus=5, bonus_against="armored"),
        ),
    )
}  # fmt: skip
