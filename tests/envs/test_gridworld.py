"""The didactic gridworld, by hand: where things are, who sees whom, what is paid, how it ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env
from emu.envs.gridworld import GridState, GridWorld
from emu.errors import EnvError

UP, DOWN, LEFT, RIGHT, STAY = range(5)
KEY = jax.random.PRNGKey(0)


def at(first, second, time=0, env=None):
    noise = env.noise_dim if env else 0
    return GridState(jnp.array([first, second], jnp.int32), jnp.int32(time), jnp.zeros((2, noise)))


def play(env, state, *joint_actions, key=KEY):
    """Apply joint actions one by one; the last state and all outcomes as plain numbers."""
    outcomes = []
    for number, action in enumerate(joint_actions):
        avail = np.asarray(env.avail(state))
        assert avail[0, action[0]] and avail[1, action[1]], f"action {number} is unavailable"
        state, outcome = env.step(state, jnp.array(action, jnp.int32), jax.random.fold_in(key, number))
        outcomes.append(tuple(x.item() for x in outcome))
    return state, outcomes


def test_published_set_up():
    spec = envs.make("gridworld").spec
    assert (spec.n_agents, spec.n_actions, spec.episode_limit) == (2, 5, 30)
    assert (spec.obs_dim, spec.state_dim, spec.unit_dim) == (46, 92, 46)
    assert spec.has_goal and spec.return_range == (-58.0, 10.0)
    env = GridWorld()
    assert (env.rows, env.columns, env.penalty, env.sight) == (11, 12, 2.0, "reversed")
    assert env.starts.tolist() == [[0, 0], [10, 11]]
    assert env.goals.tolist() == [[5, 5], [5, 6]]
    assert env.light_room == (3, 7, 3, 8)
    np.testing.assert_array_equal(env.reset(KEY).position, env.starts)


def test_smaller_set_up():
    env = envs.make("gridworld/small")
    assert (env.rows, env.columns, env.penalty) == (9, 12, 0.5)
    assert env.goals.tolist() == [[4, 5], [4, 6]]


@pytest.mark.parametrize(
    ("first", "second", "available"),
    [
        ((0, 0), (10, 11), ([DOWN, RIGHT, STAY], [UP, LEFT, STAY])),  # corners
        ((4, 5), (4, 6), ([UP, DOWN, LEFT, STAY], [UP, DOWN, RIGHT, STAY])),  # on both sides of the middle line
        ((3, 3), (3, 8), ([UP, DOWN, LEFT, RIGHT, STAY], [UP, DOWN, LEFT, RIGHT, STAY])),
        ((10, 0), (0, 11), ([UP, RIGHT, STAY], [DOWN, LEFT, STAY])),
    ],
)
def test_walls_and_the_middle_line_close_moves(first, second, available):
    found = np.asarray(GridWorld().avail(at(first, second)))
    assert [np.flatnonzero(row).tolist() for row in found] == [list(a) for a in available]


def test_moves_move():
    env = GridWorld()
    state, _ = play(env, at((3, 3), (3, 8)), (UP, DOWN), (LEFT, RIGHT), (STAY, STAY), (DOWN, UP), (RIGHT, LEFT))
    assert state.position.tolist() == [[3, 3], [3, 8]] and int(state.time) == 5


def test_both_arriving_together_win():
    _, outcomes = play(GridWorld(), at((5, 4), (5, 7)), (RIGHT, LEFT))
    assert outcomes == [(10.0, True, False, True)]


def test_arriving_alone_costs_and_goes_on():
    state, outcomes = play(GridWorld(), at((5, 4), (5, 8)), (RIGHT, LEFT), (STAY, STAY), (STAY, LEFT))
    assert outcomes == [(-2.0, False, False, False), (-2.0, False, False, False), (10.0, True, False, True)]
    assert state.position.tolist() == [[5, 5], [5, 6]]


def test_the_penalty_is_a_setting():
    _, outcomes = play(GridWorld(penalty=0.5), at((5, 4), (5, 8)), (RIGHT, STAY))
    assert outcomes[0][0] == -0.5


def test_the_clock_truncates():
    env = GridWorld(limit=3)
    _, outcomes = play(env, env.reset(KEY), (STAY, STAY), (STAY, STAY), (STAY, STAY))
    assert [o[1:3] for o in outcomes] == [(False, False), (False, False), (False, True)]


def test_the_clock_terminates_where_asked_to():
    env = GridWorld(limit=1, timeout="terminated")
    _, outcomes = play(env, env.reset(KEY), (STAY, STAY))
    assert outcomes == [(0.0, True, False, False)]


def test_winning_in_the_last_step_is_no_truncation():
    _, outcomes = play(GridWorld(limit=8), at((5, 4), (5, 7), time=7), (RIGHT, LEFT))
    assert outcomes == [(10.0, True, False, True)]


IN, OUT = (4, 4), (0, 0)  # of agent 0: inside and outside the light room
IN_2, OUT_2 = (6, 7), (10, 11)  # of agent 1


@pytest.mark.parametrize(
    ("sight", "both_in", "first_in", "second_in", "none_in"),
    [
        ("origin", (1, 1), (1, 0), (0, 1), (0, 0)),
        ("reversed", (1, 1), (0, 1), (1, 0), (0, 0)),
        ("full_observation", (1, 1), (1, 1), (1, 1), (1, 1)),
        ("pomdp", (1, 1), (0, 0), (0, 0), (0, 0)),
    ],
)
def test_who_sees_whom(sight, both_in, first_in, second_in, none_in):
    env = GridWorld(sight=sight)
    for places, expected in (
        ((IN, IN_2), both_in),
        ((IN, OUT_2), first_in),
        ((OUT, IN_2), second_in),
        ((OUT, OUT_2), none_in),
    ):
        obs = np.asarray(env.observe(at(*places)))
        assert tuple(int(row[23:].any()) for row in obs) == expected, places


def test_light_room_includes_its_edges():
    env = GridWorld(sight="origin")
    for row in range(11):
        for column in range(6):
            seen = np.asarray(env.observe(at((row, column), OUT_2)))[0, 23:].any()
            assert seen == (3 <= row <= 7 and column >= 3)


def test_observation_holds_oneself_then_the_other():
    obs = np.asarray(GridWorld(sight="full_observation").observe(at((2, 3), (9, 10))))
    assert np.flatnonzero(obs[0]).tolist() == [2, 11 + 3, 23 + 9, 23 + 11 + 10]
    assert np.flatnonzero(obs[1]).tolist() == [9, 11 + 10, 23 + 2, 23 + 11 + 3]


def test_state_is_both_observations():
    env, state = GridWorld(), at(IN, IN_2)
    np.testing.assert_array_equal(env.state(state), np.asarray(env.observe(state)).reshape(-1))


def test_no_slip_by_default_and_always_available_when_slipping():
    env = GridWorld(slip=1.0)
    keys = jax.random.split(KEY, 400)
    start = env.reset(KEY)
    moved = jax.vmap(lambda k: env.step(start, jnp.array([STAY, STAY]), k)[0].position)(keys)
    places = [{tuple(p) for p in np.asarray(moved[:, agent]).tolist()} for agent in range(2)]
    assert places == [{(0, 0), (1, 0), (0, 1)}, {(10, 11), (9, 11), (10, 10)}]
    share = np.mean((np.asarray(moved[:, 0]) == [0, 0]).all(-1))
    assert 0.2 < share < 0.47  # one of three available moves


def test_slip_happens_as_often_as_said():
    env = GridWorld(slip=0.3)
    start = at((5, 2), (5, 9))
    keys = jax.random.split(KEY, 1000)
    moved = jax.vmap(lambda k: env.step(start, jnp.array([UP, UP]), k)[0].position)(keys)
    elsewhere = (np.asarray(moved) != [[4, 2], [4, 9]]).any(-1).mean(0)
    assert np.all(np.abs(elsewhere - 0.3 * 4 / 5) < 0.06)  # one in five random moves is the intended one


def test_noise_features_are_fresh_normal_numbers_in_observation_and_state():
    env = GridWorld(noise_dim=3)
    assert (env.spec.obs_dim, env.spec.state_dim) == (49, 98)
    states = jax.vmap(env.reset)(jax.random.split(KEY, 500))
    noise = np.asarray(jax.vmap(env.observe)(states))[..., -3:]
    assert abs(noise.mean()) < 0.1 and abs(noise.std() - 1) < 0.1
    following, _ = env.step(env.reset(KEY), jnp.array([STAY, STAY]), KEY)
    assert not np.array_equal(following.noise, env.reset(KEY).noise)


def test_reward_noise_is_paid_in_the_top_rows_only():
    env = GridWorld(reward_noise=3.0)
    keys = jax.random.split(KEY, 1000)

    def rewards(first, second):
        return np.asarray(jax.vmap(lambda k: env.step(at(first, second), jnp.array([STAY, STAY]), k)[1].reward)(keys))

    assert not rewards((5, 0), (5, 11)).any()
    assert abs(rewards((1, 0), (5, 11)).std() - 3.0) < 0.3
    assert abs(rewards((0, 0), (1, 11)).std() - 3.0 * 2**0.5) < 0.4


def test_golden_game():
    """A whole game by the straight way: agent 0 walks right, then down; agent 1 left, then up, and is one early."""
    env = envs.make("gridworld")
    joint = [(RIGHT, LEFT)] * 5 + [(DOWN, UP)] * 4 + [(STAY, UP), (STAY, STAY), (DOWN, STAY)]
    state, outcomes = play(env, env.reset(KEY), *joint)
    assert state.position.tolist() == [[5, 5], [5, 6]] and int(state.time) == 12
    assert [o[0] for o in outcomes] == [0.0] * 9 + [-2.0, -2.0, 10.0]
    assert [o[1] for o in outcomes] == [False] * 11 + [True] and outcomes[-1][3]
    assert not any(o[2] for o in outcomes)


SMALL = [name for name in envs.registered() if name.startswith(("gridworld", "matrix/"))]


@pytest.mark.parametrize("name", SMALL)
def test_registered_small_environments_keep_their_contract(name):
    check_env(envs.make(name), episodes=3)


@pytest.mark.parametrize("args", [{"slip": 0.5}, {"noise_dim": 2}, {"timeout": "terminated"}, {"sight": "pomdp"}])
def test_variants_keep_the_contract(args):
    check_env(envs.make("gridworld/tiny", **args), episodes=2)


def test_reward_noise_has_no_bounded_return():
    assert envs.make("gridworld/tiny", reward_noise=1.0).spec.return_range == (-float("inf"), float("inf"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"sight": "reverse"}, "Did you mean 'reversed'"),
        ({"timeout": "never"}, "'truncated' or 'terminated'"),
        ({"columns": 7}, "even number of columns"),
        ({"rows": 2}, "at least 3 rows"),
        ({"slip": 1.5}, "0 <= slip <= 1"),
        ({"penalty": -1}, "penalty >= 0"),
    ],
)
def test_impossible_rooms_are_refused(args, message):
    with pytest.raises(EnvError, match=message):
        GridWorld(**args)


def test_unknown_names_and_arguments_are_refused_with_a_hint():
    with pytest.raises(EnvError, match=r"Did you mean 'gridworld'"):
        envs.make("gridwold")
    with pytest.raises(EnvError, match=r"has no argument 'penalti'. Did you mean 'penalty'"):
        envs.make("gridworld", penalti=1.0)


def test_pictures_show_the_agents():
    env = GridWorld()
    here, there = env.draw(env.reset(KEY)), env.draw(at((5, 5), (5, 6)))
    assert here.dtype == np.uint8 and here.shape == (12 * 36, 12 * 36, 3) and not np.array_equal(here, there)
