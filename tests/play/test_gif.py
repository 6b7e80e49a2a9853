"""Choosing an episode to show, and making a GIF of it."""

import numpy as np
import pytest
from PIL import Image

from emu import envs
from emu.errors import EnvError
from emu.play.episode import PlayedEpisode
from emu.play.gif import best_of, save_gif
from toys import CountingEnv


def plays(*results):
    return lambda seed: PlayedEpisode(np.full(1, seed), *results[seed])


def test_the_first_won_episode_is_chosen_else_the_highest_return():
    assert best_of(3, plays((1.0, False), (0.5, True), (9.0, True))).reward[0] == 1
    assert best_of(3, plays((1.0, False), (3.0, False), (2.0, False))).reward[0] == 1


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


def test_only_the_chosen_episode_is_recorded_where_pictures_take_long():
    recorded = []
    best = best_of(3, plays((1.0, False), (3.0, False), (2.0, False)), lambda seed: recorded.append(seed) or "film")
    assert best == "film" and recorded == [1]
