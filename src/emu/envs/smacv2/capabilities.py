"""What is drawn at a reset, as SMACv2's `capability_config` says it: a dictionary in, a hashable description out.

Keys: `n_units`, `n_enemies`, `team_gen`, `start_positions` (or `ally_start_positions` and `enemy_start_positions`),
`attack`, `health`, `enemy_mask`. Each but the numbers is itself a dictionary with a `dist_type`, as in SMACv2's files.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from emu.envs.smacv2.races import RACES, Race
from emu.errors import EnvError, did_you_mean

POSITIONS = ("surrounded_and_reflect", "reflect_position", "surrounded")
KEYS = (
    "n_units", "n_enemies", "team_gen", "start_positions", "ally_start_positions", "enemy_start_positions",
    "attack", "health", "enemy_mask",
)  # fmt: skip
MAP_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Teams:
    """How the teams are drawn. `weights` are the types' in the race's order; none: every multiset is as likely."""

    weights: tuple[float, ...] | None
    exceptions: tuple[bool, ...]  # by type: a team may not consist of these alone
    observe: bool = True  # whether agents see each other's types


@dataclasses.dataclass(frozen=True)
class Positions:
    """Where both sides start: `kind` is SMACv2's dist_type; `p` is how likely "reflect" is where both are possible."""

    kind: str
    p: float = 0.5


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Numbers for each unit of a side, independent and uniform between two bounds, one pair for each number."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Fixed:
    """One of several lists of numbers, (items, units, numbers), shuffled among the units."""

    items: tuple[tuple[tuple[float, ...], ...], ...]


@dataclasses.dataclass(frozen=True)
class PerAgent:
    """A number for each agent that is drawn at a reset, and whether the others see it."""

    draw: Uniform | Fixed
    observe: bool = True


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """One `capability_config`, read."""

    race: Race
    n_units: int
    n_enemies: int
    teams: Teams
    positions: Positions | None = None
    ally_places: Uniform | Fixed | None = None
    enemy_places: Uniform | Fixed | None = None
    attack: PerAgent | None = None  # probability that an order to attack or heal is sent
    health: PerAgent | None = None  # share of life below which the unit is killed
    mask_probability: float | None = None  # that health and type of an enemy are shown to an agent


def scenario(name: str) -> Capabilities:
    """One of the fifteen, e.g. "terran_5_vs_5"."""
    race_name, _, size = name.partition("_")
    n_units, _, n_enemies = size.partition("_vs_")
    race = RACES[race_name]
    exceptions = tuple(kind in race.exceptions for kind in race.types)
    return Capabilities(
        race, int(n_units), int(n_enemies), Teams(race.weights, exceptions), Positions("surrounded_and_reflect")
    )


def read(config: Mapping[str, Any], map_name: str | None = None) -> Capabilities:
    """A configuration in SMACv2's words. The race is that of the unit types, or of `map_name` ("10gen_terran")."""
    _refuse_unknown(config, KEYS, "capability_config")
    team_gen = _part(config, "team_gen")
    if team_gen is None:
        raise EnvError("capability_config needs 'team_gen': SMACv2's map has no units of its own.")
    race = _race(team_gen, map_name)
    n_units, n_enemies = _count(config, "n_units"), _count(config, "n_enemies")
    teams = _teams(team_gen, race)
    if teams.weights is None and n_units != n_enemies:
        raise EnvError(f"team_gen 'all_teams' makes both teams equal: n_enemies must be {n_units}, not {n_enemies}.")
    return Capabilities(
        race,
        n_units,
        n_enemies,
        teams,
        positions=_positions(_part(config, "start_positions")),
        ally_places=_numbers(_part(config, "ally_start_positions"), "ally_start_positions", n_units, 2),
        enemy_places=_numbers(_part(config, "enemy_start_positions"), "enemy_start_positions", n_enemies, 2),
        attack=_per_agent(_part(config, "attack"), "attack", n_units),
        health=_per_agent(_part(config, "health"), "health", n_units),
        mask_probability=_mask(_part(config, "enemy_mask")),
    )


def expected_health(capabilities: Capabilities) -> float:
    """Expected sum of life and shield of the enemies, over the draws of teams."""
    race, teams = capabilities.race, capabilities.teams
    if teams.weights is None:
        return float(race.health[all_teams(capabilities)].sum(axis=1).mean())
    n_units, n_enemies = capabilities.n_units, capabilities.n_enemies
    first = _expected_health(race, teams, n_units) * min(n_enemies / n_units, 1.0)
    return first + _expected_health(race, teams, max(n_enemies - n_units, 0))


def _expected_health(race: Race, teams: Teams, count: int) -> float:
    """Of one draw of `count` units, which are not all exceptions: by removing that case from the mean of all."""
    assert teams.weights is not None
    weights, exceptional = np.array(teams.weights), np.array(teams.exceptions)
    total = float(count * weights @ race.health)
    chance = float(weights[exceptional].sum())
    if chance == 0 or count == 0:
        return total
    of_exceptions = count * float((weights * race.health)[exceptional].sum()) / chance
    return (total - chance**count * of_exceptions) / (1 - chance**count)


