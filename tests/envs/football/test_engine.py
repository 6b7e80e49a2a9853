"""Google Research Football on the real engine (skipped where it is missing)."""

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
from emu.cli.app import main
from emu.envs.check import check_env
from emu.envs.football.features import pitch_of, state_of
from emu.envs.football.scenarios import SCENARIOS
from emu.envs.workers.pool import Pool
from emu.play.build import play_scripted
from emu.play.episode import summary_of

from .common import SIZES, THREE

IDLE, LEFT, RIGHT, LONG_PASS, SHOT, SPRINT = 0, 1, 5, 9, 12, 13

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("gfootball_engine") is None, reason="gfootball is not installed: make football"
)


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
        "import json, random; from emu import envs; from envs.football.test_engine import THREE, fingerprint; "
        "random.seed(99); print(json.dumps([fingerprint(envs.make(THREE), seed) for seed in (5, 4)]))"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
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
    pool = Pool(three, copies=1, workers=1)
    try:
        choose, found, over = wander(6), [], False
        pool.ask("test", 0, np.array([0], np.int32), np.array([6]))
        assert pool.answer("test", 0)
        found.append(pool.arrays.state[0].copy())
        while not over:
            pool.arrays.action[0] = choose(None, 0)
            pool.ask("test", 0, np.array([0], np.int32), np.array([-1]))
            assert pool.answer("test", 0)
            found.append(pool.arrays.state[0].copy())
            over = pool.arrays.terminated[0] or pool.arrays.truncated[0]
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
    summary, again = (summary_of(play_scripted(three, "random", 3, seed=1)) for _ in range(2))
    assert summary == again and 1 <= summary["length_mean"] <= 150
    gif = tmp_path / "random.gif"
    assert main(["play", THREE, "--episodes", "2", "--seed", "1", "--gif", str(gif), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2 and gif.stat().st_size > 1000
