"""SMACv2's Python classes: a trainer written for SMACv2 finds what it expects. And pictures of its battles."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from emu.envs.protocols import Sketchable
from emu.envs.smac.draw import frame, frames
from emu.envs.smacv2.env import make
from emu.envs.smacv2.pymarl import StarCraft2Env, StarCraftCapabilityEnvWrapper
from emu.errors import EnvError


def config(**more) -> dict:
    return {
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
        **more,
    }


PUBLISHED = {  # env_args of the published configuration, as a trainer passes them
    "continuing_episode": False, "difficulty": "7", "game_version": None, "map_name": "10gen_terran", "move_amount": 2,
    "obs_all_health": True, "obs_instead_of_state": False, "obs_last_action": False, "obs_own_health": True,
    "obs_pathing_grid": False, "obs_terrain_height": False, "obs_timestep_number": False, "reward_death_value": 10,
    "reward_defeat": 0, "reward_negative_scale": 0.5, "reward_only_positive": True, "reward_scale": True,
    "reward_scale_rate": 20, "reward_sparse": False, "reward_win": 200, "replay_dir": "", "replay_prefix": "",
    "conic_fov": False, "obs_own_pos": True, "use_unit_ranges": True, "min_attack_range": 2, "num_fov_actions": 12,
    "state_last_action": True, "state_timestep_number": False, "step_mul": 8, "heuristic_ai": False, "debug": False,
    "prob_obs_enemy": 1.0, "action_mask": True,
}  # fmt: skip


def episode(env, seed: int = 0) -> tuple[float, int, dict]:
    rng, total, steps = np.random.default_rng(seed), 0.0, 0
    env.reset()
    while True:
        actions = [rng.choice(np.flatnonzero(env.get_avail_agent_actions(i))) for i in range(env.n_agents)]
        reward, terminated, info = env.step(actions)
        total, steps = total + reward, steps + 1
        if terminated:
            return total, steps, info


def test_a_trainer_written_for_smacv2_plays_an_episode():
    env = StarCraftCapabilityEnvWrapper(capability_config=config(), seed=3, **PUBLISHED)
    info = env.get_env_info()
    expected = {"state_shape": 120, "obs_shape": 82, "cap_shape": 3, "n_actions": 11, "n_agents": 5}
    assert {key: info[key] for key in expected} == expected and info["episode_limit"] == 200
    obs, state = env.reset()
    assert len(obs) == 5 and obs[0].shape == (82,) and state.shape == (120,)
    assert env.get_capabilities().shape == (15,) and env.get_capabilities_agent(0).sum() == 1
    assert len(env.get_obs_feature_names()) == 82 and len(env.get_state_feature_names()) == 120
    assert env.get_visibility_matrix().shape == (5, 10)
    total, steps, info = episode(env)
    assert 0 <= total < 25 and 1 <= steps <= 200 and set(info) == {"battle_won", "dead_allies", "dead_enemies"}
    assert env.get_stats()["battles_game"] == 1
    env.reset()
    with pytest.raises(ValueError, match="cannot perform action 0"):
        env.step([0] * 5)
    env.close()


def test_the_seed_decides_the_draws():
    plays = [episode(StarCraftCapabilityEnvWrapper(capability_config=config(), seed=s, **PUBLISHED)) for s in (1, 1, 2)]
    assert plays[0] == plays[1] and plays[0] != plays[2]


def test_feature_names_match_the_sizes_with_every_option():
    uniform = {"dist_type": "per_agent_uniform", "lower_bound": [0.2], "upper_bound": [0.4], "observe": True}
    options = {"conic_fov": True, "obs_last_action": True, "obs_timestep_number": True, "state_timestep_number": True}
    env = StarCraft2Env("10gen_terran", capability_config=config(attack=uniform, health=uniform), **options)
    assert len(env.get_obs_feature_names()) == env.get_obs_size()
    assert len(env.get_state_feature_names()) == env.get_state_size()
    assert len(env.get_env_info()["agent_features"]) == env.env.layout.unit_dim


def test_class_defaults_are_those_of_smacv2s_class():
    env = StarCraft2Env("10gen_terran", capability_config=config())
    assert not env.env.options.use_unit_ranges and not env.env.options.obs_own_pos


def test_reset_takes_what_the_wrapper_of_smacv2_would_draw():
    env = StarCraft2Env("10gen_terran", capability_config=config(), use_unit_ranges=True, random_spawn=0.0)
    team = ["medivac", "marine", "marauder", "marine", "marine"]
    places = [[3.0, 3.0 + 4 * i] for i in range(5)]
    teams = {"ally_team": team, "enemy_team": team, "id": 0}
    given = {"team_gen": teams, "ally_start_positions": {"item": places, "id": 0}}
    env.reset({**given, "enemy_start_positions": {"item": [[29.0, y] for _, y in places], "id": 0}})
    bits = env.get_capabilities().reshape(5, 3).argmax(axis=1)
    assert bits.tolist() == [1, 0, 0, 0, 2]  # marauder, marines, medivac
    np.testing.assert_allclose(env._state.world.y[:5], [11, 7, 15, 19, 3], atol=1e-4)
    np.testing.assert_allclose(env._state.world.x[5:], 29, atol=1e-4)


@pytest.mark.parametrize(
    "wrong, hint",
    [({"step_mul": 4}, "step_mul"), ({"obs_own_position": True}, "obs_own_pos"), ({"map_name": "8m"}, "8m")],
)
def test_what_cannot_be_done_is_refused(wrong, hint):
    with pytest.raises(EnvError, match=hint):
        StarCraft2Env(**{"map_name": "10gen_terran", "capability_config": config(), **wrong})


def test_pictures_follow_the_fight():
    env = make("zerg_5_vs_5")
    state = jax.device_get(env.reset(jax.random.key(0)))
    close = state._replace(world=state.world._replace(x=state.world.x * 0.1 + 5, y=state.world.y * 0.1 + 20))
    camera = frame(env.roster_of(state).terrain, close)
    assert camera.width < 15 and abs(camera.x - 7) < 2 and abs(camera.y - 22) < 2
    film = list(frames(env, [state, close, close], between=2))
    assert len(film) == 1 + 2 * 2 + 8 and len({picture.shape for picture in film}) == 1 and film[0].std() > 3


def test_sketches_show_each_unit_as_one_figure_of_its_type():
    env = make("protoss_5_vs_5")
    state = jax.device_get(env.reset(jax.random.key(0)))
    assert isinstance(env, Sketchable)
    sketch = env.sketch(np.asarray(env.state(state))[None])
    there = np.flatnonzero(sketch.figures[0, :, 2] > 0)
    assert (there // 3).tolist() == list(range(10)) and (there % 3).tolist() == state.kinds.tolist()
    assert len(sketch.scene["figures"]) == 30
