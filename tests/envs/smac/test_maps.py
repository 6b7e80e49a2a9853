"""Every map's sizes, limits, rewards, order of units and type bits, against the table of the real SMAC."""

from __future__ import annotations

import re
import sys

import jax
import numpy as np
import pytest

import emu.envs
from emu.envs.smac import BATTLES
from emu.envs.smac.env import SmacEnv, make
from emu.envs.smac.features import type_bits
from emu.envs.smac.maps import MAPS
from emu.envs.smac.terrain import walkable_cells
from emu.errors import EnvError

# map: allies, enemies, limit, type bits, shield bits, actions, state, observation, maximum reward
TABLE = {
    "1c3s5z": (9, 9, 180, 3, (1, 1), 15, 270, 162, 1870),
    "3s5z": (8, 8, 150, 2, (1, 1), 14, 216, 128, 1510),
    "3s_vs_5z": (3, 5, 250, 0, (1, 1), 11, 68, 48, 1000),
    "5m_vs_6m": (5, 6, 70, 0, (0, 0), 12, 98, 55, 530),
    "MMM2": (10, 12, 180, 3, (0, 0), 18, 322, 176, 1205),
    "6h_vs_8z": (6, 8, 150, 0, (0, 1), 14, 140, 78, 1480),
    "3s5z_vs_3s6z": (8, 9, 170, 2, (1, 1), 15, 230, 136, 1670),
    "corridor": (6, 24, 400, 0, (1, 0), 30, 282, 156, 1280),
    "3m": (3, 3, 60, 0, (0, 0), 9, 48, 30, 365),
    "8m": (8, 8, 120, 0, (0, 0), 14, 168, 80, 640),
    "25m": (25, 25, 150, 0, (0, 0), 31, 950, 250, 1575),
    "10m_vs_11m": (10, 11, 150, 0, (0, 0), 17, 243, 105, 805),
    "27m_vs_30m": (27, 30, 180, 0, (0, 0), 36, 1170, 285, 1850),
    "2s3z": (5, 5, 120, 2, (1, 1), 11, 120, 80, 1020),
    "MMM": (10, 10, 150, 3, (0, 0), 16, 290, 160, 1015),
    "2c_vs_64zg": (2, 64, 400, 0, (1, 0), 70, 342, 332, 3080),
    "bane_vs_bane": (24, 24, 200, 2, (0, 0), 30, 984, 336, 1260),
    "so_many_baneling": (7, 32, 100, 0, (1, 0), 38, 397, 202, 1480),
    "2s_vs_1sc": (2, 1, 300, 0, (1, 0), 7, 27, 17, 510),
    "8m_vs_9m": (8, 9, 120, 0, (0, 0), 15, 179, 85, 695),
    "3s_vs_3z": (3, 3, 150, 0, (1, 1), 9, 54, 36, 680),
    "3s_vs_4z": (3, 4, 200, 0, (1, 1), 10, 61, 42, 840),
    "2m_vs_1z": (2, 1, 150, 0, (0, 1), 7, 26, 16, 360),
}


def test_every_map_of_the_table_is_declared_and_registered():
    assert set(MAPS) == set(TABLE) == set(BATTLES)
    assert {f"smac/{name}" for name in TABLE} <= set(emu.envs.registered())


@pytest.mark.parametrize("name", BATTLES)
def test_a_battle_in_words_counts_right(name):
    sides = [sum(map(int, re.findall(r"\d+", side))) for side in BATTLES[name].split(" against ")]
    allies, enemies = MAPS[name].counts
    assert sides == [allies, 0 if "against the same" in BATTLES[name] else enemies]
    assert "against the same" not in BATTLES[name] or allies == enemies


