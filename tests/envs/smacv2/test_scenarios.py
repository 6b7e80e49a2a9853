"""Sizes, limits and maximum rewards of the fifteen scenarios, against the table read off the real SMACv2."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import emu.envs
from emu.envs.protocols import Env
from emu.envs.smacv2 import SCENARIO_NAMES
from emu.envs.smacv2.env import Smacv2Env, find, make
from emu.envs.smacv2.options import Options
from emu.envs.smacv2.races import RACES
from emu.errors import EnvError

# size: actions, then observation and state of terran and zerg, then of protoss
SIZES = {
    "5_vs_5": (11, 82, 120, 92, 130),
    "10_vs_10": (16, 162, 290, 182, 310),
    "20_vs_20": (26, 322, 780, 362, 820),
    "10_vs_11": (17, 170, 306, 191, 327),
    "20_vs_23": (29, 346, 858, 389, 901),
}
# expected maximum reward: terran, protoss, zerg
REWARDS = {
    "5_vs_5": (707.5, 1122.5, 523.75),
    "10_vs_10": (1215, 2045, 847.5),
    "20_vs_20": (2230, 3890, 1495),
    "10_vs_11": (1310, 2229.5, 915),
    "20_vs_23": (2534.3, 4443.5, 1689.3),
}


def dims(env: Smacv2Env) -> tuple[int, int, int]:
    return env.spec.n_actions, env.spec.obs_dim, env.spec.state_dim


def test_fifteen_scenarios_are_registered():
    assert len(SCENARIO_NAMES) == 15
    assert {f"smacv2/{name}" for name in (*SCENARIO_NAMES, "custom")} <= set(emu.envs.registered())
    assert isinstance(make("zerg_5_vs_5"), Env)


@pytest.mark.parametrize("name", SCENARIO_NAMES)
def test_sizes_limits_and_rewards_equal_the_real_ones(name):
    race, _, size = name.partition("_")
    actions, obs, state, protoss_obs, protoss_state = SIZES[size]
    if race == "protoss":
        obs, state = protoss_obs, protoss_state
    env = make(name)
    n_units, n_enemies = (int(number) for number in size.split("_vs_"))
    assert dims(env) == (actions, obs, state)
    assert (env.spec.n_agents, env.layout.n_enemies, env.spec.episode_limit) == (n_units, n_enemies, 200)
    assert env.spec.unit_dim == 7 + (race == "protoss")
    assert env.max_reward == pytest.approx(REWARDS[size][list(RACES).index(race)], rel=3e-5)
    s = jax.eval_shape(env.reset, jax.random.key(0))
    shapes = [jax.eval_shape(method, s).shape for method in (env.observe, env.state, env.avail)]
    assert shapes == [(n_units, obs), (state,), (n_units, actions)]


def test_partial_observability_as_published_keeps_the_sizes_and_the_cone_adds_to_them():
    assert dims(make("terran_5_vs_5", prob_obs_enemy=0.0, action_mask=False)) == (11, 82, 120)
    assert dims(make("terran_5_vs_5", conic_fov=True)) == (23, 84, 190)
    assert dims(make("protoss_20_vs_23", conic_fov=True)) == (41, 391, 1181)


def test_options_change_the_vectors():
    plain = make("protoss_5_vs_5")
    assert make("protoss_5_vs_5", obs_own_pos=False).spec.obs_dim == plain.spec.obs_dim - 2
    assert make("protoss_5_vs_5", obs_timestep_number=True).spec.obs_dim == plain.spec.obs_dim + 1
    assert make("protoss_5_vs_5", obs_last_action=True).spec.obs_dim == plain.spec.obs_dim + 4 * 11
    assert make("protoss_5_vs_5", obs_starcraft=False, obs_timestep_number=True).spec.obs_dim == 1
    assert make("protoss_5_vs_5", state_last_action=False).spec.state_dim == plain.spec.state_dim - 5 * 11
    assert make("protoss_5_vs_5", obs_own_health=False) == plain  # ignored while all health is observed


def test_a_terran_team_that_outnumbers_its_enemies_has_an_action_for_every_patient():
    teams = {"dist_type": "weighted_teams", "unit_types": ["marine", "medivac"], "weights": [0.5, 0.5]}
    env = make("custom", {"n_units": 4, "n_enemies": 2, "team_gen": teams})
    assert env.spec.n_actions == 6 + 4
    teams = {"dist_type": "weighted_teams", "unit_types": ["stalker"], "weights": [1.0]}
    assert make("custom", {"n_units": 4, "n_enemies": 2, "team_gen": teams}).spec.n_actions == 6 + 2


def test_ranges_by_type_or_for_all():
    terran = RACES["terran"]
    assert terran.sight(True).tolist() == [9, 10, 11] and terran.reach(True, 2).tolist() == [5, 6, 4]
    assert RACES["zerg"].reach(True, 2).tolist() == [2, 5, 2]
    assert terran.sight(False).tolist() == [9] * 3 and terran.reach(False, 2).tolist() == [6] * 3


def test_expected_health_is_the_mean_over_draws():
    env = make("terran_10_vs_11")
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4000))
    health = env.capabilities.race.health[np.asarray(states.kinds)[:, 10:]].sum(axis=1)
    assert health.mean() == pytest.approx(env.max_reward - 310, abs=4 * 142 / np.sqrt(4000))


def test_environments_are_hashable_and_equal_by_value():
    assert make("zerg_5_vs_5") == make("zerg_5_vs_5") and hash(make("zerg_5_vs_5")) == hash(make("zerg_5_vs_5"))
    assert make("zerg_5_vs_5") != make("zerg_5_vs_5", action_mask=False)


@pytest.mark.parametrize(
    "wrong, hint",
    [
        ({"scenario": "terran_5_v_5"}, "terran_5_vs_5"),
        ({"scenario": "terran_5_vs_5", "action_masks": False}, "action_mask"),
        ({"scenario": "terran_5_vs_5", "capability_config": {}}, "smacv2/custom"),
        ({"scenario": "custom"}, "capability_config"),
        ({"scenario": "terran_5_vs_5", "obs_starcraft": False}, "obs_timestep_number"),
    ],
)
def test_mistakes_are_explained(wrong, hint):
    with pytest.raises(EnvError, match=hint):
        make(**wrong)


TEAM = {"dist_type": "weighted_teams", "unit_types": ["marine", "medivac"], "weights": [0.9, 0.1]}


@pytest.mark.parametrize(
    "change, hint",
    [
        ({"team_gen": None}, "team_gen"),
        ({"n_units": 0}, "n_units"),
        ({"tem_gen": TEAM}, "team_gen"),
        ({"team_gen": {**TEAM, "unit_types": ["marine", "zealot"]}}, "one race"),
        ({"team_gen": {**TEAM, "weights": [0.9, 0.9]}}, "adding up to 1"),
        ({"team_gen": {**TEAM, "dist_type": "weighted_team"}}, "weighted_teams"),
        ({"team_gen": {**TEAM, "exception_unit_types": ["marine", "medivac"]}}, "at least one"),
        ({"start_positions": {"dist_type": "surounded"}}, "surrounded"),
        ({"start_positions": {"dist_type": "surrounded", "map_x": 64}}, "32"),
        ({"attack": {"dist_type": "fixed", "items": [[0.5]]}}, "2 units"),
        ({"attack": {"dist_type": "fixed", "items": [[0.5, 0.5]], "test_mode": True}}, "test_mode"),
        ({"enemy_mask": {"mask_probability": 0.5}}, "dist_type"),
    ],
)
def test_mistakes_in_a_capability_config_are_explained(change, hint):
    with pytest.raises(EnvError, match=hint):
        make("custom", {"n_units": 2, "n_enemies": 2, "team_gen": TEAM, **change})


def test_a_scenario_written_out_is_the_scenario():
    config = {
        "n_units": 5,
        "n_enemies": 5,
        "team_gen": {
            "dist_type": "weighted_teams",
            "unit_types": ["marine", "marauder", "medivac"],
            "weights": [0.45, 0.45, 0.1],
            "exception_unit_types": ["medivac"],
            "observe": True,
        },
        "start_positions": {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32},
    }
    assert make("custom", config, map_name="10gen_terran").capabilities == find("terran_5_vs_5")
    with pytest.raises(EnvError, match="10gen_terran"):
        make("custom", config, map_name="10gen_zerg")


def test_options_have_the_published_values():
    o = Options()
    assert (o.use_unit_ranges, o.obs_own_pos, o.prob_obs_enemy, o.action_mask) == (True, True, 1.0, True)
    assert not (o.conic_fov or o.enemy_row_bug or o.reward_sparse or o.tags)
