"""Google Research Football without its engine: features, endings and rewards by hand."""

import importlib.util
import os

import numpy as np
import pytest

from emu import envs
from emu.cli.app import main
from emu.config.presets import preset
from emu.envs.football.env import FootballEnv
from emu.envs.football.features import Pitch, observations_of, pitch_of, state_of
from emu.envs.football.scenarios import Scenario
from emu.envs.workers.pool import Pool
from emu.errors import EnvError

from .common import SIZES, THREE


@pytest.mark.parametrize(("name", "sizes"), SIZES.items())
def test_sizes_are_those_of_the_paper(name, sizes):
    spec = envs.make(f"football/{name}").spec
    assert (spec.n_agents, spec.state_dim) == sizes and spec.obs_dim == spec.state_dim
    assert (spec.n_actions, spec.episode_limit, spec.has_goal) == (19, 150, True)


def by_hand():
    """Two agents, two opponents; numbers that say where they come from."""
    return Pitch(
        agents=np.array([[1.0, 2.0], [10.0, 20.0]]),
        agents_direction=np.array([[0.1, 0.2], [0.3, 0.4]]),
        opponents=np.array([[100.0, 200.0], [300.0, 400.0]]),
        opponents_direction=np.array([[0.5, 0.6], [0.7, 0.8]]),
        ball=np.array([1000.0, 2000.0, 3.0]),
        ball_direction=np.array([7.0, 8.0, 9.0]),
    )


TWO = Scenario(ball=(0, 0), agents=((0, 0, "CM"),) * 2, opponents=((0, 0, "CB"),))


def test_the_state_is_absolute_and_in_the_documented_order():
    expected = [1, 2, 10, 20, 0.1, 0.2, 0.3, 0.4, 100, 200, 300, 400, 0.5, 0.6, 0.7, 0.8, 1000, 2000, 3, 7, 8, 9]
    np.testing.assert_allclose(state_of(by_hand()), expected)
    assert len(expected) == TWO.feature_dim


def test_an_observation_is_relative_to_its_agent():
    first = [1, 2, 9, 18, 0.1, 0.2, 0.3, 0.4, 99, 198, 299, 398, 0.5, 0.6, 0.7, 0.8, 999, 1998, 3, 7, 8, 9]
    second = [10, 20, -9, -18, 0.3, 0.4, 0.1, 0.2, 90, 180, 290, 380, 0.5, 0.6, 0.7, 0.8, 990, 1980, 3, 7, 8, 9]
    np.testing.assert_allclose(observations_of(by_hand()), [first, second])


def test_a_pitch_is_read_back_from_states():
    pitch = by_hand()
    states = np.stack([state_of(pitch), 2 * state_of(pitch)])
    for part, expected in zip(pitch_of(states, TWO), pitch, strict=True):
        np.testing.assert_allclose(part, np.stack([expected, 2 * expected]), rtol=1e-6)


class Script:
    """An engine that shows prepared moments."""

    def __init__(self, *moments):
        self.moments = list(moments)

    def reset(self, seed):
        return self.moments.pop(0)[0]

    def step(self, action):
        return self.moments.pop(0)


def raw(ball=0.6, agents=(0.6, 0.7, 0.7), score=(0, 0), mode=0):
    return {
        "left_team": np.array([[-1.0, 0.0], *([x, 0.0] for x in agents)]),
        "left_team_direction": np.zeros((4, 2)),
        "right_team": np.array([[1.0, 0.0], [0.75, 0.0]]),
        "right_team_direction": np.zeros((2, 2)),
        "ball": np.array([ball, 0.0, 0.1]),
        "ball_direction": np.zeros(3),
        "ball_owned_team": 0,
        "ball_owned_player": 1,
        "score": list(score),
        "game_mode": mode,
    }


def after(moment, ended=False, reward="paper", limit=150):
    """What the environment makes of one step of the engine: reward, terminated, truncated, won."""
    env = FootballEnv("3_vs_1_with_keeper", reward, limit)
    env._engine = Script((raw(), False), (moment, ended))
    env.reset(0)
    outcome = env.step(np.zeros(3, np.int32))[1]
    return float(outcome.reward), bool(outcome.terminated), bool(outcome.truncated), bool(outcome.won)


