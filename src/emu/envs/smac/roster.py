"""Everything about a map that never changes, as small NumPy tables: unit figures in loops, pair figures, spawn points.

Units are numbered allies first. Per-unit tables have shape (N, 1), pair tables (N, N, 1): the last axis is where the
simulator keeps its environments, so that every operation runs along them.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from emu.envs.smac.maps import Group, MapSpec
from emu.envs.smac.terrain import Terrain
from emu.envs.smac.units import LOOPS_PER_SECOND, SCAN_RANGE, UNITS, UnitType, Weapon, can_hit, damage_per_hit

LAYERS = ("ground", "tall", "air")
GAP = 0.02  # between units packed around a spawn point


@dataclasses.dataclass(frozen=True, eq=False)
class Roster:
    """The static tables of one map."""

    spec: MapSpec
    units: tuple[UnitType, ...]
    n_allies: int
    spawn: np.ndarray  # (N, 2)
    life: np.ndarray  # and so on: (N, 1) float32
    shield: np.ndarray
    armor: np.ndarray
    speed: np.ndarray
    radius: np.ndarray
    separation: np.ndarray
    acceleration: np.ndarray
    regeneration: np.ndarray
    period: np.ndarray
    windup: np.ndarray
    backswing: np.ndarray
    slop: np.ndarray
    hits_at_once: np.ndarray
    hits_delayed: np.ndarray
    delay: np.ndarray
    missile_speed: np.ndarray
    channeled: np.ndarray
    flying: np.ndarray  # (N, 1) bool
    cliff_bound: np.ndarray  # (N, 1) bool: on the ground layer
    building: np.ndarray
    healer: np.ndarray
    reach: np.ndarray  # (N, N, 1) centre distance from which row may fire at column; negative if it cannot
    scan: np.ndarray  # (N, N, 1) centre distance within which row notices column
    damage: np.ndarray  # (N, N, 1) one hit of row on column, before shields and armour
    collides: np.ndarray  # (N, N) bool: same layer, not itself
    friends: np.ndarray  # (N, N) bool
    bars: tuple[int, ...]  # units whose shot hits a bar
    blasts: tuple[int, ...]  # units that explode
    healers: tuple[int, ...]

    @property
    def n(self) -> int:
        return len(self.units)

    @property
    def n_enemies(self) -> int:
        return self.n - self.n_allies

    @property
    def ally(self) -> slice:
        return slice(0, self.n_allies)

    @property
    def enemy(self) -> slice:
        return slice(self.n_allies, self.n)

    @property
    def terrain(self) -> Terrain:
        return self.spec.terrain


@functools.cache
def roster(spec: MapSpec) -> Roster:
    """Build the tables of a map."""
    allies = _line_up(spec.allies, spec.terrain, sign=1.0, by="order")
    enemies = _line_up(spec.enemies, spec.terrain, sign=-1.0, by="game_id")
    placed = allies + enemies
    units = tuple(unit for unit, _ in placed)
    weapons = [unit.weapon or Weapon(0, 0, 1) for unit in units]
    n, loops = len(units), LOOPS_PER_SECOND

    def column(values) -> np.ndarray:
        return np.asarray(list(values), np.float32)[:, None]

    def flags(values) -> np.ndarray:
        return np.asarray(list(values), bool)[:, None]

    radius = column(u.radius for u in units)
    both = radius + radius.T
    hits = np.array([[can_hit(a, b) for b in units] for a in units])
    weapon_range = column(w.range for w in weapons)
    team = np.arange(n) < len(allies)
    layer = np.array([LAYERS.index(u.layer) for u in units])
    return Roster(
        spec=spec,
        units=units,
        n_allies=len(allies),
        spawn=np.array([point for _, point in placed], np.float32),
        life=column(u.life for u in units),
        shield=column(u.shield for u in units),
        armor=column(u.armor for u in units),
        speed=column(u.speed / loops for u in units),
        radius=radius,
        separation=column(u.separation for u in units),
        acceleration=column(u.acceleration / loops**2 for u in units),
        regeneration=column(u.regeneration / loops for u in units),
        period=column(w.period * loops for w in weapons),
        windup=column(w.windup * loops for w in weapons),
        backswing=column(w.backswing * loops for w in weapons),
        slop=column(w.slop for w in weapons),
        hits_at_once=column(w.hits_at_once for w in weapons),
        hits_delayed=column(w.hits_delayed for w in weapons),
        delay=column(w.delay * loops for w in weapons),
        missile_speed=column(w.missile_speed / loops for w in weapons),
        channeled=flags(w.channeled for w in weapons),
        flying=flags(u.layer == "air" for u in units),
        cliff_bound=flags(u.layer == "ground" for u in units),
        building=flags(u.building for u in units),
        healer=flags(u.heal is not None for u in units),
        reach=np.where(hits, weapon_range + both, -1.0).astype(np.float32)[..., None],
        scan=np.where(hits, np.maximum(weapon_range, SCAN_RANGE) + both, -1.0).astype(np.float32)[..., None],
        damage=np.array([[damage_per_hit(a, b) for b in units] for a in units], np.float32)[..., None],
        collides=(layer[:, None] == layer[None]) & ~np.eye(n, dtype=bool),
        friends=team[:, None] == team[None],
        bars=tuple(i for i, w in enumerate(weapons) if w.bar[0] > 0),
        blasts=tuple(i for i, w in enumerate(weapons) if w.blast > 0),
        healers=tuple(i for i, u in enumerate(units) if u.heal is not None),
    )


def _line_up(
    groups: tuple[Group, ...], terrain: Terrain, sign: float, by: str
) -> list[tuple[UnitType, tuple[float, float]]]:
    """Place the units of one side and number them: by type, then x, then y, as SMAC does."""
    placed: list[tuple[UnitType, tuple[float, float]]] = []
    for group in groups:
        for name, count in group.units:
            for _ in range(count):
                unit = UNITS[name]
                placed.append((unit, _free_spot(unit, group.point, placed, terrain, sign)))
    return sorted(placed, key=lambda item: (getattr(item[0], by), item[0].name, *np.round(item[1], 4)))


def _free_spot(unit: UnitType, point, placed, terrain: Terrain, sign: float) -> tuple[float, float]:
    """The candidate nearest to the point where the unit touches neither another one nor a cliff.

    Both sides search the same spiral, one of them turned by half a circle, so that facing groups mirror each other.
    """
    for ring, angle in _spiral():
        x, y = point[0] + sign * ring * np.cos(angle), point[1] + sign * ring * np.sin(angle)
        on_ground = any(all(a * x + b * y <= c - unit.separation for a, b, c in p) for p in terrain.pieces)
        clear = all(
            (x - px) ** 2 + (y - py) ** 2 >= (unit.separation + other.separation + GAP) ** 2
            for other, (px, py) in placed
        )
        if on_ground and clear:
            return float(x), float(y)
    raise ValueError(f"No room for a {unit.name} around {point}: move the spawn point away from the cliffs.")


@functools.cache
def _spiral() -> tuple[tuple[float, float], ...]:
    rings = [(0.0, 0.0)]
    for k in range(1, 160):
        rings += [(0.05 * k, 2 * np.pi * i / 48) for i in range(48)]
    return tuple(rings)
