"""Scripted players: which there are, and that the random one takes every available action and no other."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.cli.app import main
from emu.envs.scripted import Remembering, random_action, random_shape, scripted_player, scripted_players
from emu.errors import EnvError
from emu.play.build import play_scripted
from host_envs import HostCounting
from toys import CountingEnv, Point

AVAIL = np.array([[True, False, True], [False, True, False]])


@pytest.mark.parametrize("kind", ["numpy", "jax"])
def test_a_random_team_takes_every_available_action_equally_often_and_no_other(kind):
    spec, draws = CountingEnv().spec, 400
    if kind == "numpy":
        uniform = np.random.default_rng(0).random((draws, *random_shape(spec)))
        actions = np.array([random_action(spec, AVAIL, one) for one in uniform])
    else:
        uniform = jax.random.uniform(jax.random.PRNGKey(0), (draws, *random_shape(spec)))
        actions = np.asarray(jax.vmap(lambda one: random_action(spec, jnp.asarray(AVAIL), one))(uniform))
    assert actions.dtype == np.int32 and actions.shape == (draws, 2)
    assert set(actions[:, 0].tolist()) == {0, 2} and set(actions[:, 1].tolist()) == {1}
    assert abs((actions[:, 0] == 0).mean() - 0.5) < 0.1


def test_even_the_smallest_draw_chooses_an_available_action():
    assert random_action(CountingEnv().spec, AVAIL, np.zeros((2, 3))).tolist() == [0, 1]


def test_continuous_actions_fill_their_range():
    spec = Point().spec
    uniform = np.random.default_rng(0).random((500, *random_shape(spec)))
    actions = random_action(spec, np.ones((1, 1), bool), uniform)
    assert actions.dtype == np.float32 and actions.shape == (500, 1, 2)
    assert -1 <= actions.min() < -0.95 and 0.95 < actions.max() <= 1 and abs(actions.mean()) < 0.1


def test_an_environment_adds_players_of_its_own():
    class Led(CountingEnv):
        @property
        def scripted(self):
            return {"leader": lambda env, state, key: jnp.zeros(2, jnp.int32)}

    assert set(scripted_players(Led())) == {"random", "leader"}
    assert set(scripted_players(HostCounting())) == {"random"}
    assert {"random", "nearest", "weakest", "kite"} <= set(scripted_players(envs.make("smac/3m")))


def test_a_player_with_a_memory_keeps_it_through_an_episode_and_begins_each_anew():
    env = CountingEnv()

    def count_on(env, state, key, memory):
        return jnp.full(2, memory % 3, jnp.int32), memory + 1

    counting = Remembering(lambda env: jnp.int32(0), count_on)
    episodes = play_scripted(env, counting, 8, frames=True)
    assert len({episode.length for episode in episodes}) > 1
    for episode in episodes:
        taken = [int(state.action[0]) for state in (episode.frames or [])[1:]]
        assert taken == [time % 3 for time in range(episode.length)]
    with pytest.raises(EnvError, match="function"):
        play_scripted(HostCounting(), counting, 1)


def test_a_player_that_is_not_there_is_explained():
    with pytest.raises(EnvError, match="Did you mean 'random'"):
        scripted_player(HostCounting(), "randm")


@pytest.mark.parametrize("env", ["gridworld/tiny", "host_envs:HostCounting", "gymnasium:Pendulum-v1"])
def test_every_kind_of_environment_is_played_from_the_command_line(env, capsys):
    if env.startswith("gymnasium"):
        pytest.importorskip("gymnasium")
    assert main(["play", env, "--episodes", "3", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["episodes"] == 3 and ("win_rate" in values) == envs.make(env).spec.has_goal


def test_no_episodes_are_refused(capsys):
    assert main(["play", "gridworld/tiny", "--episodes", "0"]) == 2
    assert "between 1 and 10,000,000, not 0" in capsys.readouterr().err
