"""The environment around the simulator: vectors against a plain reading of the rules, rewards, ends of battles."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.envs.protocols import Env
from emu.envs.scripted import scripted_player
from emu.envs.smac.env import SmacEnv, State
from emu.envs.smac.roster import roster


@functools.cache
def rolled(name: str, steps: int, copies: int = 4):
    """A random rollout on the host: states (steps+1, E, ...), actions and outcomes."""
    env = SmacEnv(name)

    def step(state, key):
        keys = jax.random.split(key)
        action = scripted_player(env, "random")(env, state, keys[0])
        after, outcome = env.step(state, action, keys[1])
        return after, (state, action, outcome, env.observe(state), env.state(state), env.avail(state))

    def run(key):
        state = jax.vmap(env.reset)(jax.random.split(key, copies))
        return jax.lax.scan(
            lambda s, k: jax.vmap(step)(s, jax.random.split(k, copies)), state, jax.random.split(key, steps)
        )

    return env, jax.device_get(jax.jit(run)(jax.random.key(5))[1])


def reading(env: SmacEnv, w, i: int, e: int) -> list[float]:
    """What ally i sees of enemy e and of itself, in plain Python."""
    r, n = env.roster, env.roster.n_allies
    j = n + e
    dx, dy = w.x[j] - w.x[i], w.y[j] - w.y[i]
    distance = np.hypot(dx, dy)
    if w.life[i] <= 0 or w.life[j] <= 0 or distance >= 9:
        return [0.0] * 6
    return [float(distance <= 6), distance / 9, dx / 9, dy / 9, w.life[j] / r.life[j, 0], w.shield[j] / r.shield[j, 0]]


def test_it_is_an_environment():
    assert isinstance(SmacEnv("3m"), Env)


def test_observations_and_states_follow_the_rules():
    env, (states, _, _, obs, state, avail) = rolled("3s_vs_5z", 24)
    for t in (0, 12, 20, 23):
        w = jax.tree.map(lambda a, t=t: a[t, 0], states.world)
        for i in range(3):
            seen = obs[t, 0, i]
            assert np.array_equal(seen[:4], avail[t, 0, i, 2:6])
            expected = np.concatenate([reading(env, w, i, e) for e in range(5)])
            np.testing.assert_allclose(seen[4:34], expected, atol=1e-5)
            own = [w.life[i] / 80, w.shield[i] / 80] if w.life[i] > 0 else [0, 0]
            np.testing.assert_allclose(seen[-2:], own, atol=1e-5)
            place = [(w.x[i] - 16) / 32, (w.y[i] - 16) / 32] if w.life[i] > 0 else [0, 0]
            np.testing.assert_allclose(state[t, 0, 5 * i + 2 : 5 * i + 4], place, atol=1e-5)
        last = state[t, 0, 15 + 20 :].reshape(3, 11)
        assert (last.sum(axis=1) == (t > 0)).all()


def test_every_agent_has_an_action_always_and_the_dead_only_one():
    _, (states, action, _, _, _, avail) = rolled("3s_vs_5z", 24)
    assert avail.any(axis=-1).all()
    alive = states.world.life[:, :, :3] > 0
    assert (avail[..., 0] == ~alive).all() and (avail[..., 1] == alive).all()
    assert not avail[~alive][:, 1:].any()
    assert np.take_along_axis(avail, action[..., None], -1).all()


def test_rewards_are_health_differences_and_kills():
    _, (states, _, outcome, *_) = rolled("3s_vs_5z", 24)
    w = states.world
    health = (w.life + w.shield)[:, :, 3:].sum(-1)
    expected = np.abs(health[:-1] - health[1:]) * 20 / 1000
    no_kill = (w.life[:-1, :, 3:] > 0).sum(-1) == (w.life[1:, :, 3:] > 0).sum(-1)
    np.testing.assert_allclose(outcome.reward[:-1][no_kill], expected[no_kill], atol=1e-4)
    assert outcome.reward.max() > 0


def test_one_copy_and_many_copies_agree():
    env, (states, action, *_) = rolled("3s_vs_5z", 24)
    at = jax.tree.map(lambda a: a[8], states)
    keys = jax.random.split(jax.random.key(1), 4)
    many, _ = jax.jit(jax.vmap(env.step))(at, action[8], keys)
    one, _ = jax.jit(env.step)(jax.tree.map(lambda a: a[2], at), action[8, 2], keys[2])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(a, b[2], atol=1e-4)


def ending(env: SmacEnv, dead: list[int], before: list[int] = (), step: int = 10):
    """Outcome of a step after which the units `dead` are dead; those in `before` were so already."""
    start = env.reset(jax.random.key(0))
    kill = lambda w, who: w._replace(life=w.life.at[np.array(who, int)].set(0.0)) if len(who) else w  # noqa: E731
    earlier = kill(start.world, list(before))
    after = State(kill(earlier, dead), start.last_action, jnp.int32(step))
    return env._judge(earlier, after)


def test_winning_losing_and_drawing():
    env = SmacEnv("3m")
    won = ending(env, [3, 4, 5])
    assert won.terminated and won.won and float(won.reward) == pytest.approx(20.0)
    lost = ending(env, [0, 1, 2])
    assert lost.terminated and not lost.won and float(lost.reward) == 0
    draw = ending(env, [0, 1, 2, 3, 4, 5])
    assert draw.terminated and not draw.won and float(draw.reward) == pytest.approx(165 * 20 / 365)
    going_on = ending(env, [0, 3])
    assert not going_on.terminated and not going_on.truncated


def test_healers_do_not_hold_the_field_on_the_mmm_maps():
    env = SmacEnv("MMM2")
    assert ending(env, list(range(9))).terminated and not ending(env, list(range(9))).won  # only our medivac is left
    only_theirs = ending(env, [i for i in range(10, 21)])
    assert only_theirs.won and only_theirs.terminated
    both = ending(env, list(range(22)))
    assert both.terminated and not both.won


def test_time_limit_is_a_defeat_or_a_truncation():
    late = ending(SmacEnv("3m"), [], step=60)
    assert late.terminated and not late.truncated and not late.won
    late = ending(SmacEnv("3m", timeout_truncates=True), [], step=60)
    assert late.truncated and not late.terminated
    won = ending(SmacEnv("3m", timeout_truncates=True), [3, 4, 5], step=60)
    assert won.terminated and won.won and not won.truncated


def test_sparse_and_signed_rewards():
    sparse = SmacEnv("3m", reward_sparse=True)
    assert float(ending(sparse, [3]).reward) == 0
    assert float(ending(sparse, [3, 4, 5]).reward) == pytest.approx(20 / 365)  # SMAC scales it like the rest
    assert float(ending(sparse, [0, 1, 2]).reward) == pytest.approx(-20 / 365)
    unscaled = SmacEnv("3m", reward_sparse=True, reward_scale=0.0)
    assert float(ending(unscaled, [3, 4, 5]).reward) == 1 and float(ending(unscaled, [0, 1, 2]).reward) == -1
    signed = SmacEnv("3m", reward_only_positive=False)
    assert float(ending(signed, [0]).reward) == pytest.approx(-0.5 * 55 * 20 / 365)


def test_healing_of_enemies_pays_because_of_the_absolute_value():
    env = SmacEnv("MMM2")
    start = env.reset(jax.random.key(0))
    hurt = start.world._replace(life=start.world.life.at[10].add(-20.0))
    healed = env._judge(hurt, State(start.world, start.last_action, jnp.int32(5)))
    assert float(healed.reward) == pytest.approx(20 * 20 / 1205)


def test_medivac_may_heal_the_hurt_and_the_whole_but_no_medivac():
    env = SmacEnv("MMM2")
    avail = np.asarray(env.avail(env.reset(jax.random.key(0))))
    assert avail[9, 6:].tolist() == [True] * 9 + [False] * 3  # ally slots 0-8; itself and two empty slots
    assert not avail[:9, 6:].any()


def test_moves_into_cliffs_are_not_available():
    env = SmacEnv("3m")
    start = env.reset(jax.random.key(0))
    w = start.world._replace(
        x=start.world.x.at[:3].set(jnp.array([0.5, 16.0, 31.5])),
        y=start.world.y.at[:3].set(jnp.array([8.4, 23.4, 16.0])),
    )
    avail = np.asarray(env.avail(start._replace(world=w)))
    assert avail[:3, 2:6].tolist() == [[True, False, True, True], [False, True, True, True], [True, True, False, True]]


@pytest.mark.parametrize("place, moves", [((0.5, 0.5), "NSEW"), ((31.5, 31.5), "SW"), ((31.5, 0.5), "NSW")])
def test_at_the_low_borders_smac_lets_units_walk_out_at_the_high_ones_not(place, moves):
    """SMAC asks for the cell int(x - 1), int(y - 1), and int() cuts towards zero: -0.5 is cell 0, 32.5 is outside."""
    env = SmacEnv("3s_vs_5z")
    start = env.reset(jax.random.key(0))
    w = start.world._replace(x=start.world.x.at[0].set(place[0]), y=start.world.y.at[0].set(place[1]))
    avail = np.asarray(env.avail(start._replace(world=w)))[0, 2:6]
    assert "".join(np.array(list("NSEW"))[avail]) == moves


def test_the_dead_still_see_the_time_step():
    env = SmacEnv("3m", obs_timestep_number=True)
    start = env.reset(jax.random.key(0))
    w = start.world._replace(life=start.world.life.at[0].set(0.0))
    seen = np.asarray(env.observe(State(w, start.last_action, jnp.int32(15))))
    assert not seen[0, :-1].any() and seen[:, -1].tolist() == [0.25] * 3


def test_cooldown_divisors_are_smacs_own():
    r = roster(SmacEnv("1c3s5z").battle)
    assert {u.name: u.cooldown_divisor for u in r.units} == {"colossus": 24, "stalker": 35, "zealot": 22}


def test_a_step_is_traced_once():
    env = SmacEnv("3s_vs_5z")
    traces = []

    @jax.jit
    def step(state, action, key):
        traces.append(1)
        return env.step(state, action, key)

    state = env.reset(jax.random.key(0))
    for k in range(3):
        state, _ = step(state, jnp.ones(3, jnp.int32), jax.random.key(k))
    assert len(traces) == 1
