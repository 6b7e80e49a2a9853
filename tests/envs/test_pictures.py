"""Environments that draw themselves are made once more in a process of their own, and their pictures come back."""

import importlib.util
import textwrap

import numpy as np
import pytest
from PIL import Image

from emu import envs
from emu.cli import main
from emu.envs.pictures import LONGEST_SIDE, PicturedEnv, pictured
from emu.errors import EnvError
from emu.play.build import play_scripted

pytest.importorskip("gymnasium")

GAME = """
    import os
    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete, Tuple

    class Game(gymnasium.Env):
        metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 20}

        def __init__(self, max_steps=3, kind="fine", render_mode=None):
            self.kind, self.render_mode = kind, render_mode
            self.observation_space, self.action_space = Tuple((Box(0, 9, (1,)),) * 2), Tuple((Discrete(2),) * 2)

        def reset(self, seed=None, options=None):
            self.time = 0
            return self.look(), {}

        def look(self):
            return (np.array([self.time]), np.array([self.time]))

        def step(self, actions):
            self.time += 1
            return self.look(), [0.0, 0.0], False, False, {}

        def render(self):
            if self.kind == "dies":
                os.kill(os.getpid(), 9)
            if self.kind == "raises":
                raise OSError("no paint left")
            if self.kind == "nothing":
                return None
            return np.full((900, 600, 3), 10 * self.time, np.uint8)

    class Blind(Game):
        metadata = {"render_modes": ["human"]}

    for name, kind in (("Game-v0", Game), ("Blind-v0", Blind)):
        gymnasium.register(name, kind, kwargs={"max_steps": 3})
"""


@pytest.fixture
def game(tmp_path, monkeypatch):
    (tmp_path / "drawn_game.py").write_text(textwrap.dedent(GAME))
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name="Game-v0", **args: envs.make(f"gymnasium_team:drawn_game:{name}", **args)


def test_every_moment_of_an_episode_comes_back_as_a_picture_of_bounded_size(game):
    with pictured(game()) as shown:
        (episode,) = play_scripted(shown, "random", 1, frames=True)
        assert shown.fps == 20
    assert [picture.mean() for picture in episode.frames] == [0, 10, 20, 30]
    assert episode.frames[0].shape == (LONGEST_SIDE, LONGEST_SIDE * 2 // 3, 3)


def test_the_process_ends_with_the_block(game):
    with pictured(game()) as shown:
        shown.reset(0)
        process = shown._process.process
        assert process.poll() is None
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dies", "It died"),
        ("raises", "OSError: no paint left"),
        ("nothing", "gave NoneType instead of a picture"),
    ],
)
def test_what_goes_wrong_in_drawing_is_an_error_and_not_the_end_of_this_process(game, kind, message):
    with pytest.raises(EnvError, match=message), pictured(game(kind=kind)) as shown:
        shown.reset(0)
        shown.snapshot()


def test_an_environment_without_rgb_array_is_named_with_what_it_has(game):
    with pytest.raises(EnvError, match=r"no render mode 'rgb_array' \(it has: human\)"), pictured(game("Blind-v0")):
        pass


def test_an_environment_that_is_drawn_here_needs_no_process():
    env = envs.make("gridworld/tiny")
    with pictured(env) as shown:
        assert shown is env


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="pygame is not installed")
@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "pettingzoo:mpe2.simple_spread_v3"])
def test_the_drawn_copy_plays_what_the_environment_itself_plays(name):
    if name.startswith("pettingzoo"):
        pytest.importorskip("mpe2")
    env = envs.make(name)
    actions = np.random.default_rng(0).integers(0, env.spec.n_actions, (5, env.spec.n_agents))
    with pictured(env) as shown:
        assert isinstance(shown, PicturedEnv)
        np.testing.assert_array_equal(shown.reset(7).obs, env.reset(7).obs)
        before = shown.snapshot()
        for action in actions:
            (view, outcome), (here, expected) = shown.step(action), env.step(action)
            np.testing.assert_array_equal(view.obs, here.obs)
            assert outcome == expected
        assert before.dtype == np.uint8 and (shown.snapshot() != before).any()


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="pygame is not installed")
def test_emu_play_makes_a_gif_of_cartpole(tmp_path):
    path = tmp_path / "cart.gif"
    assert main(["play", "gymnasium:CartPole-v1", "--episodes", "1", "--gif", str(path)]) == 0
    with Image.open(path) as gif:
        assert gif.n_frames > 5 and gif.info["duration"] == 20


def colours(picture):
    return {tuple(int(part) for part in pixel) for pixel in picture.reshape(-1, 3)}


def test_foraging_is_drawn_without_a_display():
    pytest.importorskip("lbforaging")
    from emu.envs.adapters.draw_cells import AGENTS, FOOD

    env = envs.make("lbf:Foraging-8x8-2p-1f-v3")
    env.reset(0)
    picture = env.draw(env.snapshot())
    assert picture.shape == (9 * 36 + 1, 8 * 36 + 1, 3) and picture.dtype == np.uint8
    for colour in (FOOD, *AGENTS[:2]):
        assert tuple(bytes.fromhex(colour[1:])) in colours(picture)


def test_a_kept_moment_of_the_warehouse_does_not_move_on_with_the_game():
    pytest.importorskip("rware")
    env = envs.make("rware:rware-tiny-2ag-v2")
    env.reset(0)
    first = env.snapshot()
    before = env.draw(first)
    for _ in range(20):
        env.step(np.array([1, 2]))
    np.testing.assert_array_equal(env.draw(first), before)
    assert (env.draw(env.snapshot()) != before).any()
