"""Other people's environments: what each adapter makes of them, and what it says when it cannot."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env
from emu.errors import EnvError

needs_zoo = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="mpe2 is not installed")
needs_gym = pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="gymnasium is not installed")


def refusal(name, **args):
    with pytest.raises(EnvError) as error:
        envs.make(name, **args)
    return str(error.value)


# PyMARL


def test_a_pymarl_environment_keeps_its_sizes_and_its_contract():
    env = envs.make("pymarl:host_envs:TwoPaths")
    s = env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (2, 3, 2, 3, 6)
    assert s.unit_dim == 1 and s.has_goal  # two agents' two observed numbers do not fit into a state of three
    check_env(env)


def test_pymarl_endings_by_goal_and_by_clock():
    env = envs.make("pymarl:host_envs:TwoPaths", seed=1, start=1)
    view = env.reset(0)
    np.testing.assert_array_equal(view.avail[0], [False, True, True])
    outcomes = []
    while not outcomes or not (outcomes[-1].terminated or outcomes[-1].truncated):
        view, outcome = env.step(np.where(view.avail[:, 1], 1, 0))  # right until there
        outcomes.append(outcome)
    assert outcomes[-1].terminated and outcomes[-1].won and outcomes[-1].reward == 1.0

    view, outcomes = env.reset(0), []
    for time in range(6):
        view, outcome = env.step(np.array([1 + time % 2, 1 if view.avail[1, 1] else 0]))  # the first goes to and fro
        outcomes.append((bool(outcome.terminated), bool(outcome.truncated)))
    assert outcomes == [(False, False)] * 5 + [(False, True)]
    np.testing.assert_array_equal(view.state, [1, 3, 6])


def test_a_pymarl_environment_is_seeded_through_its_constructor_once():
    def starts(seed):
        env = envs.make("pymarl:host_envs:TwoPaths")
        return [env.reset(seed + number).state[1] for number in range(12)]

    assert starts(5) == starts(5)
    assert len({tuple(starts(seed)) for seed in range(4)}) > 1


def test_pymarl_says_what_is_missing():
    message = refusal("pymarl:host_envs:NoMethods")
    for name in ("get_obs", "get_state", "get_avail_actions", "get_env_info"):
        assert f"`{name}`" in message
    assert "Did you mean 'TwoPaths'" in refusal("pymarl:host_envs:TwoPath")
    assert "Install the package that holds 'smac_is_not_here.env'" in refusal("pymarl:smac_is_not_here.env:Env")
    assert "write pymarl:module.path:Class" in refusal("pymarl:smac")
    assert "cannot be made from {'map': 1}" in refusal("pymarl:host_envs:TwoPaths", map=1)


def test_a_goal_that_is_not_reported_is_asked_for():
    env = envs.make("pymarl:host_envs:TwoPaths", won_key="battle_one")
    view = env.reset(0)
    with pytest.raises(EnvError, match="Did you mean 'battle_won'"):
        for _ in range(6):
            view, _ = env.step(view.avail.argmax(-1))
    assert not envs.make("pymarl:host_envs:TwoPaths", won_key="").spec.has_goal


def test_our_own_battles_through_the_pymarl_interface():
    env = envs.make("pymarl:emu.envs.smac.pymarl:StarCraft2Env", map_name="3m")
    ours = envs.make("smac/3m").spec
    for field in ("n_agents", "n_actions", "obs_dim", "state_dim", "episode_limit", "unit_dim"):
        assert getattr(env.spec, field) == getattr(ours, field)
    check_env(env, episodes=1)


@pytest.mark.skipif(importlib.util.find_spec("pogema") is None, reason="pogema is not installed")
def test_pogema_plays_through_its_own_pymarl_interface():
    """A third party's: agents find their ways through a maze; what it measures is reported with the last step."""
    grid = {"integration": "PyMARL", "num_agents": 3, "size": 6, "obs_radius": 2, "max_episode_steps": 9}
    env = envs.make("pymarl:pogema:pogema_v0", grid_config=grid, won_key="CSR")
    s = env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.episode_limit) == (3, 5, 3 * 5 * 5, 9)
    check_env(env, episodes=3)
    corridor = {"map": "....\n....", "agents_xy": [[0, 0]], "targets_xy": [[0, 2]], "num_agents": 1}
    env = envs.make("pymarl:pogema:pogema_v0", grid_config={"integration": "PyMARL", **corridor}, won_key="CSR")
    env.reset(0)
    outcomes = [env.step(np.array([4]))[1] for _ in range(2)]  # to the right, twice
    assert [(o.terminated, o.won, float(o.reward)) for o in outcomes] == [(False, False, 0.0), (True, True, 1.0)]


