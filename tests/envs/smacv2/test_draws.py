"""Teams and places drawn at a reset: SMACv2's own procedure, with its loops, beside the loop-free one."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.envs.smacv2 import spawn
from emu.envs.smacv2.capabilities import Capabilities, Fixed, PerAgent, Positions, Teams, Uniform, all_teams, scenario
from emu.envs.smacv2.draws import draw, draw_places, draw_teams
from emu.envs.smacv2.env import make
from emu.envs.smacv2.races import RACES


@functools.cache
def draws(c: Capabilities, count: int = 4096):
    return jax.device_get(jax.jit(jax.vmap(lambda key: draw(c, key)))(jax.random.split(jax.random.key(1), count)))


def plain_team(rng: np.random.Generator, weights, exceptional, count: int) -> list[int]:
    """As SMACv2 draws: again and again until not all are exceptions."""
    while True:
        team = rng.choice(len(weights), size=count, p=weights)
        if not all(exceptional[k] for k in team):
            return team.tolist()


def frequencies(teams, count: int) -> np.ndarray:
    """How often each ordered team of three types occurs."""
    codes = np.asarray(teams) @ (3 ** np.arange(np.shape(teams)[1]))
    return np.bincount(codes, minlength=3**count) / len(codes)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_teams_are_distributed_as_by_drawing_again(count):
    teams = Teams((0.3, 0.2, 0.5), (False, False, True))
    c = Capabilities(RACES["zerg"], count, count, teams, Positions("surrounded"))
    rng = np.random.default_rng(0)
    expected = frequencies([plain_team(rng, teams.weights, teams.exceptions, count) for _ in range(20000)], count)
    found = frequencies(draws(c, 20000).allies, count)
    assert found[expected == 0].max(initial=0) == 0  # no team of exceptions only
    np.testing.assert_allclose(found, expected, atol=0.015)


def test_enemies_mirror_the_team_and_an_extra_one_is_no_exception():
    c = scenario("terran_10_vs_11")
    setup = draws(c)
    assert (setup.enemies[:, :10] == setup.allies).all()
    extra = np.bincount(setup.enemies[:, 10], minlength=3) / len(setup.enemies)
    np.testing.assert_allclose(extra, [0.5, 0.5, 0.0], atol=0.03)
    fewer = Capabilities(c.race, 5, 3, c.teams, c.positions)
    setup = draws(fewer)
    assert (setup.enemies == setup.allies[:, :3]).all()


def test_all_teams_draws_every_multiset_alike():
    c = Capabilities(RACES["terran"], 3, 3, Teams(None, (False, False, True)))
    assert len(all_teams(c)) == 9  # ten multisets, without three medivacs
    allies, enemies = jax.vmap(lambda key: draw_teams(c, key))(jax.random.split(jax.random.key(0), 9000))
    assert (np.asarray(allies) == np.asarray(enemies)).all()
    names, counts = np.unique(np.sort(np.asarray(allies), axis=1), axis=0, return_counts=True)
    assert len(names) == 9 and np.abs(counts / 9000 - 1 / 9).max() < 0.015


def surrounded(setup) -> np.ndarray:
    return (setup.ally_places == 16).all(axis=(1, 2))


def test_half_of_the_battles_begin_surrounded_and_half_mirrored():
    setup = draws(scenario("protoss_20_vs_23"))
    around = surrounded(setup)
    assert abs(around.mean() - 0.5) < 0.03
    ally, enemy = setup.ally_places[~around], setup.enemy_places[~around]
    assert ally[..., 0].min() >= 0 and ally[..., 0].max() < 15 and ally[..., 1].max() < 32
    np.testing.assert_allclose(enemy[:, :20, 0], 32 - ally[..., 0], atol=1e-5)
    np.testing.assert_allclose(enemy[:, :20, 1], ally[..., 1])
    extra = enemy[:, 20:]
    assert extra[..., 0].min() >= 16 and extra[..., 0].max() <= 32
    assert abs(extra[..., 0].mean() - 24) < 0.2 and abs(ally[..., 0].mean() - 7.5) < 0.1


def test_groups_stand_on_different_diagonals_in_slices_of_the_list():
    setup = draws(scenario("zerg_10_vs_10"))
    offsets = setup.enemy_places[surrounded(setup)] - 16
    assert np.allclose(np.abs(offsets[..., 0]), np.abs(offsets[..., 1]), atol=1e-4)
    distance = np.abs(offsets[..., 0])
    assert distance.min() >= 2 and distance.max() <= 16 and abs(distance.mean() - 9) < 0.3
    groups = []
    for enemies in offsets:
        changes = 1 + np.any(enemies[1:] != enemies[:-1], axis=1).sum()
        points = np.unique(enemies, axis=0)
        assert len(points) == changes  # consecutive slices
        assert len(np.unique(np.sign(points), axis=0)) == len(points)  # a diagonal each
        groups.append(len(points))
    shares = np.bincount(groups, minlength=5)[1:] / len(groups)
    rng = np.random.default_rng(0)
    sizes = [np.count_nonzero(rng.multinomial(10, np.ones(g) / g)) for g in rng.integers(1, 5, 20000)]
    np.testing.assert_allclose(shares, np.bincount(sizes, minlength=5)[1:] / 20000, atol=0.03)


def test_places_without_start_positions_and_places_of_ones_own():
    c = scenario("terran_5_vs_5")
    ally, enemy = draw_places(Capabilities(c.race, 2, 1, c.teams), jax.random.key(0))
    assert np.asarray(ally).tolist() == [[8, 16]] * 2 and np.asarray(enemy).tolist() == [[24, 16]]
    fixed = Fixed((((1.0, 2.0), (3.0, 4.0)), ((5.0, 6.0), (7.0, 8.0))))
    own = Capabilities(c.race, 2, 1, c.teams, ally_places=fixed, enemy_places=Uniform((20.0, 0.0), (21.0, 1.0)))
    setup = draws(own, 512)
    found = {tuple(sorted(map(tuple, places))) for places in setup.ally_places.tolist()}
    assert found == {((1, 2), (3, 4)), ((5, 6), (7, 8))}
    assert setup.enemy_places[..., 0].min() >= 20 and setup.enemy_places[..., 1].max() < 1


def test_capabilities_of_agents_and_masks():
    c = scenario("zerg_5_vs_5")
    probability = PerAgent(Uniform((0.2,), (0.6,)))
    level = PerAgent(Fixed((((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),)))
    own = Capabilities(c.race, 5, 5, c.teams, c.positions, attack=probability, health=level, mask_probability=0.8)
    setup = draws(own)
    assert setup.attack.shape == (4096, 5) and setup.attack.min() >= 0.2 and setup.attack.max() < 0.6
    np.testing.assert_allclose(np.sort(setup.health, axis=1), np.tile([0.1, 0.2, 0.3, 0.4, 0.5], (4096, 1)), atol=1e-6)
    assert abs(setup.mask.mean() - 0.2) < 0.01  # the probability is that of being shown


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_agents_are_numbered_by_type_then_place(seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, 7)
    places = rng.integers(0, 3, (7, 2)).astype(np.float32)  # with ties
    race = RACES["protoss"]
    order = sorted(range(7), key=lambda i: (race.types[kinds[i]], *places[i], i))
    new_kinds, new_places = spawn.number(jnp.asarray(kinds, jnp.int32), jnp.asarray(places), race.rank)
    assert np.asarray(new_kinds).tolist() == kinds[order].tolist()
    assert np.asarray(new_places).tolist() == places[order].tolist()


@pytest.mark.parametrize("name", ["terran_20_vs_23", "protoss_10_vs_11", "zerg_5_vs_5"])
def test_units_start_on_the_map_near_their_points_and_hardly_overlap(name):
    env = make(name, random_spawn=0.0)
    states = jax.device_get(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(2), 512)))
    units = env.capabilities.race.units
    separation = np.array([u.separation for u in units])[states.kinds]
    layer = np.array([("ground", "tall", "air").index(u.layer) for u in units])[states.kinds]
    w = states.world
    for p in (w.x, w.y):
        assert (p >= separation - 1e-4).all() and (p <= 32 - separation + 1e-4).all()
    distance = np.hypot(w.x[:, :, None] - w.x[:, None], w.y[:, :, None] - w.y[:, None])
    both = (layer[:, :, None] == layer[:, None]) & ~np.eye(layer.shape[1], dtype=bool)
    relative = (distance / (separation[:, :, None] + separation[:, None]))[both]
    assert relative.min() > 0.6 and np.mean(relative > 0.97) > 0.995
    ranks = env.capabilities.race.rank[states.kinds[:, : env.layout.n_allies]]
    assert (np.diff(ranks) >= 0).all()


def test_a_reset_depends_on_its_key_alone():
    env = make("zerg_5_vs_5")
    first, again, other = (jax.device_get(env.reset(jax.random.key(k))) for k in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True))
    assert not np.array_equal(first.world.x, other.world.x)