def all_teams(capabilities: Capabilities) -> np.ndarray:
    """Every multiset of types that `all_teams` draws from, (teams, units)."""
    kinds, exceptions = range(len(capabilities.race.types)), capabilities.teams.exceptions
    teams = itertools.combinations_with_replacement(kinds, capabilities.n_units)
    return np.array([team for team in teams if not all(exceptions[k] for k in team)], np.int32)


# Reading


def _refuse_unknown(config: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in config:
        if key not in known:
            raise EnvError(f"{where} has no key '{key}'. {did_you_mean(key, known)}")


def _part(config: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    part = config.get(key)
    if part is not None and (not isinstance(part, Mapping) or "dist_type" not in part):
        raise EnvError(f"capability_config['{key}'] must be a dictionary with a 'dist_type'.")
    return part


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise EnvError(f"capability_config['{key}'] must be a whole number from 1, not {value!r}.")
    return value


def _race(team_gen: Mapping[str, Any], map_name: str | None) -> Race:
    types = list(team_gen.get("unit_types", ()))
    for race in RACES.values():
        if types and set(types) <= set(race.types):
            if map_name is not None and map_name != f"10gen_{race.name}":
                raise EnvError(f"map_name '{map_name}' has no {types[0]}: it must be '10gen_{race.name}'.")
            return race
    known = {race.name: ", ".join(race.types) for race in RACES.values()}
    raise EnvError(f"team_gen's unit_types must be types of one race, not {types}. Known are: {known}.")


def _teams(team_gen: Mapping[str, Any], race: Race) -> Teams:
    types, kind = list(team_gen["unit_types"]), team_gen["dist_type"]
    exceptions = set(team_gen.get("exception_unit_types", ()))
    if exceptions >= set(types):
        raise EnvError("team_gen: at least one of unit_types must not be in exception_unit_types.")
    flags = tuple(name in exceptions for name in race.types)
    observe = bool(team_gen.get("observe", True))
    if kind == "all_teams":
        if len(types) != len(race.types):
            raise EnvError(f"team_gen 'all_teams' needs all types of the race: {', '.join(race.types)}.")
        return Teams(None, flags, observe)
    if kind != "weighted_teams":
        raise EnvError(f"team_gen has no dist_type '{kind}'. {did_you_mean(kind, ['weighted_teams', 'all_teams'])}")
    weights = team_gen.get("weights", ())
    if len(weights) != len(types) or abs(sum(weights) - 1) > 1e-6 or min(weights) < 0:
        raise EnvError(f"team_gen needs a weight for each of {types}, adding up to 1; it has {list(weights)}.")
    by_type = dict(zip(types, weights, strict=True))
    return Teams(tuple(float(by_type.get(name, 0.0)) for name in race.types), flags, observe)


def _positions(part: Mapping[str, Any] | None) -> Positions | None:
    if part is None:
        return None
    kind = part["dist_type"]
    if kind not in POSITIONS:
        advice = "Fixed places go into ally_start_positions and enemy_start_positions."
        raise EnvError(f"start_positions has no dist_type '{kind}'. {did_you_mean(kind, POSITIONS)} {advice}")
    for side in ("map_x", "map_y"):
        if part.get(side, MAP_SIZE) != MAP_SIZE:
            raise EnvError(f"start_positions: {side} must be {MAP_SIZE}, the size of SMACv2's map.")
    return Positions(kind, float(part.get("p", 0.5)))


def _numbers(part: Mapping[str, Any] | None, key: str, units: int, width: int) -> Uniform | Fixed | None:
    if part is None:
        return None
    if part["dist_type"] == "per_agent_uniform":
        low, high = (tuple(np.ravel(part[bound]).tolist()) for bound in ("lower_bound", "upper_bound"))
        if len(low) != width or len(high) != width:
            raise EnvError(f"capability_config['{key}']: the bounds must be {width} number(s) each.")
        return Uniform(low, high)
    if part["dist_type"] != "fixed":
        kinds = ["per_agent_uniform", "fixed"]
        raise EnvError(f"{key} has no dist_type '{part['dist_type']}'. {did_you_mean(part['dist_type'], kinds)}")
    if part.get("test_mode"):
        raise EnvError(
            f"{key}: test_mode goes through the list in turn; here every episode draws from it. Set it False."
        )
    items = [np.reshape(np.asarray(item, float), (-1, width)) for item in part["items"]]
    if not items or any(len(item) != units for item in items):
        raise EnvError(f"capability_config['{key}']: every item must be a list for {units} units.")
    return Fixed(tuple(tuple(map(tuple, item.tolist())) for item in items))


def _per_agent(part: Mapping[str, Any] | None, key: str, units: int) -> PerAgent | None:
    numbers = _numbers(part, key, units, 1)
    return None if part is None or numbers is None else PerAgent(numbers, bool(part.get("observe", True)))


def _mask(part: Mapping[str, Any] | None) -> float | None:
    if part is None:
        return None
    if part["dist_type"] != "mask":
        raise EnvError(f"enemy_mask has no dist_type '{part['dist_type']}'. Did you mean 'mask'?")
    return float(part["mask_probability"])