# PettingZoo


@needs_zoo
def test_simple_spread_keeps_its_contract():
    env = envs.make("pettingzoo:mpe2.simple_spread_v3", max_cycles=9)
    s = env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (3, 5, 18, 54, 9)
    check_env(env, episodes=2)


@needs_zoo
@pytest.mark.parametrize(
    ("name", "agents"),
    [("mpe2.simple_speaker_listener_v4", 2), ("pettingzoo.butterfly.knights_archers_zombies_v11", 4)],
)
def test_agents_that_differ_and_agents_that_die_keep_the_contract(name, agents, capsys):
    """Both contracts: PettingZoo's own, and ours."""
    from pettingzoo.test import parallel_api_test

    env = envs.make(f"pettingzoo:{name}", max_cycles=30)
    parallel_api_test(env.env, num_cycles=40)
    assert env.spec.n_agents == agents
    check_env(env, episodes=1)


@needs_zoo
def test_the_clock_of_simple_spread_is_a_truncation_with_all_actions_left():
    env = envs.make("pettingzoo:mpe2.simple_spread_v3", max_cycles=2)
    env.reset(1)
    env.step(np.zeros(3, np.int32))
    view, outcome = env.step(np.zeros(3, np.int32))
    assert outcome.truncated and not outcome.terminated
    assert view.avail.all() and np.abs(view.obs).sum(1).all()


@needs_zoo
def test_the_teams_reward_is_the_sum_or_the_mean():
    rewards = []
    for how in ("sum", "mean"):
        env = envs.make("pettingzoo:mpe2.simple_spread_v3", max_cycles=5, team_reward=how)
        env.reset(1)
        rewards.append(float(env.step(np.zeros(3, np.int32))[1].reward))
    assert rewards[0] == pytest.approx(3 * rewards[1], rel=1e-5)


@needs_zoo
def test_an_agent_that_has_left_keeps_a_reward_of_zero_of_its_own(leaving):
    env = envs.make("pettingzoo:leaving_game", team_reward="individual")
    env.reset(0)
    rewards = [env.step(np.array([0, 0]))[1].reward.tolist() for _ in range(3)]
    assert rewards == [[1, 1], [1, 0], [1, 0]]


def leaving_game(**spaces):
    """A parallel environment: "a" sees two numbers, has three actions; "b" sees one, has two, leaves after a step."""
    from gymnasium.spaces import Box, Dict, Discrete
    from pettingzoo import ParallelEnv

    class Leaving(ParallelEnv):
        metadata = {"name": "leaving"}  # noqa: RUF012
        possible_agents = ["a", "b"]  # noqa: RUF012
        max_cycles = 4

        def observation_space(self, agent):
            box = Box(-9, 9, (2,) if agent == "a" else (1,), np.float32)
            return Dict({"observation": box, "action_mask": Box(0, 1, (3,), np.int8)}) if agent == "a" else box

        def action_space(self, agent):
            return spaces.get(agent, Discrete(3 if agent == "a" else 2))

        def reset(self, seed=None, options=None):
            self.agents, self.time, self.heard = ["a", "b"], 0, []
            return self.look(), {agent: {} for agent in self.agents}

        def look(self):
            seen = {"a": {"observation": np.array([self.time, 7.0]), "action_mask": np.array([1, 0, 1])}}
            return seen | {"b": np.array([5.0])} if "b" in self.agents else seen

        def step(self, actions):
            self.heard.append(actions)
            self.time += 1
            acting, self.agents = self.agents, ["a"] if self.time < 3 else []
            ends = {agent: agent not in self.agents for agent in acting}
            seen = self.look()
            return seen, dict.fromkeys(acting, 1.0), ends, dict.fromkeys(acting, False), {a: {} for a in acting}

    return Leaving


@pytest.fixture
def leaving(monkeypatch):
    module = ModuleType("leaving_game")
    module.parallel_env = leaving_game()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "leaving_game", module)
    return module


