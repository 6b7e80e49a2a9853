"""Battles of SMACv2: whom enemies hunt, which orders stand, medivacs, rewards, ends, health levels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.envs.smacv2.draws import Setup
from emu.envs.smacv2.env import Smacv2Env, make
from emu.envs.smacv2.state import State

from ..smac.common import play

STOP, NORTH, EAST = 1, 2, 4
TEAM = {"dist_type": "weighted_teams", "weights": [0.4, 0.4, 0.2]}
TYPES = {
    "terran": ["marine", "marauder", "medivac"],
    "protoss": ["stalker", "zealot", "colossus"],
    "zerg": ["zergling", "hydralisk", "baneling"],
}

Units = list[tuple[str, float, float]]


def fight(allies: Units, enemies: Units, more: dict | None = None, **options) -> tuple[Smacv2Env, State]:
    """An environment and its state with these units at these places; agents are numbered as SMACv2 does."""
    race = next(race for race, types in TYPES.items() if allies[0][0] in types)
    team = {**TEAM, "unit_types": TYPES[race]}
    config = {"n_units": len(allies), "n_enemies": len(enemies), "team_gen": team, **(more or {})}
    env = make("custom", config, random_spawn=0.0, **options)
    kinds = [jnp.array([TYPES[race].index(name) for name, *_ in side], jnp.int32) for side in (allies, enemies)]
    places = [jnp.array([place for _, *place in side], jnp.float32) for side in (allies, enemies)]
    extra = env.capabilities
    numbers = {key: jnp.full(len(allies), 0.5) for key in ("attack", "health") if getattr(extra, key)}
    return env, env.begin(Setup(*kinds, *places, **numbers), jax.random.key(0))


def run(env: Smacv2Env, state: State, *steps, seed: int = 0) -> State:
    step = jax.jit(env.step)
    for k, action in enumerate(steps):
        state, _ = step(state, jnp.asarray(action, jnp.int32), jax.random.key(seed + k))
    return state


def test_enemies_walk_to_the_nearest_ally_from_anywhere_and_stay_with_it():
    env, state = fight([("zergling", 4, 4), ("zergling", 4, 28)], [("hydralisk", 30, 20), ("zergling", 29, 6)])
    after = run(env, state, [STOP, STOP], [STOP, STOP])
    assert np.asarray(after.world.target)[2:].tolist() == [1, 0]
    assert after.world.x[2] < 29.3 and after.world.x[3] < 28
    nearer = after._replace(
        world=after.world._replace(y=after.world.y.at[0].set(19.0), x=after.world.x.at[0].set(27.0))
    )
    assert np.asarray(run(env, nearer, [STOP, STOP]).world.target)[2] == 1  # another one close by does not distract it


def test_an_enemy_whose_target_died_takes_the_next():
    env, state = fight([("zergling", 4, 4), ("zergling", 4, 28)], [("hydralisk", 30, 20)])
    after = run(env, state, [STOP, STOP])
    gone = after._replace(world=after.world._replace(life=after.world.life.at[1].set(0.0)))
    assert int(run(env, gone, [STOP, 0]).world.target[2]) == 0


def test_idle_enemies_are_sent_off_within_half_a_second_at_a_phase_of_the_episode():
    env, _ = fight([("zergling", 4, 4)], [("zergling", 28, 28)])
    begun = []
    for k in range(12):
        setup = Setup(*(jnp.zeros(1, jnp.int32),) * 2, jnp.full((1, 2), 4.0), jnp.full((1, 2), 28.0))
        after = run(env, env.begin(setup, jax.random.key(k)), [STOP])
        begun.append(round(float(jnp.hypot(after.world.x[1] - 28, after.world.y[1] - 28)) / 0.1846))
    assert min(begun) >= 1 and max(begun) <= 8 and len(set(begun)) > 2


def test_enemy_marauders_stand_idle_while_their_nearest_opponent_flies():
    env, state = fight([("marine", 4, 28), ("medivac", 20, 4)], [("marauder", 30, 4)])
    after = run(env, state, [STOP, STOP], [STOP, STOP])
    assert int(after.world.target[2]) == -1 and float(after.world.x[2]) == pytest.approx(30, abs=0.01)


def test_enemy_medivacs_stay_where_they_are_and_heal_who_is_near():
    env, state = fight([("marine", 4, 4)], [("medivac", 28, 28), ("marauder", 27, 27), ("marauder", 14, 28)])
    hurt = state._replace(world=state.world._replace(life=state.world.life.at[2:].set(60.0)))
    after = run(env, hurt, [STOP])
    assert float(after.world.life[2]) > 62 and float(after.world.life[3]) == 60
    far = run(env, state, *[[STOP]] * 4)
    assert abs(float(far.world.x[1]) - 28) < 0.2  # nobody to heal: it does not follow the army


def test_a_medivac_heals_the_agent_with_the_targets_number():
    env, state = fight([("marauder", 10, 10), ("marine", 11, 10), ("medivac", 12, 10)], [("marine", 30, 30)])
    assert np.asarray(env.avail(state))[2, 6:].tolist() == [True, True, False]
    hurt = state._replace(world=state.world._replace(life=state.world.life.at[:2].set(20.0)))
    after = run(env, hurt, [STOP, STOP, 6 + 1])
    assert float(after.world.life[0]) == 20 and float(after.world.life[1]) > 23


def test_out_of_reach_orders_without_masks_send_nothing_and_the_last_order_stands():
    allies, enemies = [("marine", 10, 10)], [("marine", 30, 30)]
    env, state = fight(allies, enemies, action_mask=False)
    assert bool(env.avail(state)[0, 6])
    still = run(env, state, [6])
    assert float(still.world.x[0]) == 10 and float(still.world.y[0]) == 10
    walked = run(env, state, [EAST], [6], [6])
    assert float(walked.world.x[0]) == pytest.approx(12, abs=0.02)  # the walk of two cells is finished, and no more
    stopped = run(env, state, [EAST], [STOP], [6])
    assert float(stopped.world.x[0]) == pytest.approx(11.125, abs=0.01)


def test_a_chase_goes_on_while_orders_are_not_sent():
    env, state = fight([("zealot", 10, 16)], [("stalker", 11.9, 16)], action_mask=False)
    chasing = run(env, state, [6])
    assert int(chasing.standing.target[0]) == 1
    fled = chasing._replace(world=chasing.world._replace(x=chasing.world.x.at[1].set(18.0)))
    assert float(run(env, fled, [6], [6]).world.x[0]) > float(fled.world.x[0]) + 1.2


def test_turning_the_cone_takes_effect_at_once_and_sends_no_order():
    env, state = fight([("stalker", 10, 10)], [("stalker", 10, 14)], conic_fov=True)
    assert not bool(env.avail(state)[0, 18])
    after = run(env, state, [6 + 3])
    assert int(after.direction[0]) == 3 and bool(env.avail(after)[0, 18])
    assert np.asarray(env.observe(after))[0, -5:-3].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert float(after.world.x[0]) == pytest.approx(10, abs=0.05)


def test_attacks_with_a_probability_are_sent_that_often():
    attack = {"attack": {"dist_type": "per_agent_uniform", "lower_bound": [0.5], "upper_bound": [0.5]}}
    env, state = fight([("stalker", 10, 10)], [("stalker", 14, 10)], attack)
    sent = jax.vmap(lambda key: env._sent(state, jnp.array([6]), key))(jax.random.split(jax.random.key(0), 2000))
    assert abs(float(sent.mean()) - 0.5) < 0.04
    assert bool(env._sent(state, jnp.array([EAST]), jax.random.key(0))[0])


def test_units_below_their_health_level_die_in_the_step_after_it_was_seen():
    health = {"health": {"dist_type": "per_agent_uniform", "lower_bound": [0.5], "upper_bound": [0.5]}}
    env, state = fight([("marine", 4, 4), ("marine", 6, 4)], [("marine", 30, 30)], health)
    hurt = state._replace(world=state.world._replace(life=state.world.life.at[0].set(20.0).at[1].set(25.0)))
    after = run(env, hurt, [STOP, STOP])
    assert float(after.world.life[0]) == 0 and float(after.world.life[1]) == 25
    own = np.asarray(env.observe(after))[1, -7:-5]
    assert own[0] == pytest.approx((25 / 45 - 0.5) / 0.5, abs=1e-5) and own[1] == 0.5


def judged(env: Smacv2Env, before: State, life: list[float], step: int = 5):
    after = before._replace(world=before.world._replace(life=jnp.array(life, jnp.float32)), step=jnp.int32(step))
    return env._judge(before, after)


def test_rewards_are_clipped_damage_and_kills_on_the_scale_of_the_average_team():
    env, state = fight([("zergling", 4, 4), ("zergling", 6, 4)], [("zergling", 20, 20), ("hydralisk", 25, 25)])
    scale = 20 / env.max_reward
    assert float(judged(env, state, [35, 35, 25, 80]).reward) == pytest.approx(10 * scale)
    assert float(judged(env, state, [35, 35, 0, 80]).reward) == pytest.approx(45 * scale)
    hurt = state._replace(world=state.world._replace(life=jnp.array([35.0, 35, 20, 60])))
    assert float(judged(env, hurt, [35, 35, 35, 65]).reward) == 0  # regeneration costs nothing
    assert float(judged(env, hurt, [35, 35, 35, 50]).reward) == 0  # but offsets damage to another
    signed, state = fight([("zergling", 4, 4)], [("zergling", 20, 20)], reward_only_positive=False)
    assert float(judged(signed, state, [0, 35]).reward) == pytest.approx(-0.5 * 45 * 20 / signed.max_reward)


def test_a_win_is_worth_twenty_on_the_scale_of_ones_own_enemies():
    env, state = fight([("stalker", 4, 4)], [("colossus", 20, 20)], scale_by_own_team=True)
    kill = state.world._replace(life=jnp.array([80.0, 0]), shield=jnp.array([80.0, 0]))
    outcome = env._judge(state, state._replace(world=kill, step=jnp.int32(3)))
    assert outcome.won and float(outcome.reward) == pytest.approx(20)


def test_sparse_rewards_are_scaled_too():
    env, state = fight([("zergling", 4, 4)], [("zergling", 20, 20)], reward_sparse=True)
    assert float(judged(env, state, [35, 0]).reward) == pytest.approx(20 / env.max_reward)
    assert float(judged(env, state, [0, 35]).reward) == pytest.approx(-20 / env.max_reward)
    assert float(judged(env, state, [35, 5]).reward) == 0


def test_ends_of_zerg_battles():
    env, state = fight([("zergling", 4, 4), ("zergling", 6, 4)], [("zergling", 20, 20)])
    ends = {"going on": [35, 0, 35], "won": [0, 35, 0], "lost": [0, 0, 35], "draw": [0, 0, 0]}
    outcomes = {name: judged(env, state, life) for name, life in ends.items()}
    assert {name: bool(o.terminated) for name, o in outcomes.items()} == {
        "going on": False, "won": True, "lost": True, "draw": True,
    }  # fmt: skip
    assert [name for name, o in outcomes.items() if o.won] == ["won"]
    late = judged(env, state, ends["going on"], step=200)
    assert late.terminated and not late.won and not late.truncated
    env, state = fight([("zergling", 4, 4)], [("zergling", 20, 20)], timeout_truncates=True)
    late = judged(env, state, [35, 35], step=200)
    assert late.truncated and not late.terminated


def test_terran_sides_of_medivacs_only_have_lost():
    allies = [("marine", 4, 4), ("medivac", 6, 4), ("medivac", 8, 4)]
    env, state = fight(allies, [("marine", 20, 20), ("medivac", 22, 20), ("medivac", 24, 20)])
    assert judged(env, state, [45, 150, 0, 0, 150, 150]).won  # any number of medivacs is left
    lost = judged(env, state, [0, 150, 150, 45, 0, 0])
    assert lost.terminated and not lost.won
    both = judged(env, state, [0, 150, 0, 0, 0, 0])  # on neither side anybody who can fight: lost
    assert both.terminated and not both.won


def test_partial_observability_as_published_plays():
    env = make("terran_5_vs_5", prob_obs_enemy=0.0, action_mask=False, enemy_row_bug=True)
    step = jax.jit(env.step)
    state = env.reset(jax.random.key(0))
    for k in range(5):
        avail = env.avail(state)
        action = jnp.argmax(jnp.where(avail, jax.random.uniform(jax.random.key(k), avail.shape), -1), axis=1)
        state, outcome = step(state, action.astype(jnp.int32), jax.random.key(k))
    assert np.isfinite(np.asarray(env.observe(state))).all() and np.isfinite(float(outcome.reward))


def test_one_copy_and_many_copies_agree():
    env = make("protoss_5_vs_5")
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4))
    action = jnp.ones((4, 5), jnp.int32)
    keys = jax.random.split(jax.random.key(1), 4)
    many, _ = jax.jit(jax.vmap(env.step))(states, action, keys)
    one, _ = jax.jit(env.step)(jax.tree.map(lambda a: a[2], states), action[2], keys[2])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(a, b[2], atol=1e-4)


def test_all_teams_of_a_race_share_one_program():
    env = make("terran_5_vs_5")
    traces = []

    @jax.jit
    def step(state, action, key):
        traces.append(1)
        return env.step(state, action, key)

    for k in range(3):
        step(env.reset(jax.random.key(k)), jnp.ones(5, jnp.int32), jax.random.key(k))
    assert len(traces) == 1


# what a random policy does in the real game: mean length of 4, 12, 4 first episodes of the authors' runs
REAL_LENGTHS = {"terran_5_vs_5": 49.8, "protoss_5_vs_5": 58.2, "zerg_5_vs_5": 35.5}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL_LENGTHS)
def test_random_battles_last_as_long_as_real_ones(name):
    result = play(make(name), "random", 768)
    assert result["length_mean"] == pytest.approx(REAL_LENGTHS[name], rel=0.15)
    assert result["win_rate"] < 0.03
