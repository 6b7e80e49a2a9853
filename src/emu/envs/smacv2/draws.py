"""What chance decides before a battle: who fights, where, and what each agent can do. Pure functions of a key.

Rejection ("draw again while ...") is replaced by drawing from the distribution that it leads to, so that a reset has no
loops: thousands of copies compute one at every step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smacv2.capabilities import MAP_SIZE, Capabilities, Fixed, Positions, Teams, Uniform, all_teams
from emu.types import Array

MIDDLE = MAP_SIZE / 2
STRIP = 1.0  # allies of a mirrored start keep so far from the middle
INNER = 2.0  # groups of a surrounding start come no nearer to the middle, along both axes
DIAGONALS = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], np.float32)
ALLIES_AT, ENEMIES_AT = (8.0, 16.0), (24.0, 16.0)  # without start positions


class Setup(NamedTuple):
    """One draw. Units are in the order of the team lists; kinds are indices into the race's types."""

    allies: Array  # (n_units,) int32
    enemies: Array  # (n_enemies,) int32
    ally_places: Array  # (n_units, 2)
    enemy_places: Array  # (n_enemies, 2)
    attack: Array | None = None  # (n_units,)
    health: Array | None = None  # (n_units,)
    mask: Array | None = None  # (n_units, n_enemies) bool: health and type are hidden


def draw(c: Capabilities, key: Array) -> Setup:
    """Everything that a reset draws."""
    team_key, place_key, attack_key, health_key, mask_key = jax.random.split(key, 5)
    allies, enemies = draw_teams(c, team_key)
    ally_places, enemy_places = draw_places(c, place_key)
    return Setup(
        allies,
        enemies,
        ally_places,
        enemy_places,
        attack=_numbers(c.attack.draw, c.n_units, attack_key)[:, 0] if c.attack else None,
        health=_numbers(c.health.draw, c.n_units, health_key)[:, 0] if c.health else None,
        mask=_mask(c, mask_key),
    )


def _mask(c: Capabilities, key: Array) -> Array | None:
    if c.mask_probability is None:
        return None
    return jax.random.uniform(key, (c.n_units, c.n_enemies)) >= c.mask_probability


# Teams


def draw_teams(c: Capabilities, key: Array) -> tuple[Array, Array]:
    """The enemies are the allies' mirror image; further ones are drawn by the same procedure."""
    if c.teams.weights is None:
        team = _any_team(c, key)
        return team, team
    key, extra_key = jax.random.split(key)
    team = _weighted_team(c.teams, c.n_units, key)
    if c.n_enemies <= c.n_units:
        return team, team[: c.n_enemies]
    extra = _weighted_team(c.teams, c.n_enemies - c.n_units, extra_key)
    return team, jnp.concatenate([team, extra])


def _weighted_team(teams: Teams, count: int, key: Array) -> Array:
    """Independent draws by weight, given that not all are exceptions.

    The units before the first that is no exception are exceptions, that one is none, and the others are free. How many
    come first has a geometric distribution, cut off at `count`.
    """
    weights, exceptional = np.array(teams.weights), np.array(teams.exceptions)
    chance = float(weights[exceptional].sum())
    first_key, key = jax.random.split(key)
    u = jax.random.uniform(key, (count,))
    anyone = _by_weight(weights, u)
    if chance == 0:
        return anyone
    first = jnp.floor(jnp.log1p(-jax.random.uniform(first_key) * (1 - chance**count)) / np.log(chance))
    first = jnp.minimum(first, count - 1)
    number = np.arange(count)
    exception, regular = _by_weight(weights * exceptional, u), _by_weight(weights * ~exceptional, u)
    return jnp.where(number < first, exception, jnp.where(number == first, regular, anyone))


def _by_weight(weights: np.ndarray, u: Array) -> Array:
    """Indices drawn by weight from uniform numbers."""
    bounds = np.cumsum(weights) / np.sum(weights)
    last = int(np.flatnonzero(weights)[-1])
    index = sum((u >= np.float32(bound)).astype(jnp.int32) for bound in bounds[:last])
    return index + jnp.zeros(u.shape, jnp.int32)


def _any_team(c: Capabilities, key: Array) -> Array:
    teams = all_teams(c)
    choice_key, order_key = jax.random.split(key)
    team = jnp.asarray(teams)[jax.random.randint(choice_key, (), 0, len(teams))]
    return jax.random.permutation(order_key, team)


