"""JaxMARL through our protocol: the same keys and actions give what JaxMARL's own stepping gives."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.envs.check import check_env, check_shapes
from emu.errors import EnvError
from emu.run.metrics import read_rows
from emu.training.session import train
from toys import silent, tiny_config

if importlib.util.find_spec("jaxmarl") is None:
    pytest.skip("jaxmarl is not installed", allow_module_level=True)


class Both:
    """An environment through the adapter and JaxMARL's own, compiled once for all tests."""

    def __init__(self, name, args=None, **theirs):
        import jaxmarl

        self.env, self.theirs = envs.make(f"jaxmarl:{name}", **(args or {})), jaxmarl.make(name, **theirs)
        self.reset, self.step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self.look = jax.jit(lambda state: (self.env.observe(state), self.env.avail(state), self.env.state(state)))

    def play(self, seed, steps, policy):
        """Both from one key, with the same actions; yields what each answers, until JaxMARL starts anew."""
        key = jax.random.PRNGKey(seed)
        state, (obs, inner) = self.reset(key), self.theirs.reset(key)
        yield state, obs, inner, None, None, None
        for time in range(steps):
            key, action = jax.random.fold_in(key, time), policy(state, time)
            state, outcome = self.step(state, jnp.array(action), key)
            wanted = dict(zip(self.theirs.agents, jnp.array(action), strict=True))
            obs, inner, rewards, done, _ = self.theirs.step(key, inner, wanted)
            yield state, obs, inner, outcome, rewards, bool(done["__all__"])
            if done["__all__"] or outcome.truncated:
                return


@pytest.fixture(scope="module")
def smax():
    from jaxmarl.environments.smax import map_name_to_scenario

    return Both("HeuristicEnemySMAX", {"scenario": "3m"}, scenario=map_name_to_scenario("3m"))


@pytest.fixture(scope="module")
def talk():
    return Both("MPE_simple_speaker_listener_v4", {"max_steps": 4}, max_steps=4)


def test_smax_says_its_sizes(smax):
    s = smax.env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.episode_limit) == (3, 8, 75, 72, 100)
    assert s.has_goal and s.unit_dim == 10 and s.return_range == (0.0, 2.0)
    check_shapes(smax.env)


def test_smax_gives_what_jaxmarls_own_loop_gives(smax):
    rng, lengths = np.random.default_rng(0), []

    def attack(state, time):  # an enemy within reach, else anything
        avail = np.asarray(smax.look(state)[1])
        return [rng.choice(np.flatnonzero(row[5:]) + 5 if row[5:].any() else np.flatnonzero(row)) for row in avail]

    for seed in (0, 1):
        for time, (state, obs, inner, outcome, rewards, done) in enumerate(smax.play(seed, 100, attack)):
            ours, avail, world = smax.look(state)
            if time:
                assert outcome.reward == pytest.approx(float(rewards["ally_0"]), rel=1e-6)
                assert bool(outcome.terminated) == done  # the clock of neither has run out
            if not done:
                masks = smax.theirs.get_avail_actions(inner)
                for i, agent in enumerate(smax.theirs.agents):
                    np.testing.assert_array_equal(ours[i], obs[agent])
                    np.testing.assert_array_equal(avail[i], masks[agent] > 0)
                units = np.array(obs["world_state"])[:60].reshape(6, 10)
                units[:, 1:3] /= 32  # the map is 32 x 32
                units[:, 3] = np.clip(units[:, 3] / 0.61, 0, 1)  # the time between two shots of a marine
                np.testing.assert_allclose(world, [*units.reshape(-1), *obs["world_state"][60:]], rtol=1e-6)
                assert world.min() >= 0 and world.max() <= 1.1
                np.testing.assert_array_equal(world[:30].reshape(3, 10)[:, 0], inner.state.unit_health[:3] / 45)
        assert done
        lengths.append(time)
    assert min(lengths) > 5


