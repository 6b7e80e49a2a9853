"""Observations, states, availability and tags against the slow oracle, over made-up moments of battles."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.envs.smacv2 import sight
from emu.envs.smacv2.env import Smacv2Env, make

from .oracle import Oracle, TagOracle, battle

EVERYTHING = {
    "n_units": 4,
    "n_enemies": 3,
    "team_gen": {
        "dist_type": "weighted_teams",
        "unit_types": ["marine", "marauder", "medivac"],
        "weights": [0.45, 0.45, 0.1],
        "exception_unit_types": ["medivac"],
        "observe": False,
    },
    "start_positions": {"dist_type": "surrounded"},
    "attack": {"dist_type": "per_agent_uniform", "lower_bound": [0.2], "upper_bound": [0.9], "observe": True},
    "health": {"dist_type": "per_agent_uniform", "lower_bound": [0.0], "upper_bound": [0.4], "observe": True},
    "enemy_mask": {"dist_type": "mask", "mask_probability": 0.5},
}

ENVIRONMENTS: dict[str, Smacv2Env] = {
    "terran": make("terran_5_vs_5", obs_last_action=True),
    "protoss": make("protoss_10_vs_11", state_timestep_number=True),
    "zerg": make("zerg_5_vs_5", use_unit_ranges=False, obs_own_pos=False, obs_timestep_number=True),
    "without masks": make("terran_5_vs_5", action_mask=False),
    "cone": make("terran_5_vs_5", conic_fov=True),
    "cone of eight": make("protoss_5_vs_5", conic_fov=True, num_fov_actions=8),
    "fully observable": make("zerg_5_vs_5", fully_observable=True),
    "all capabilities": make("custom", EVERYTHING),
}


@functools.cache
def seen(name: str):
    env = ENVIRONMENTS[name]
    return jax.jit(lambda s: (env.observe(s), env.state(s), env.avail(s)))


@pytest.mark.parametrize("name", ENVIRONMENTS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_vectors_follow_the_rules(name, seed):
    env = ENVIRONMENTS[name]
    state = battle(env, np.random.default_rng(seed), spread=32.0 if seed % 2 else 10.0)
    oracle = Oracle(env, state)
    obs, vector, avail = (np.asarray(array) for array in seen(name)(state))
    agents = range(env.spec.n_agents)
    assert avail.tolist() == [oracle.available(i) for i in agents]
    np.testing.assert_allclose(obs, [oracle.observation(i) for i in agents], atol=1e-5)
    np.testing.assert_allclose(vector, oracle.full_state(), atol=1e-5)


def test_moves_at_the_low_borders_stay_available_and_vanish_at_the_high_ones():
    env = make("zerg_5_vs_5")
    state = env.reset(jax.random.key(0))
    x, y = jnp.array([0.4, 30.9, 31.0, 16.0, 16.0]), jnp.array([16.0, 16.0, 16.0, 0.4, 31.5])
    w = state.world._replace(x=state.world.x.at[:5].set(x), y=state.world.y.at[:5].set(y))
    moves = np.asarray(env.avail(state._replace(world=w)))[:, 2:6].tolist()
    assert moves[0] == [True] * 4 and moves[1] == [True] * 4 and moves[3] == [True] * 4
    assert moves[2] == [True, True, False, True] and moves[4] == [False, True, True, True]


@pytest.mark.parametrize(
    "looking, seen_at",
    [
        (0, [(-15, 15), (165, 195)]),  # east sees west as well
        (1, [(15, 45), (90, 105)]),
        (2, [(45, 75), (90, 105)]),
        (3, [(75, 105)]),
        (4, [(105, 135), (75, 90)]),
        (5, [(135, 165), (75, 90)]),
        (6, [(165, 195), (-15, 15)]),
        (7, [(195, 225), (270, 285)]),
        (8, [(225, 255), (270, 285)]),
        (9, [(255, 285)]),
        (10, [(285, 315), (255, 270)]),
        (11, [(315, 345), (255, 270)]),
    ],
)
def test_the_cone_has_ghost_wedges(looking, seen_at):
    angles = np.arange(0.5, 360, 1.0)
    dx, dy = np.cos(np.radians(angles)), np.sin(np.radians(angles))
    found = np.asarray(sight.in_cone(jnp.array([looking]), 12, jnp.asarray(dx)[None], jnp.asarray(dy)[None]))[0]
    expected = [any((a - low) % 360 < (high - low) for low, high in seen_at) for a in angles]
    assert found.tolist() == expected


@pytest.mark.parametrize("bug", [False, True])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), probability=st.sampled_from([0.0, 0.4, 1.0]))
def test_tags_follow_the_rules(bug, seed, probability):
    n, m, rng = 4, 5, np.random.default_rng(seed)
    oracle, tags = TagOracle(n, m), sight.no_tags(n, m)
    allies, enemies = np.ones(n, bool), np.ones(m, bool)
    for _ in range(4):
        allies, enemies = allies & (rng.random(n) < 0.9), enemies & (rng.random(m) < 0.8)
        near = rng.random((n, m)) < 0.4
        key = jax.random.key(int(rng.integers(2**31)))
        order_key, admit_key = jax.random.split(key)  # the environment's draws, handed to the oracle
        order = np.argsort(np.asarray(jax.random.uniform(order_key, (n,)))).tolist()
        admitted = np.asarray(jax.random.uniform(admit_key, (m, n))) < probability
        oracle.forget(allies, enemies)
        expected = oracle.look(order, near, allies, admitted, bug)
        tags = sight.forget(tags, jnp.asarray(allies), jnp.asarray(enemies))
        tags = sight.tag(tags, jnp.asarray(near), jnp.asarray(allies), probability, bug, key)
        assert np.asarray(tags.first).tolist() == [-1 if t is None else t for t in oracle.tag]
        assert np.asarray(tags.seen)[:, allies].tolist() == oracle.seen[:, allies].tolist()
        assert np.asarray(tags.shown)[allies].tolist() == expected[allies].tolist()


def test_tags_hide_rows_from_those_who_did_not_find_the_enemy():
    env = make("zerg_5_vs_5", prob_obs_enemy=0.0)
    state = env.reset(jax.random.key(3))
    middle = jnp.full(10, 16.0) + jnp.arange(10) * 0.1
    state = env._look(state._replace(world=state.world._replace(x=middle, y=middle)), jax.random.key(1))
    rows = np.asarray(env.observe(state))[:, 4 : 4 + 5 * 8].reshape(5, 5, 8)
    assert (np.abs(rows).sum(axis=2) > 0).sum(axis=0).tolist() == [1] * 5  # each enemy is shown to one agent
    published = make("zerg_5_vs_5")
    rows = np.asarray(published.observe(state._replace(tags=None)))[:, 4 : 4 + 5 * 8].reshape(5, 5, 8)
    assert (np.abs(rows).sum(axis=2) > 0).all()


def test_the_row_bug_blanks_all_rows_until_the_last_enemy_is_sighted():
    env = make("zerg_5_vs_5", enemy_row_bug=True)
    state = env.reset(jax.random.key(3))
    x = jnp.concatenate([jnp.full(9, 4.0) + jnp.arange(9) * 0.2, jnp.array([30.0])])
    away = env._look(state._replace(world=state.world._replace(x=x, y=x)), jax.random.key(1))
    assert not np.asarray(env.observe(away))[:, 4:44].any()
    assert np.asarray(env.avail(away))[:, 6:10].any()  # availability betrays them
    near = away._replace(world=away.world._replace(x=x.at[9].set(5.0), y=x.at[9].set(5.0)))
    assert np.asarray(env.observe(env._look(near, jax.random.key(2))))[:, 4:44].any()
