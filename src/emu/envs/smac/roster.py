"""Who fights: unit figures in loops, figures of pairs, and for a map of SMAC the spawn points.

Units are numbered allies first. Where a map names its units, figures are NumPy constants, (N, 1) for a unit and
(N, N, 1) for a pair, which the compiler folds. Where the units of a battle are drawn, figures are arrays of the
compiled program, (N, E), and those of a pair are computed where they are used; what all types share stays a constant.
The last axis is where the simulator keeps its environments, so that every operation runs along them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from emu.envs.smac.maps import Group, MapSpec
from emu.envs.smac.terrain import Terrain
from emu.envs.smac.units import LOOPS_PER_SECOND, SCAN_RANGE, UNITS, Heal, UnitType, Weapon
from emu.types import Array

LAYERS = ("ground", "tall", "air")
GAP = 0.1  # between units packed around a spawn point
ROUNDING = 1e-6  # places that just touch are free wherever on the map they are
FIRST_DIRECTION = 10  # 48ths of a turn, from east: where the search for free ground around the point begins


@dataclasses.dataclass(frozen=True, eq=False)
class Roster:
    """Figures of all units. What is static decides what is compiled; arrays may be constants or traced."""

    spec: MapSpec
    units: tuple[UnitType, ...]  # none where they are drawn
    n_allies: int
    spawn: np.ndarray  # (N, 2)
    bars: tuple[int, ...]  # units whose shot may hit a bar
    blasts: tuple[int, ...]  # units that may explode
    healers: tuple[int, ...]  # units that may heal
    bar: tuple[float, float]  # half length and half width
    blast: float  # radius
    heal: Heal
    life: Array  # and so on: (N, 1) or (N, E) float32
    shield: Array
    armor: Array
    speed: Array
    radius: Array
    separation: Array
    acceleration: Array
    regeneration: Array
    period: Array
    windup: Array
    backswing: Array
    slop: Array
    hits_at_once: Array
    hits_delayed: Array
    delay: Array
    missile_speed: Array
    channeled: Array
    flying: Array  # bool
    cliff_bound: Array  # bool: on the ground layer
    building: Array
    healer: Array
    biological: Array
    hits_bar: Array
    explodes: Array
    armed: Array
    hits_air: Array
    light: Array
    armored: Array
    layer: Array  # int32, into LAYERS
    range: Array
    damage_plain: Array
    bonus_light: Array
    bonus_armored: Array

    @property
    def n(self) -> int:
        return self.life.shape[0]

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

    @property
    def number(self) -> np.ndarray:
        return np.arange(self.n, dtype=np.int32)[:, None]

    @functools.cached_property
    def reach(self) -> Pairs:
        """Centre distance from which row may fire at column; negative if it cannot."""
        return pairs(self, lambda a, b: _where(_can_hit(a, b), a.range + (a.radius + b.radius), -1.0))

    @functools.cached_property
    def scan(self) -> Pairs:
        """Centre distance within which row notices column."""
        return pairs(self, lambda a, b: _where(_can_hit(a, b), _scan_range(a) + (a.radius + b.radius), -1.0))

    @functools.cached_property
    def damage_taken(self) -> Pairs:
        """What one hit of column does to row, before shields and armour."""
        return pairs(self, lambda a, b: _damage_per_hit(b, a))

    @functools.cached_property
    def collides(self) -> np.ndarray:
        """(N, N) bool: same layer, not itself. Only where the units are known."""
        table = pairs(self, collide)
        assert isinstance(table, np.ndarray)
        return table[..., 0]

    @functools.cached_property
    def friends(self) -> np.ndarray:
        """(N, N) bool."""
        team = np.arange(self.n) < self.n_allies
        return team[:, None] == team[None]


Pairs = Any  # a table (N, N, 1), or a function of the rows and a unit; see `world.column`


class _View:
    """Figures of a roster at some units: `view.radius` is `roster.radius` picked."""

    def __init__(self, r: Roster, pick: Callable[[Array], Array]) -> None:
        self._roster, self._pick = r, pick

    def __getattr__(self, name: str) -> Any:
        return self._pick(getattr(self._roster, name))


def pairs(r: Roster, rule: Callable[[Any, Any], Array]) -> Pairs:
    """A figure of two units by a rule on the figures of each: a constant table, or computed column by column."""
    if r.units:
        return rule(_View(r, lambda table: table[:, None]), _View(r, lambda table: table[None]))
    return lambda rows, j: rule(_View(r, lambda table: table[rows]), _View(r, lambda table: jnp.asarray(table)[j]))


def collide(a: Any, b: Any) -> Array:
    """Whether two units are on the same layer, and two."""
    return (a.layer == b.layer) & (a.number != b.number)


def _can_hit(a: Any, b: Any) -> Array:
    """Whether the weapon reaches the target's layer; tall units count as ground and as air."""
    return a.armed & (~b.flying | a.hits_air)


def _scan_range(a: Any) -> Array:
    return _where(a.range > SCAN_RANGE, a.range, np.float32(SCAN_RANGE))


def _damage_per_hit(a: Any, b: Any) -> Array:
    """Damage of one hit before shields and armour."""
    return _can_hit(a, b) * (a.damage_plain + a.bonus_light * b.light + a.bonus_armored * b.armored)