# Places


def draw_places(c: Capabilities, key: Array) -> tuple[Array, Array]:
    """Start places of both sides, (n_units, 2) and (n_enemies, 2)."""
    keys = jax.random.split(key)
    if c.positions is not None:
        ally, enemy = _both_sides(c, c.positions, keys[0])
    else:
        ally, enemy = (jnp.tile(jnp.array(at), (n, 1)) for at, n in ((ALLIES_AT, c.n_units), (ENEMIES_AT, c.n_enemies)))
    own_keys = jax.random.split(keys[1])
    ally = ally if c.ally_places is None else _numbers(c.ally_places, c.n_units, own_keys[0])
    enemy = enemy if c.enemy_places is None else _numbers(c.enemy_places, c.n_enemies, own_keys[1])
    return ally, enemy


def _both_sides(c: Capabilities, positions: Positions, key: Array) -> tuple[Array, Array]:
    which_key, mirror_key, around_key = jax.random.split(key, 3)
    if positions.kind == "reflect_position":
        return _mirrored(c, mirror_key)
    if positions.kind == "surrounded":
        return _surrounded(c, around_key)
    surrounded = jax.random.uniform(which_key) > positions.p
    sides = zip(_surrounded(c, around_key), _mirrored(c, mirror_key), strict=True)
    ally, enemy = (jnp.where(surrounded, around, mirror) for around, mirror in sides)
    return ally, enemy


def _mirrored(c: Capabilities, key: Array) -> tuple[Array, Array]:
    """Allies anywhere on the western side, each enemy where the ally of its number is mirrored in the middle."""
    ally_key, extra_key = jax.random.split(key)
    ally = jax.random.uniform(ally_key, (c.n_units, 2)) * np.array([MIDDLE - STRIP, MAP_SIZE], np.float32)
    mirrored = jnp.stack([MAP_SIZE - ally[:, 0], ally[:, 1]], axis=1)[: c.n_enemies]
    if c.n_enemies <= c.n_units:
        return ally, mirrored
    extra = jax.random.uniform(extra_key, (c.n_enemies - c.n_units, 2)) * np.array([MIDDLE, MAP_SIZE], np.float32)
    return ally, jnp.concatenate([mirrored, extra + np.array([MIDDLE, 0], np.float32)])


def _surrounded(c: Capabilities, key: Array) -> tuple[Array, Array]:
    """Allies in the middle; enemies in one to four groups, each at one point of another diagonal."""
    count_key, group_key, diagonal_key, along_key = jax.random.split(key, 4)
    groups = jax.random.randint(count_key, (), 1, len(DIAGONALS) + 1)
    joined = jnp.floor(jax.random.uniform(group_key, (c.n_enemies,)) * groups)  # a multinomial's draws, one by one
    number = np.arange(c.n_enemies)
    ends = jnp.stack([jnp.sum(joined <= k) for k in range(len(DIAGONALS) - 1)])
    group = jnp.sum(number[:, None] >= ends, axis=1)
    distance = (MIDDLE - INNER) * (1 - jax.random.uniform(along_key, (len(DIAGONALS),))) + INNER
    place = MIDDLE + _shuffled(DIAGONALS, diagonal_key) * distance[:, None]
    member = group[:, None] == np.arange(len(DIAGONALS))
    enemy = jnp.sum(jnp.where(member[..., None], place, 0.0), axis=1)
    return jnp.full((c.n_units, 2), MIDDLE), enemy


def _shuffled(rows: np.ndarray, key: Array) -> Array:
    """Rows in random order, by comparing random numbers: for a handful cheaper than sorting."""
    u = jax.random.uniform(key, (len(rows),))
    rank = jnp.sum(u[None] < u[:, None], axis=1)
    return jnp.sum(jnp.where((rank == np.arange(len(rows))[:, None])[..., None], rows, 0.0), axis=1)


def _numbers(numbers: Uniform | Fixed, units: int, key: Array) -> Array:
    """(units, numbers)."""
    if isinstance(numbers, Uniform):
        low, high = (np.array(bound, np.float32) for bound in (numbers.low, numbers.high))
        return low + jax.random.uniform(key, (units, len(low))) * (high - low)
    choice_key, order_key = jax.random.split(key)
    item = jnp.asarray(numbers.items, jnp.float32)[jax.random.randint(choice_key, (), 0, len(numbers.items))]
    return jax.random.permutation(order_key, item)