@needs_zoo
def test_an_agent_that_leaves_is_frozen_and_masks_are_kept(leaving):
    env = envs.make("pettingzoo:leaving_game")
    assert (env.spec.obs_dim, env.spec.n_actions, env.spec.state_dim) == (2, 3, 4)  # padded; no state() of its own
    view = env.reset(0)
    np.testing.assert_array_equal(view.obs, [[0, 7], [5, 0]])
    np.testing.assert_array_equal(view.avail, [[True, False, True], [True, True, False]])
    view, outcome = env.step(np.array([2, 1]))
    np.testing.assert_array_equal(view.obs, [[1, 7], [0, 0]])
    np.testing.assert_array_equal(view.avail, [[True, False, True], [True, False, False]])
    np.testing.assert_array_equal(view.state, [1, 7, 0, 0])
    assert outcome.reward == 2.0 and not outcome.terminated
    view, outcome = env.step(np.array([0, 0]))
    assert outcome.reward == 1.0 and not outcome.terminated
    view, outcome = env.step(np.array([0, 0]))
    assert outcome.terminated and not outcome.truncated
    assert env.env.heard == [{"a": 2, "b": 1}, {"a": 0}, {"a": 0}]
    check_env(env, episodes=2)


@needs_zoo
def test_pettingzoo_says_what_is_missing(leaving):
    from gymnasium.spaces import Box

    del leaving.parallel_env.max_cycles
    assert "does not say how long an episode may be" in refusal("pettingzoo:leaving_game")
    assert envs.make("pettingzoo:leaving_game", episode_limit=9).spec.episode_limit == 9
    leaving.parallel_env = leaving_game(b=Box(0, 1))
    assert "Agent 'b' of leaving_game acts in Box" in refusal("pettingzoo:leaving_game")
    assert "lacks the parallel API" in refusal("pettingzoo:json")
    assert "cannot be imported" in refusal("pettingzoo:no_such_game_v3")
    assert "'sum', 'mean' or 'individual', not 'max'" in refusal("pettingzoo:leaving_game", team_reward="max")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    assert "pip install 'emu-marl[pettingzoo]'" in refusal("pettingzoo:mpe2.simple_spread_v3")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert "pip install 'emu-marl[gymnasium]'" in refusal("gymnasium:CartPole-v1")


# Gymnasium


@needs_gym
def test_cartpole_is_a_team_of_one():
    env = envs.make("gymnasium:CartPole-v1")
    s = env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (1, 2, 4, 4, 500)
    assert not s.has_goal  # its threshold of 475 is a mark on the return
    check_env(env, episodes=3)
    view = env.reset(3)
    np.testing.assert_array_equal(view.obs[0], view.state)


@needs_gym
def test_gymnasiums_time_limit_is_a_truncation():
    env = envs.make("gymnasium:CartPole-v1", episode_limit=2)
    env.reset(0)
    assert not env.step(np.array([0]))[1].truncated
    outcome = env.step(np.array([1]))[1]
    assert outcome.truncated and not outcome.terminated and not outcome.won


@needs_gym
def test_continuous_actions_are_stretched_to_the_bounds_of_the_task():
    env = envs.make("gymnasium:Pendulum-v1")  # its torque lies in [-2, 2]
    assert (env.spec.action_dim, env.spec.n_actions, env.spec.obs_dim, env.spec.has_goal) == (1, 1, 3, False)
    assert env.spec.state_is_obs
    check_env(env, episodes=1)
    env.reset(0)
    env.step(np.array([[0.25]], np.float32))
    assert env.env.unwrapped.last_u == pytest.approx(0.5)
    env.step(np.array([[-7.0]], np.float32))
    assert env.env.unwrapped.last_u == pytest.approx(-2.0)


@needs_gym
def test_gymnasium_says_what_is_missing():
    assert "EMU needs an array (Box)" in refusal("gymnasium:Blackjack-v1", episode_limit=9)
    assert "cannot be made" in refusal("gymnasium:NoSuchThing-v1")


# The template


def test_the_template_keeps_its_contract_and_its_goal_can_be_reached(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples"))
    env = envs.make("my_environment:Lights", agents=3)
    check_env(env)
    lit = env.reset(4).state[:3] > 0
    view, outcome = env.step((~lit).astype(np.int32))
    assert outcome.won and outcome.terminated and not outcome.truncated
    assert outcome.reward == pytest.approx(1 - 0.1 * np.mean(~lit))
    np.testing.assert_allclose(view.obs, [[1, 0.1]] * 3)