AT_CENTRE = {"ball": 0.0, "agents": (-0.1, -0.2, -0.2)}  # where a goal leaves everybody


@pytest.mark.parametrize(
    ("case", "moment", "ended", "limit", "paper", "authors", "flags"),
    [
        ("nothing", raw(), False, 150, 0, 0, (False, False, False)),
        ("goal", raw(**AT_CENTRE, score=(1, 0)), True, 150, 1, 100, (True, False, True)),
        ("goal on the last step", raw(**AT_CENTRE, score=(1, 0)), True, 1, 1, 100, (True, False, True)),
        ("conceded", raw(**AT_CENTRE, score=(0, 1)), True, 150, -1, -1, (True, False, False)),
        ("ball lost or out", raw(), True, 150, 0, -1, (True, False, False)),
        ("ball in the own half", raw(ball=-0.01), False, 150, 0, -1, (True, False, False)),
        ("ball on the line", raw(ball=0.0), False, 150, 0, 0, (False, False, False)),
        ("agent in the own half", raw(agents=(0.1, 0.7, -0.01)), False, 150, 0, -1, (True, False, False)),
        ("clock", raw(), False, 1, 0, -1, (False, True, False)),
        ("clock and ball lost", raw(), True, 1, 0, -1, (True, False, False)),
    ],
)
def test_endings_and_both_rewards(case, moment, ended, limit, paper, authors, flags):
    assert after(moment, ended, "paper", limit) == (paper, *flags)
    assert after(moment, ended, "authors", limit) == (authors, *flags)


@pytest.mark.parametrize(
    ("moment", "stays"), [(raw(0.5), False), (raw(0.5, score=(1, 0)), True), (raw(0.5, mode=5), True)]
)
def test_a_picture_does_not_jump_to_where_the_game_would_go_on(moment, stays):
    env = FootballEnv("3_vs_1_with_keeper")
    env._engine = Script((raw(0.6), False), (moment, stays))
    env.reset(0)
    env.step(np.zeros(3, np.int32))
    shown = env.snapshot()
    assert shown.pitch.ball[0] == (0.6 if stays else 0.5) and shown.step == 1 and shown.score == tuple(moment["score"])


def test_the_paper_is_the_default_and_others_are_refused():
    assert envs.make(THREE).reward == "paper" and envs.make(THREE).spec.return_range == (-1, 1)
    assert envs.make(THREE, reward="authors").spec.return_range == (-1, 100)
    with pytest.raises(EnvError, match="'paper' or 'authors'"):
        envs.make(THREE, reward="dense")
    with pytest.raises(EnvError, match="Did you mean '3_vs_1_with_keeper'"):
        FootballEnv("3_vs_1_with_keper")


def test_without_gfootball_one_is_told_to_make_it(monkeypatch, capsys, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if "gfootball" in name else find(name, *a))
    env = envs.make(THREE)  # listing environments needs no engine
    for attempt in (env.require, lambda: env.reset(0), lambda: Pool(env, 1, 1)):
        with pytest.raises(EnvError, match="`make football`"):
            attempt()
    run = tmp_path / "run"
    assert main(["train", "--algo", "vdn", "--env", THREE, "--run-dir", str(run)]) == 2
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['gfootball'] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert main(["check", THREE]) == 2  # in a process of its own, which finds no engine either
    assert capsys.readouterr().err.count("make football") == 2 and not run.exists()


def test_presets_are_the_papers():
    config = preset("emu_qplex", THREE)
    assert (config.steps, config.memory.radius, config.curiosity.scale) == (3_050_000, 1.3e-3, 0.0)
    assert (config.eval.interval, config.eval.episodes) == (10_000, 32)
    assert {preset("qmix", f"football/counterattack_{kind}").eval.episodes for kind in ("easy", "hard")} == {20}
    diversity = preset("emu_cds", THREE).diversity
    assert (diversity.beta, diversity.beta1, diversity.beta2) == (0.05, 0.5, 1.0)
