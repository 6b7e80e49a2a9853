"""One-step payoff games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env
from emu.envs.matrix import GAMES, MatrixGame
from emu.errors import EnvError

KEY = jax.random.PRNGKey(0)


@pytest.mark.parametrize("name", sorted(GAMES))
def test_every_joint_action_pays_its_entry_and_ends_the_game(name):
    env, table = envs.make(f"matrix/{name}"), np.array(GAMES[name])
    for action in np.ndindex(*table.shape):
        state, outcome = env.step(env.reset(KEY), jnp.array(action), KEY)
        assert float(outcome.reward) == table[action]
        assert bool(outcome.terminated) and not bool(outcome.truncated)
        assert bool(outcome.won) == (table[action] == table.max())
        assert tuple(state.action.tolist()) == action


def test_coordination_is_additive_and_monotonic_is_not():
    def additive(table):
        table = np.array(table)
        rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
        return np.allclose(table, rows + columns - table.mean())

    assert additive(GAMES["coordination"])
    assert not additive(GAMES["monotonic"]) and not additive(GAMES["nonmonotonic"])


def test_a_monotonic_mixer_can_order_the_actions_of_every_game_but_the_hard_ones():
    """An order of the own actions that is right whatever the other does: what monotonic mixing needs."""

    def ordered(table):
        table = np.array(table)
        return all(
            (t[:, None] >= t[None]).all(-1).__or__((t[:, None] <= t[None]).all(-1)).all() for t in (table, table.T)
        )

    assert ordered(GAMES["coordination"]) and ordered(GAMES["monotonic"])
    assert not ordered(GAMES["nonmonotonic"]) and not ordered(GAMES["climbing"])


def test_nonmonotonic_is_the_game_of_the_literature():
    assert GAMES["nonmonotonic"] == [[8, -12, -12], [-12, 0, 0], [-12, 0, 0]]


def test_payoffs_can_be_given_for_any_number_of_agents():
    table = np.arange(8.0).reshape(2, 2, 2)
    env = envs.make("matrix/nonmonotonic", payoff=table.tolist())
    assert (env.spec.n_agents, env.spec.n_actions, env.spec.state_dim) == (3, 2, 3)
    assert env.spec.return_range == (0.0, 7.0)
    _, outcome = env.step(env.reset(KEY), jnp.array([1, 0, 1]), KEY)
    assert float(outcome.reward) == 5.0
    check_env(env, episodes=4)


def test_games_are_hashable_so_that_jax_can_keep_their_programs():
    assert hash(MatrixGame(GAMES["climbing"])) == hash(MatrixGame(GAMES["climbing"]))


@pytest.mark.parametrize(
    ("payoff", "message"),
    [
        ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "same length"),
        ([[1.0]], "at least 2"),
        (3.0, "one axis per agent"),
        ([[1.0, float("nan")], [0.0, 0.0]], "finite"),
        ([[1.0, 2.0], [3.0]], "rectangular"),
        ([["a", "b"], ["c", "d"]], "numbers"),
        ([[1.0, 1.0], [1.0, 1.0]], "differ"),
    ],
)
def test_impossible_payoffs_are_refused(payoff, message):
    with pytest.raises(EnvError, match=message):
        MatrixGame(payoff)


def test_unknown_games_are_refused_with_a_hint():
    with pytest.raises(EnvError, match="Did you mean 'climbing'"):
        envs.make("matrix/nonmonotonic", game="climbin")


def test_pictures_mark_the_choice():
    env = MatrixGame(GAMES["climbing"])
    before = env.draw(env.reset(KEY))
    after = env.draw(env.step(env.reset(KEY), jnp.array([1, 1]), KEY)[0])
    assert before.dtype == np.uint8 and not np.array_equal(before, after)
    with pytest.raises(EnvError, match="two agents"):
        cube = MatrixGame(np.arange(8.0).reshape(2, 2, 2))
        cube.draw(cube.reset(KEY))