@pytest.mark.parametrize("name", TABLE)
def test_sizes_limits_and_rewards_equal_the_real_ones(name):
    allies, enemies, limit, bits, shields, actions, state, obs, reward = TABLE[name]
    env = SmacEnv(name)
    shape, spec = env.layout, env.spec
    assert (shape.n_allies, shape.n_enemies, spec.episode_limit) == (allies, enemies, limit)
    assert (shape.type_bits, (shape.ally_shields, shape.enemy_shields)) == (bits, shields)
    assert (spec.n_actions, spec.state_dim, spec.obs_dim) == (actions, state, obs)
    assert env.max_reward == reward
    assert spec.unit_dim == 4 + shields[0] + bits
    s = env.reset(jax.random.key(0))
    shapes = (jax.eval_shape(env.observe, s), jax.eval_shape(env.state, s), jax.eval_shape(env.avail, s))
    assert [leaf.shape for leaf in shapes] == [(allies, obs), (state,), (allies, actions)]


@pytest.mark.parametrize("name", TABLE)
def test_units_start_on_the_ground_and_apart(name):
    r = SmacEnv(name).roster
    cells = walkable_cells(r.terrain)
    assert all(cells[int(y), int(x)] for x, y in r.spawn)
    distance = np.linalg.norm(r.spawn[:, None] - r.spawn[None], axis=-1)
    assert np.all((distance >= r.separation + r.separation.T) | ~r.collides)


def test_facing_sides_stand_alike():
    r = SmacEnv("3s5z").roster
    places = [sorted(tuple(np.round(p, 3)) for p in r.spawn[rows]) for rows in (r.ally, r.enemy)]
    np.testing.assert_allclose(np.array(places[1]) - np.array(places[0]), [[14, 0]] * 8, atol=2e-3)


def test_allies_and_enemies_are_numbered_as_in_smac():
    def names(env, rows):
        return [u.name for u in env.roster.units[rows]]

    env = SmacEnv("1c3s5z")
    assert names(env, env.roster.ally) == ["colossus"] + ["stalker"] * 3 + ["zealot"] * 5
    assert names(env, env.roster.enemy) == ["colossus"] + ["zealot"] * 5 + ["stalker"] * 3
    env = SmacEnv("MMM2")
    assert names(env, env.roster.ally) == ["marauder"] * 2 + ["marine"] * 7 + ["medivac"]
    assert names(env, env.roster.enemy) == ["marine"] * 8 + ["marauder"] * 3 + ["medivac"]


def test_type_bits_follow_smac_and_are_swapped_for_enemies_on_stalker_zealot_maps():
    allies, enemies = type_bits(SmacEnv("2s3z").roster, 2)
    assert allies.argmax(1).tolist() == [0, 0, 1, 1, 1]
    assert enemies.argmax(1).tolist() == [0, 0, 0, 1, 1]
    allies, enemies = type_bits(SmacEnv("MMM").roster, 3)
    assert allies.argmax(1).tolist() == [0, 0] + [1] * 7 + [2]
    assert enemies.argmax(1).tolist() == [1] * 7 + [0, 0] + [2]
    _, enemies = type_bits(SmacEnv("1c3s5z").roster, 3)
    assert enemies.argmax(1).tolist() == [0] + [2] * 5 + [1] * 3


def test_options_change_the_vectors_and_unknown_ones_are_refused():
    env = make("2s3z", state_last_action=False, state_timestep_number=True, obs_timestep_number=True)
    assert (env.spec.state_dim, env.spec.obs_dim) == (120 - 5 * 11 + 1, 81)
    assert make("2s3z", obs_all_health=False).spec.obs_dim == 80 - 5 * 2 - 4 * 2
    assert make("2s3z", obs_last_action=True).spec.obs_dim == 80 + 4 * 11
    with pytest.raises(EnvError, match="reward_sparse"):
        make("2s3z", reward_sparce=True)
    with pytest.raises(EnvError, match="3s5z"):
        SmacEnv("3s5zz")


def test_environments_are_hashable_and_equal_by_value():
    assert SmacEnv("3m") == SmacEnv("3m")
    assert hash(SmacEnv("3m")) == hash(SmacEnv("3m")) and SmacEnv("3m") != SmacEnv("3m", reward_sparse=True)


def test_registration_imports_no_jax():
    import subprocess

    code = "import sys, emu.envs; assert 'jax' not in sys.modules; assert 'smac/3m' in emu.envs.registered()"
    subprocess.run([sys.executable, "-c", code], check=True)
