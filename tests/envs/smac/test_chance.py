"""What differs between battles comes from the key of the reset, has the size it claims, and can be switched off."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.envs.smac.behaviour import LOOKOUT_PERIOD
from emu.envs.smac.chance import JITTER, Chance, _draw
from emu.envs.smac.env import SmacEnv
from emu.envs.smac.maps import MAPS
from emu.envs.smac.roster import roster
from emu.envs.smac.simulate import advance, fresh_world

QUIET = {"random_spawn": 0.0, "random_start": False, "random_lookout": False, "random_weapons": False}


def start(name: str, seed: int, **options):
    return jax.device_get(SmacEnv(name, **options).reset(jax.random.key(seed)).world)


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_battles_start_alike_from_one_key_and_differently_from_another():
    assert same(start("3s5z", 1), start("3s5z", 1))
    assert not same(start("3s5z", 1), start("3s5z", 2))


def test_with_all_chance_off_every_battle_starts_as_the_map_declares():
    assert same(start("3s5z", 1, **QUIET), jax.device_get(fresh_world(roster(MAPS["3s5z"]))))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), size=st.sampled_from([0.02, 0.1, 0.3]))
def test_places_differ_by_no_more_than_they_may(seed, size):
    there = start("2s3z", seed, **{**QUIET, "random_spawn": size})
    spawn = roster(MAPS["2s3z"]).spawn
    assert np.abs(there.x - spawn[:, 0]).max() <= size + 1e-5
    assert np.abs(there.y - spawn[:, 1]).max() <= size + 1e-5


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_enemies_in_step_have_walked_whole_loops_towards_their_point_less_than_a_step(seed):
    there, r = start("2s3z", seed, **{**QUIET, "random_start": True}), roster(MAPS["2s3z"])
    walked = np.hypot(there.x - r.spawn[:, 0], there.y - r.spawn[:, 1]) / r.speed[:, 0]
    assert not walked[r.ally].any()
    loops = walked[r.enemy]
    np.testing.assert_allclose(loops, np.round(loops[0]), atol=1e-3)
    assert 0 <= round(float(loops[0])) <= 7
    before, after = (np.hypot(x - 9, y - 16) for x, y in ((r.spawn[:, 0], r.spawn[:, 1]), (there.x, there.y)))
    assert (after[r.enemy] <= before[r.enemy] + 1e-5).all()


@pytest.mark.parametrize("name", ["2s_vs_1sc", "2c_vs_64zg"])
def test_enemies_without_a_point_to_go_to_have_not_walked(name):
    there = start(name, 3, **{**QUIET, "random_start": True})
    np.testing.assert_array_equal(there.x, roster(MAPS[name]).spawn[:, 0])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_all_draws_in_one_call_are_those_of_jax(seed):
    keys = jax.random.split(jax.random.key(seed), 4)
    shares, phases, loops = _draw(keys, 5)
    np.testing.assert_array_equal(shares, jax.random.uniform(keys[0], (2, 5)))
    np.testing.assert_array_equal(phases % 8, jax.random.randint(keys[1], (5,), 0, 8))
    assert int(loops % 8) == int(jax.random.randint(keys[3], (), 0, 8))


def test_lookouts_are_spread_over_the_whole_period():
    phases = np.concatenate([start("8m", seed, random_start=False).lookout[8:] for seed in range(20)])
    assert set(phases.tolist()) == set(range(LOOKOUT_PERIOD, 2 * LOOKOUT_PERIOD))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_each_enemy_sets_out_at_its_own_time(seed):
    """Some have walked before the first decision; each of the others stands for as many loops as `lookout` says."""
    env = SmacEnv("3s5z")
    r, world = env.roster, env.reset(jax.random.key(seed)).world
    until = np.asarray(world.lookout[r.enemy]) - LOOKOUT_PERIOD
    assert (until >= -7).all() and (until < LOOKOUT_PERIOD).all()
    walked = np.hypot(world.x - r.spawn[:, 0], world.y - r.spawn[:, 1]) / r.speed[:, 0]
    assert not np.asarray(walked[r.ally]).any()
    np.testing.assert_allclose(walked[r.enemy], np.maximum(-until, 0), atol=1e-3)
    for step in range(1, 3):
        world = advance(env.battle)(world, np.ones(r.n_allies, np.int32), np.zeros(r.n, np.float32))
        gone = np.hypot(world.x - r.spawn[:, 0], world.y - r.spawn[:, 1])[r.enemy]
        stood = 8 * step <= until
        assert (gone[stood] < 1).all(), "only friends who walk by may have pushed it"
        assert (gone[~stood] > 0).all()


def test_zerglings_of_2c_vs_64zg_go_for_a_colossus_each_at_its_own_time():
    env = SmacEnv("2c_vs_64zg")
    r, world = env.roster, env.reset(jax.random.key(5)).world
    until = np.asarray(world.lookout[r.enemy]) - LOOKOUT_PERIOD
    assert set(until.tolist()) == set(range(LOOKOUT_PERIOD))
    world = advance(env.battle)(world, np.ones(r.n_allies, np.int32), np.zeros(r.n, np.float32))
    hunts = np.asarray(world.target[r.enemy]) == 0
    np.testing.assert_array_equal(hunts, until < 7)  # eight loops, and the choice comes before the clock moves


def test_the_zealot_of_2m_vs_1z_goes_to_a_point_between_the_marines():
    goals = np.array([start("2m_vs_1z", seed).goal for seed in range(40)])
    assert (goals[:, 1] == 12).all() and goals[:, 0].min() >= 13 and goals[:, 0].max() <= 19
    assert goals[:, 0].std() > 1


def test_weapon_periods_vary_by_the_games_jitter_or_not_at_all():
    r = roster(MAPS["25m"])
    drawn = np.asarray(Chance().jitter(r.n, jax.random.key(0)))
    assert JITTER[0] <= drawn.min() < -0.5 and 1.5 < drawn.max() <= JITTER[1]
    assert set(np.asarray(Chance(weapons=False).jitter(r.n, jax.random.key(0))).tolist()) == {0.5}
