"""Gymnasium's multi-agent form: a toy whose every number is known, level-based foraging, and the robotic warehouse."""

import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env
from emu.errors import EnvError
from emu.run.trust import _is_registered

gymnasium = pytest.importorskip("gymnasium")


class Pair(gymnasium.Env):
    """Agent 0 sees two numbers and has three actions, agent 1 sees one and has two. It ends when both do 1."""

    def __init__(self, max_steps=4, spaces=None):
        from gymnasium.spaces import Box, Discrete, Tuple

        self.max_steps = max_steps
        self.observation_space = Tuple(
            (Box(np.zeros(2, np.float32), np.array([9, np.inf], np.float32)), Box(-1, 7, (1,)))
        )
        self.action_space = spaces or Tuple((Discrete(3), Discrete(2)))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.random()
        return self.look(), {}

    def look(self):
        return np.array([self.time, self.place]), np.array([5.0])

    def step(self, actions):
        self.time += 1
        over = actions == (1, 1) or (self.max_steps is not None and self.time >= self.max_steps)
        return self.look(), [float(actions[0]), 10.0 * actions[1]], over, False, {}


@pytest.fixture(autouse=True)
def pair():
    gymnasium.register("Pair-v0", Pair, kwargs={"max_steps": 4})
    gymnasium.register("Endless-v0", lambda **args: Pair(max_steps=None, **args))
    yield
    del gymnasium.registry["Pair-v0"], gymnasium.registry["Endless-v0"]


def refusal(name, **args):
    with pytest.raises(EnvError) as error:
        envs.make(name, **args)
    return str(error.value)


def test_a_team_is_made_of_tuples_and_smaller_spaces_are_padded():
    env = envs.make("gymnasium_team:Pair-v0")
    s = env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.unit_dim, s.episode_limit) == (2, 3, 2, 4, 2, 4)
    assert not s.has_goal
    view = env.reset(3)
    np.testing.assert_array_equal(view.obs[1], [5, 0])
    np.testing.assert_array_equal(view.avail, [[True, True, True], [True, True, False]])
    check_env(env)


def test_the_state_is_all_observations_with_bounded_numbers_brought_into_zero_to_one():
    env = envs.make("gymnasium_team:Pair-v0")
    view = env.reset(3)
    view, _ = env.step(np.array([0, 0]))
    place = view.obs[0, 1]
    np.testing.assert_allclose(view.state, [1 / 9, place, 6 / 8, 0], rtol=1e-6)  # the place has no upper bound


@pytest.mark.parametrize(("how", "reward"), [("sum", 12.0), ("mean", 6.0)])
def test_the_agents_rewards_are_added_up_or_averaged(how, reward):
    env = envs.make("gymnasium_team:Pair-v0", team_reward=how)
    env.reset(0)
    assert env.step(np.array([2, 1]))[1].reward == reward


def test_the_agents_rewards_can_be_kept():
    env = envs.make("gymnasium_team:Pair-v0", team_reward="individual")
    assert env.spec.own_rewards
    env.reset(0)
    np.testing.assert_array_equal(env.step(np.array([2, 1]))[1].reward, np.float32([2, 10]))
    check_env(env)


def test_the_clock_truncates_although_the_environment_calls_it_terminated():
    env = envs.make("gymnasium_team:Pair-v0")
    env.reset(0)
    outcomes = [env.step(np.array([0, 1]))[1] for _ in range(4)]
    assert [(o.terminated, o.truncated) for o in outcomes] == [(False, False)] * 3 + [(False, True)]


def test_an_end_that_comes_with_the_last_step_is_an_end():
    env = envs.make("gymnasium_team:Pair-v0")
    env.reset(0)
    outcomes = [env.step(action)[1] for action in np.array([[0, 1]] * 3 + [[1, 1]])]
    assert outcomes[-1].terminated and not outcomes[-1].truncated


@pytest.mark.parametrize("args", [{"episode_limit": 2}, {"max_steps": 2}])
def test_the_limit_can_be_set_by_our_name_and_by_the_environments(args):
    env = envs.make("gymnasium_team:Pair-v0", **args)
    env.reset(0)
    assert env.spec.episode_limit == 2 and not env.step(np.array([0, 0]))[1].truncated
    assert env.step(np.array([0, 0]))[1].truncated


def test_what_a_team_cannot_be_made_of_is_said():
    assert "has no time limit" in refusal("gymnasium_team:Endless-v0")
    assert envs.make("gymnasium_team:Endless-v0", episode_limit=3).spec.episode_limit == 3
    assert "An environment for one agent is made as gymnasium:NAME" in refusal("gymnasium_team:CartPole-v1")
    assert "Did you mean 'Pair-v0'?" in refusal("gymnasium_team:Pairs-v0")
    assert "cannot be imported" in refusal("gymnasium_team:no_such_module:Pair-v0")
    assert "'sum', 'mean' or 'individual', not 'max'" in refusal("gymnasium_team:Pair-v0", team_reward="max")
    assert "cannot be made from {'colour': 1}" in refusal("gymnasium_team:Pair-v0", colour=1)
    continuous = gymnasium.spaces.Tuple((gymnasium.spaces.Box(0, 1), gymnasium.spaces.Discrete(2)))
    assert "Agent 0 of gymnasium_team:Pair-v0 acts in Box" in refusal("gymnasium_team:Pair-v0", spaces=continuous)