def _where(condition: Array, yes: Array, no: Any) -> Array:
    """Of NumPy's kind for constants, so that they stay constants."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, np.float32(no) if isinstance(no, float) else no)
    return jnp.where(condition, yes, no)


def possible(flag: Array) -> bool:
    """Whether a flag may be set for some unit, as far as is known when compiling."""
    return not isinstance(flag, np.ndarray) or bool(flag.any())


@functools.cache
def roster(spec: MapSpec) -> Roster:
    """Build the tables of a map."""
    allies = _line_up(spec.allies, spec.terrain, by="order")
    enemies = _line_up(spec.enemies, spec.terrain, by="game_id")
    placed = allies + enemies
    return _assemble(
        figures([unit for unit, _ in placed]),
        spec=spec,
        units=tuple(unit for unit, _ in placed),
        n_allies=len(allies),
        spawn=np.array([point for _, point in placed], np.float32),
    )


@functools.cache
def known_roster(spec: MapSpec, units: tuple[UnitType, ...], n_allies: int) -> Roster:
    """The roster of a battle that drew its units, afterwards: for pictures."""
    return _assemble(figures(units), spec=spec, units=units, n_allies=n_allies, spawn=np.zeros((0, 2), np.float32))


def drawn_roster(spec: MapSpec, types: tuple[UnitType, ...], n_allies: int, kinds: Array) -> Roster:
    """The roster of a battle whose units are known only when it runs: `kinds`, (N, E), are indices into `types`."""

    def pick(values: np.ndarray) -> Array:
        if np.all(values == values[0]):
            return np.repeat(values[:1], kinds.shape[0], axis=0)
        picked = jnp.asarray(values[0, 0])
        for k in range(1, len(types)):
            picked = jnp.where(kinds == k, values[k, 0], picked)
        return picked

    known = {name: pick(values) for name, values in figures(types).items()}
    return _assemble(known, types, spec=spec, units=(), n_allies=n_allies, spawn=np.zeros((0, 2), np.float32))


def _assemble(known: dict[str, Array], types: Sequence[UnitType] = (), **rest: Any) -> Roster:
    """Add who may be special, and what is special about them."""
    types = types or rest["units"]
    weapons = [unit.weapon for unit in types if unit.weapon]

    def who(flag: Array) -> tuple[int, ...]:
        return tuple(np.flatnonzero(flag).tolist() if isinstance(flag, np.ndarray) else range(flag.shape[0]))

    return Roster(
        **rest,
        bars=who(known["hits_bar"]),
        blasts=who(known["explodes"]),
        healers=who(known["healer"]),
        bar=max((w.bar for w in weapons), default=(0.0, 0.0)),
        blast=max((w.blast for w in weapons), default=0.0),
        heal=next((u.heal for u in types if u.heal), Heal()),
        **known,
    )


def figures(units: Sequence[UnitType]) -> dict[str, np.ndarray]:
    """The figures of some units as columns, (len(units), 1), in loops where they are times."""
    weapons, loops = [unit.weapon or Weapon(0, 0, 1) for unit in units], LOOPS_PER_SECOND

    def column(values) -> np.ndarray:
        return np.asarray(list(values), np.float32)[:, None]

    def flags(values) -> np.ndarray:
        return np.asarray(list(values), bool)[:, None]

    return dict(
        life=column(u.life for u in units),
        shield=column(u.shield for u in units),
        armor=column(u.armor for u in units),
        speed=column(u.speed / loops for u in units),
        radius=column(u.radius for u in units),
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
        biological=flags("biological" in u.attributes for u in units),
        hits_bar=flags(w.bar[0] > 0 for w in weapons),
        explodes=flags(w.blast > 0 for w in weapons),
        armed=flags(u.weapon is not None for u in units),
        hits_air=flags(w.air for w in weapons),
        light=flags("light" in u.attributes for u in units),
        armored=flags("armored" in u.attributes for u in units),
        layer=np.array([[LAYERS.index(u.layer)] for u in units], np.int32),
        range=column(w.range for w in weapons),
        damage_plain=column(w.damage for w in weapons),
        bonus_light=column(w.bonus * (w.bonus_against == "light") for w in weapons),
        bonus_armored=column(w.bonus * (w.bonus_against == "armored") for w in weapons),
    )


def _line_up(groups: tuple[Group, ...], terrain: Terrain, by: str) -> list[tuple[UnitType, tuple[float, float]]]:
    """Place the units of one side and number them: by type, then x, then y, as EMU's copy of SMAC does."""
    placed: list[tuple[UnitType, tuple[float, float]]] = []
    for group in groups:
        for name, count in group.units:
            for _ in range(count):
                unit = UNITS[name]
                placed.append((unit, _free_spot(unit, group.point, placed, terrain)))
    return sorted(placed, key=lambda item: (getattr(item[0], by), item[0].name, *np.round(item[1], 4)))


def _free_spot(unit: UnitType, point, placed, terrain: Terrain) -> tuple[float, float]:
    """The candidate nearest to the point where the unit touches neither another one nor a cliff.

    Both sides search the same spiral: the game's search for free ground knows nothing of sides, so that facing groups
    stand alike and do not mirror each other.
    """
    for ring, angle in _spiral():
        x, y = point[0] + ring * np.cos(angle), point[1] + ring * np.sin(angle)
        on_ground = any(all(a * x + b * y <= c - unit.separation for a, b, c in p) for p in terrain.pieces)
        clear = all(
            (x - px) ** 2 + (y - py) ** 2 >= (unit.separation + other.separation + GAP) ** 2 - ROUNDING
            for other, (px, py) in placed
        )
        if on_ground and clear:
            return float(x), float(y)
    raise ValueError(f"No room for a {unit.name} around {point}: move the spawn point away from the cliffs.")


@functools.cache
def _spiral() -> tuple[tuple[float, float], ...]:
    rings = [(0.0, 0.0)]
    for k in range(1, 160):
        rings += [(0.05 * k, 2 * np.pi * (i + FIRST_DIRECTION) / 48) for i in range(48)]
    return tuple(rings)
