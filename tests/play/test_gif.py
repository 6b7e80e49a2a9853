"""Playing one episode and making a GIF of it."""

import numpy as np
import pytest
from PIL import Image

from emu import envs
from emu.errors import EnvError
from emu.play.gif import Recording, best_of, player, save_gif
from host_envs import HostCounting
from toys import CountingEnv, CountingLearner, length_of


def test_an_episode_is_played_to_its_end():
    play = player(CountingEnv(), CountingLearner(), {})
    for seed in range(3):
        recording = play(seed)
        name = int(recording.states[0].name)
        assert [int(state.time) for state in recording.states] == list(range(int(length_of(name)) + 1))
        assert recording.won == bool(name % 2)
        steps = len(recording.states) - 1
        assert recording.total == pytest.approx(name * steps + 0.125 * steps * (steps - 1) / 2)


def test_the_same_seed_plays_the_same_episode():
    play = player(CountingEnv(), CountingLearner(), {})
    assert int(play(5).states[0].name) == int(play(5).states[0].name) != int(play(6).states[0].name)


def test_the_first_won_episode_is_chosen_else_the_highest_return():
    def plays(*results):
        return lambda seed: Recording([seed], *results[seed])

    assert best_of(3, plays((1.0, False), (0.5, True), (9.0, True))).states == [1]
    assert best_of(3, plays((1.0, False), (3.0, False), (2.0, False))).states == [1]


def test_a_gif_has_a_picture_per_state(tmp_path):
    env = envs.make("gridworld/tiny")
    start = env.reset(np.zeros(2, np.uint32))
    states = [start._replace(position=start.position + np.array([[k, 0], [-k, 0]]), time=k) for k in range(3)]
    path = save_gif(env, states, tmp_path / "deep" / "team.gif", fps=4)
    with Image.open(path) as gif:
        assert gif.n_frames == 3
        durations = []
        for frame in range(3):
            gif.seek(frame)
            durations.append(gif.info["duration"])
    assert durations == [250, 250, 1500]


def test_an_environment_that_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(EnvError, match="cannot be drawn"):
        save_gif(CountingEnv(), [], tmp_path / "x.gif")


class Shown(HostCounting):
    """Says of itself which episode it plays, and when."""

    def snapshot(self):
        return self.name, self.time

    def draw(self, state):
        return np.full((2, 2, 3), state[1], np.uint8)


def test_a_python_environment_is_played_to_its_end_and_drawn(tmp_path):
    env = Shown()
    recording = player(env, CountingLearner(), {})(5)
    assert recording.states == [(5, time) for time in range(7)] and recording.won
    assert recording.total == pytest.approx(sum(5 + 0.125 * time for time in range(6)))
    with Image.open(save_gif(env, recording.states, tmp_path / "host.gif")) as gif:
        assert gif.n_frames == 7


def test_a_python_environment_without_pictures_is_refused():
    with pytest.raises(EnvError, match=r"needs `snapshot\(\)` and `draw\(state\)`"):
        player(HostCounting(), CountingLearner(), {})
