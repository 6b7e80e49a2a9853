"""Google Research Football: by hand what needs no engine, the rest on the real one (skipped where missing)."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emu import envs
from emu.cli import main
from emu.envs.base import Drawable, Sketchable
from emu.envs.checker import check_env
from emu.envs.football import draw
from emu.envs.football.env import FootballEnv, Moment
from emu.envs.football.features import Pitch, observations_of, pitch_of, state_of
from emu.envs.football.scenarios import SCENARIOS, Scenario
from emu.envs.host import players
from emu.envs.host.pool import Pool
from emu.errors import EnvError
from emu.presets import preset

SIZES = {"3_vs_1_with_keeper": (3, 26), "counterattack_easy": (4, 30), "counterattack_hard": (4, 34)}
THREE = "football/3_vs_1_with_keeper"
IDLE, LEFT, RIGHT, LONG_PASS, SHOT, SPRINT = 0, 1, 5, 9, 12, 13

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("gfootball_engine") is None, reason="gfootball is not installed: make football"
)


# Without the engine


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
    assert main(["check", THREE]) == 2
    assert capsys.readouterr().err.count("make football") == 2 and not run.exists()


def test_presets_are_the_papers():
    config = preset("emu_qplex", THREE)
    assert (config.steps, config.memory.radius, config.curiosity.scale) == (3_050_000, 1.3e-3, 0.0)
    assert (config.eval.interval, config.eval.episodes) == (10_000, 32)
    assert {preset("qmix", f"football/counterattack_{kind}").eval.episodes for kind in ("easy", "hard")} == {20}
    diversity = preset("emu_cds", THREE).diversity
    assert (diversity.beta, diversity.beta1, diversity.beta2) == (0.05, 0.5, 1.0)


# Pictures


def colour(name):
    return np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)])


def moment(score=(0, 0), step=3):
    pitch = Pitch(
        agents=np.array([[0.2, 0.1], [0.5, 0.2], [0.5, -0.2]]),
        agents_direction=np.zeros((3, 2)),
        opponents=np.array([[0.98, 0.0], [0.7, 0.05]]),
        opponents_direction=np.zeros((2, 2)),
        ball=np.array([0.35, -0.05, 0.11]),
        ball_direction=np.zeros(3),
    )
    return Moment(pitch, np.array([-1.0, 0.0]), (0, 1), score, step)


def at(picture, xy):
    """The colour at a place of the pitch."""
    x, y = (draw.place(xy) + [0, draw.CAPTION]) * draw.PIXELS / draw.SCALE  # noqa: RUF005
    return picture[round(y), round(x)].astype(int)


def test_a_picture_shows_everybody_where_they_are():
    env = envs.make(THREE)
    assert isinstance(env, Drawable)
    picture = env.draw(moment())
    assert picture.dtype == np.uint8 and picture.ndim == 3
    edge = np.array([0.02, 0.0])  # beside the number
    for xy in moment().pitch.agents:
        assert np.abs(at(picture, xy + 0.7 * edge) - colour(draw.TEAM)).max() < 30
    for xy in moment().pitch.opponents:
        assert np.abs(at(picture, xy - 0.7 * edge) - colour(draw.OTHERS)).max() < 30
    assert np.abs(at(picture, moment().pitch.ball[:2]) - 255).max() < 30
    assert np.array_equal(picture, env.draw(moment())) and not np.array_equal(picture, env.draw(moment((1, 0))))


def test_a_film_shows_where_the_ball_came_from():
    env, start = envs.make(THREE), moment()
    later = start._replace(pitch=start.pitch._replace(ball=np.array([0.35, 0.25, 0.11])), step=4)
    first, second = env.frames([start, later])
    np.testing.assert_array_equal(first, env.draw(start))
    halfway = (0.35, 0.1)
    assert at(second, halfway).mean() > at(env.draw(later), halfway).mean() + 30


def test_a_sketch_stands_where_the_state_says():
    env = envs.make(THREE)
    assert isinstance(env, Sketchable)
    pitch = moment().pitch
    gone = pitch._replace(agents=np.array([[0.2, 0.1], [0.5, 0.2], [-0.5, -0.2]]))
    sketch = env.sketch(np.stack([state_of(pitch), state_of(gone)]).astype(np.float16))
    json.dumps(sketch.scene)
    assert sketch.figures.shape == (2, 3 + 2 + 1, 4) and len(sketch.scene["figures"]) == 6
    everyone = np.concatenate([pitch.agents, pitch.opponents, pitch.ball[None, :2]])
    np.testing.assert_allclose(sketch.figures[0, :, :2], draw.place(everyone), atol=0.05)
    np.testing.assert_array_equal(sketch.figures[..., 2], [[1] * 6, [1, 1, 0, 1, 1, 1]])
    for shape in sketch.scene["shapes"]:
        points = np.array(shape["line"])
        assert (points >= 0).all() and (points <= [sketch.scene["width"], sketch.scene["height"]]).all()


# On the real engine


@pytest.fixture(scope="module")
def three():
    env = envs.make(THREE)
    yield env
    env.close()


def play(env, seed, choose):
    """An episode: views (T+1), outcomes (T). `choose(view, time)` gives the joint action."""
    found, outcomes = [env.reset(seed)], []
    while not outcomes or not (outcomes[-1].terminated or outcomes[-1].truncated):
        view, outcome = env.step(np.asarray(choose(found[-1], len(outcomes)), np.int32))
        found.append(view)
        outcomes.append(outcome)
    return found, outcomes


def wander(seed, agents=3):
    rng = np.random.default_rng(seed)
    return lambda view, time: rng.integers(19, size=agents)


def charge(view, time):
    """The first agent, who has the ball, runs towards the goal and shoots near it; the others stand by."""
    near = view.obs[0, 0] > 0.82
    return [SPRINT if time == 0 else SHOT if near else RIGHT, IDLE, IDLE]


def fingerprint(env, seed):
    found, outcomes = play(env, seed, wander(seed, env.spec.n_agents))
    return [view.state.tobytes().hex() for view in found], [float(outcome.reward) for outcome in outcomes]


@needs_engine
@pytest.mark.parametrize("name", SIZES)
def test_every_scenario_keeps_its_contract_and_begins_as_declared(name):
    env, scenario = envs.make(f"football/{name}"), SCENARIOS[name]
    check_env(env, episodes=2)
    pitch = pitch_of(env.reset(1).state, scenario)
    np.testing.assert_allclose(pitch.agents, [place[:2] for place in scenario.agents], atol=0.03)
    mirrored = [(1.0, 0.0), *((-x, -y) for x, y, _ in scenario.opponents)]
    np.testing.assert_allclose(pitch.opponents, mirrored, atol=0.03)
    np.testing.assert_allclose(pitch.ball[:2], scenario.ball, atol=0.03)
    env.close()


@needs_engine
def test_gfootballs_own_environment_plays_the_same_game(three):
    """Its wrapper, seeded by hand, with the features written out player by player."""
    from gfootball.env import create_environment

    three.reset(0)  # makes the scenarios known
    own = create_environment(
        env_name="emu_3_vs_1_with_keeper", representation="raw", number_of_left_players_agent_controls=3
    )
    config = own.unwrapped._config
    config["game_engine_random_seed"], config["reverse_team_processing"] = 7, True
    first = own.reset()
    seen = [first[0] if isinstance(first, tuple) else first]
    choose, over = wander(7), False
    while not over:
        observation, _, over, _ = own.step(choose(None, 0).tolist())
        seen.append(observation)
    own.close()
    found, _ = play(three, 7, wander(7))
    assert len(found) >= len(seen) - 1  # the engine knows nothing of the own half
    for view, everyone in zip(found, seen, strict=False):
        assert [o["active"] for o in everyone] == [1, 2, 3]
        np.testing.assert_allclose(view.state, state_by_hand(everyone[0]), rtol=1e-6)
        for agent in range(3):
            np.testing.assert_allclose(view.obs[agent], seen_by_hand(everyone[agent], 1 + agent), rtol=1e-5, atol=1e-7)


def state_by_hand(o):
    left, right = range(1, 4), range(2)
    numbers = [c for p in left for c in o["left_team"][p]] + [c for p in left for c in o["left_team_direction"][p]]
    numbers += [c for p in right for c in o["right_team"][p]]
    numbers += [c for p in right for c in o["right_team_direction"][p]]
    return [*numbers, *o["ball"], *o["ball_direction"]]


def seen_by_hand(o, me):
    x, y = o["left_team"][me]
    others = [p for p in (1, 2, 3) if p != me]
    numbers = [x, y]
    for p in others:
        numbers += [o["left_team"][p][0] - x, o["left_team"][p][1] - y]
    for p in (me, *others):
        numbers += [*o["left_team_direction"][p]]
    for p in (0, 1):
        numbers += [o["right_team"][p][0] - x, o["right_team"][p][1] - y]
    for p in (0, 1):
        numbers += [*o["right_team_direction"][p]]
    return [*numbers, o["ball"][0] - x, o["ball"][1] - y, o["ball"][2], *o["ball_direction"]]


@needs_engine
def test_an_episode_depends_on_its_seed_alone(three):
    """Another process, another history, other engines beside it, another state of Python's own generator."""
    code = (
        "import json, random; from emu import envs; from envs.test_football import THREE, fingerprint; "
        "random.seed(99); print(json.dumps([fingerprint(envs.make(THREE), seed) for seed in (5, 4)]))"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    random.seed(1)
    play(three, 11, wander(11))
    here = [fingerprint(three, seed) for seed in (4, 5)]
    assert here[0][0] != here[1][0]
    assert json.loads(done.stdout) == [list(map(list, here[1])), list(map(list, here[0]))]


@needs_engine
def test_two_engines_in_one_process_do_not_disturb_each_other(three):
    alone = [view.state for view in play(three, 3, wander(3))[0]]
    other = envs.make("football/counterattack_hard")
    other.reset(8)
    choose, elsewhere, found = wander(3), wander(8, 4), [three.reset(3).state]
    over = {three: False, other: False}
    while not over[three]:
        view, outcome = three.step(choose(None, 0).astype(np.int32))
        found.append(view.state)
        over[three] = outcome.terminated or outcome.truncated
        if not over[other]:
            _, outcome = other.step(elsewhere(None, 0).astype(np.int32))
            over[other] = outcome.terminated or outcome.truncated
    other.close()
    np.testing.assert_array_equal(found, alone)


@needs_engine
def test_a_worker_process_plays_the_same_episode(three):
    pool = Pool(three, places=1, workers=1)
    try:
        choose, found, over = wander(6), [], False
        pool.ask("test", 0, np.array([0], np.int32), np.array([6]))
        assert pool.answer("test", 0)
        found.append(pool.board.state[0].copy())
        while not over:
            pool.board.action[0] = choose(None, 0)
            pool.ask("test", 0, np.array([0], np.int32), np.array([-1]))
            assert pool.answer("test", 0)
            found.append(pool.board.state[0].copy())
            over = pool.board.terminated[0] or pool.board.truncated[0]
    finally:
        pool.close()
    np.testing.assert_array_equal(found, [view.state for view in play(three, 6, wander(6))[0]])


@needs_engine
def test_running_back_ends_the_episode_in_the_own_half(three):
    found, outcomes = play(three, 2, lambda view, time: [LEFT, LEFT, LEFT])
    last, before = (pitch_of(view.state, three.scenario) for view in (found[-1], found[-2]))
    assert outcomes[-1].terminated and not outcomes[-1].won and outcomes[-1].reward == 0
    assert min(last.agents[:, 0].min(), last.ball[0]) < 0 <= min(before.agents[:, 0].min(), before.ball[0])


@needs_engine
def test_a_ball_kicked_back_ends_the_episode(three):
    def kick(view, time):
        return [LEFT if time < 8 else LONG_PASS, IDLE, IDLE]

    for seed in range(6):
        found, outcomes = play(three, seed, kick)
        last = pitch_of(found[-1].state, three.scenario)
        if last.ball[0] < 0:
            break
    assert last.ball[0] < 0 <= last.agents[:, 0].min()
    assert outcomes[-1].terminated and not outcomes[-1].won


@needs_engine
def test_the_clock_truncates():
    env = envs.make(THREE, limit=4, reward="authors")
    _, outcomes = play(env, 0, lambda view, time: [IDLE] * 3)
    assert [bool(outcome.truncated) for outcome in outcomes] == [False] * 3 + [True]
    assert [float(outcome.reward) for outcome in outcomes] == [0, 0, 0, -1] and not outcomes[-1].terminated
    env.close()


@needs_engine
def test_a_charge_scores_now_and_then_and_a_goal_is_worth_what_it_should(three):
    kind = {}
    for seed in range(12):
        _, outcomes = play(three, seed, charge)
        assert all(outcome.reward == 0 and not outcome.won for outcome in outcomes[:-1])
        kind.setdefault((bool(outcomes[-1].won), float(outcomes[-1].reward)), seed)
    assert set(kind) == {(True, 1.0), (False, 0.0)}  # goals and saves
    found, _ = play(three, kind[True, 1.0], charge)
    shown = three.snapshot()
    assert shown.score == (1, 0)
    np.testing.assert_array_equal(state_of(shown.pitch), found[-2].state)  # the picture stays at the goal
    authors = envs.make(THREE, reward="authors")
    assert sum(o.reward for o in play(authors, kind[True, 1.0], charge)[1]) == 100
    assert sum(o.reward for o in play(authors, kind[False, 0.0], charge)[1]) == -1
    authors.close()


@needs_engine
def test_the_random_team_can_be_watched(three, tmp_path, capsys):
    summary = players.play(three, "random", 3, seed=1)
    assert summary == players.play(three, "random", 3, seed=1) and 1 <= summary["length_mean"] <= 150
    gif = tmp_path / "random.gif"
    assert main(["play", THREE, "--episodes", "2", "--seed", "1", "--gif", str(gif), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2 and gif.stat().st_size > 1000