@pytest.mark.parametrize(
    ("dead", "time", "ending"),
    [
        ("enemies", 3, (True, False, True)),
        ("allies", 3, (True, False, False)),
        ("all", 3, (True, False, False)),
        ("nobody", 3, (False, False, False)),
        ("nobody", 99, (False, True, False)),
        ("enemies", 99, (True, False, True)),  # decided in the last step: the task's end, not the clock's
    ],
)
def test_a_battle_ends_by_victory_defeat_draw_or_the_clock(smax, dead, time, ending):
    state = smax.reset(jax.random.PRNGKey(0))
    units = {"enemies": [3, 4, 5], "allies": [0, 1, 2], "all": range(6), "nobody": []}[dead]
    battle = state.inner.state
    health = battle.unit_health.at[jnp.array(list(units), int)].set(0.0)
    battle = battle.replace(unit_health=health, unit_alive=health > 0)
    state = state._replace(inner=state.inner.replace(state=battle), time=jnp.int32(time))
    state, outcome = smax.step(state, jnp.full(3, 4), jax.random.PRNGKey(1))
    assert (bool(outcome.terminated), bool(outcome.truncated), bool(outcome.won)) == ending
    assert smax.look(state)[1].any(-1).all()  # everyone can do something, the dead too


def test_agents_that_differ_are_padded_and_the_teams_reward_is_the_mean(talk):
    listener, speaker = talk.theirs.agents.index("listener_0"), talk.theirs.agents.index("speaker_0")
    s = talk.env.spec
    assert (s.n_agents, s.n_actions, s.obs_dim, s.state_dim, s.has_goal) == (2, 5, 11, 22, False)
    steps = list(talk.play(0, 9, lambda state, time: [time % 3, time % 3]))
    assert len(steps) == 5  # the start, and four steps
    for state, obs, _, outcome, rewards, _ in steps:
        ours, avail, world = talk.look(state)
        np.testing.assert_array_equal(ours[listener], obs["listener_0"])
        np.testing.assert_array_equal(ours[speaker], [*obs["speaker_0"], *[0] * 8])
        np.testing.assert_array_equal(world, np.asarray(ours).reshape(-1))
        assert avail[listener].all() and avail[speaker].tolist() == [True] * 3 + [False] * 2
        if rewards:
            mean = float(rewards["listener_0"] + rewards["speaker_0"]) / 2
            assert outcome.reward == pytest.approx(mean, rel=1e-5)
    endings = [(bool(step[3].terminated), bool(step[3].truncated)) for step in steps[1:]]
    assert endings == [(False, False)] * 3 + [(False, True)]


def test_rewards_are_added_up_or_scaled_as_asked():
    rewards = []
    for args in ({}, {"team_reward": "sum"}, {"reward_scale": 10.0}):
        env = envs.make("jaxmarl:switch_riddle", **args)
        state = env.reset(jax.random.PRNGKey(0))
        rewards.append(float(env.step(state, jnp.full(3, 2), jax.random.PRNGKey(1))[1].reward))  # all tell: a mistake
    assert rewards[0] < 0 and rewards[1] == 3 * rewards[0] and rewards[2] == 10 * rewards[0]


def test_a_riddle_keeps_its_contract():
    check_env(envs.make("jaxmarl:switch_riddle"), episodes=2)


@pytest.mark.slow
def test_a_team_trains_on_a_riddle(tmp_path):
    train(tiny_config("vdn", "jaxmarl:switch_riddle", steps=200), tmp_path / "run", silent())
    assert any("td_loss" in row for row in read_rows(tmp_path / "run"))


def refusal(name, **args):
    with pytest.raises(EnvError) as error:
        envs.make(f"jaxmarl:{name}", **args)
    return str(error.value)


def test_what_cannot_be_played_is_explained(monkeypatch):
    assert "Did you mean 'HeuristicEnemySMAX'" in refusal("HeuristicEnemySMACS")
    assert "has no scenario '3n'. Did you mean '3m'" in refusal("HeuristicEnemySMAX", scenario="3n")
    assert "cannot be made from {'speed': 3}" in refusal("switch_riddle", speed=3)
    assert "acts in a Box space; EMU needs discrete actions" in refusal("MPE_simple_facmac_v1")
    assert "does not say how long an episode may be" in refusal("hanabi")
    assert "'mean' or 'sum', not 'max'" in refusal("switch_riddle", team_reward="max")
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    assert "pip install 'emu-marl[jaxmarl]'" in refusal("switch_riddle")