def test_only_names_that_import_nothing_of_their_own_choice_are_trusted():
    assert _is_registered("lbf:Foraging-8x8-2p-1f-v3") and _is_registered("rware:rware-tiny-2ag-v2")
    assert not _is_registered("gymnasium_team:Pair-v0") and not _is_registered("lbf:my_module:Foraging-v3")
    assert "names a module" in refusal("lbf:my_module:Foraging-v3")


def played(env, seed, actions):
    """Observations and rewards of an episode with these joint actions."""
    seen, rewards = [env.reset(seed).obs], []
    for action in actions:
        view, outcome = env.step(action)
        seen.append(view.obs)
        rewards.append(outcome.reward)
        if outcome.terminated or outcome.truncated:
            break
    return np.array(seen), np.array(rewards)


# Level-based foraging


@pytest.fixture
def foraging():
    pytest.importorskip("lbforaging")
    return envs.make("lbf:Foraging-8x8-2p-1f-v3")


def test_foraging_keeps_its_contract(foraging):
    s = foraging.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (2, 6, 9, 18, 50)
    assert s.return_range == (0, 1) and not s.has_goal and "lbforaging" in s.version
    check_env(foraging, episodes=20)


def test_a_seed_of_foraging_says_all_whatever_was_played_before(foraging):
    actions = np.random.default_rng(0).integers(0, 6, (50, 2))
    first = played(foraging, 5, actions)
    for other in range(6):
        played(foraging, other, actions[:9])
        for one, again in zip(first, played(foraging, 5, actions), strict=True):
            np.testing.assert_array_equal(one, again)


def place(env, players, food):
    """Put players (row, column, level) and one piece of food (row, column, level) on an empty field."""
    game = env.env.unwrapped
    game.field[:] = 0
    game.field[food[:2]] = game._food_spawned = food[2]
    for player, (row, column, level) in zip(game.players, players, strict=True):
        player.position, player.level = (row, column), level
    game._gen_valid_moves()


def test_food_that_both_load_gives_the_team_one_and_ends_the_episode(foraging):
    foraging.reset(0)
    place(foraging, [(3, 3, 1), (3, 5, 2)], (3, 4, 3))
    outcome = foraging.step(np.array([5, 0]))[1]  # alone it is too heavy
    assert outcome.reward == 0 and not outcome.terminated
    outcome = foraging.step(np.array([5, 5]))[1]
    assert outcome.reward == pytest.approx(1.0) and outcome.terminated and not outcome.truncated


def test_foragings_fifty_steps_are_a_truncation(foraging):
    foraging.reset(1)
    outcomes = [foraging.step(np.zeros(2, np.int32))[1] for _ in range(50)]
    assert not any(o.terminated for o in outcomes)
    assert [o.truncated for o in outcomes] == [False] * 49 + [True]


def test_a_penalty_widens_the_range_of_returns():
    pytest.importorskip("lbforaging")
    spec = envs.make("lbf:Foraging-8x8-2p-1f-v3", penalty=0.1, team_reward="mean").spec
    assert spec.return_range == pytest.approx((-5.0, 0.5))  # 50 steps, the mean of two agents


# The robotic warehouse


@pytest.fixture
def warehouse():
    pytest.importorskip("rware")
    return envs.make("rware:rware-tiny-2ag-v2", episode_limit=60)


def test_the_warehouse_keeps_its_contract(warehouse):
    s = warehouse.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (2, 5, 71, 142, 60)
    assert s.return_range == (0, np.inf) and not s.has_goal and "rware" in s.version
    check_env(warehouse, episodes=3)
    assert envs.make("rware:rware-tiny-2ag-v2").spec.episode_limit == 500


def test_a_seed_of_the_warehouse_says_all(warehouse):
    actions = np.random.default_rng(0).integers(0, 5, (60, 2))
    first = played(warehouse, 5, actions)
    played(warehouse, 6, actions[:9])
    for one, again in zip(first, played(warehouse, 5, actions), strict=True):
        np.testing.assert_array_equal(one, again)


def test_a_delivered_shelf_is_worth_one_to_the_team(warehouse):
    warehouse.reset(0)
    game = warehouse.env.unwrapped
    robot, (x, y) = game.agents[0], game.goals[0]
    shelf = game.request_queue[0]
    robot.x, robot.y, robot.dir = x, y - 1, type(robot.dir).DOWN
    shelf.x, shelf.y, robot.carrying_shelf = x, y - 1, shelf
    game.agents[1].x, game.agents[1].y = 0, 0
    game._recalc_grid()
    outcome = warehouse.step(np.array([1, 0]))[1]  # forward, onto the goal
    assert outcome.reward == 1.0 and not outcome.terminated


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lbforaging", None)
    assert "pip install 'emu-marl[lbf]'" in refusal("lbf:Foraging-8x8-2p-1f-v3")
    monkeypatch.setitem(sys.modules, "rware", None)
    assert "pip install 'emu-marl[rware]'" in refusal("rware:rware-tiny-2ag-v2")
