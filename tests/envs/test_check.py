"""Every way of breaking the contract is found and explained; a sound environment passes in silence."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.cli.app import main
from emu.envs.check import check_env, check_shapes
from emu.errors import EnvError
from emu.types import Outcome
from host_envs import HostCounting, Trouble
from toys import CountingEnv


def complaint(env, check=check_env, **options):
    with pytest.raises(EnvError) as error:
        check(env, **options)
    return str(error.value)


def test_a_sound_environment_passes():
    check_env(CountingEnv())


def test_no_specification():
    assert "has no `spec` of type EnvSpec" in complaint(object())


def test_missing_methods_are_all_named():
    class Half:
        spec = CountingEnv().spec

        def reset(self, key): ...

    message = complaint(Half())
    for name in ("step", "observe", "avail", "state"):
        assert f"it has no method `{name}`" in message
    assert "`reset`" not in message


def with_spec(**changes):
    class Misdescribed(CountingEnv):
        @property
        def spec(self):
            return dataclasses.replace(CountingEnv().spec, **changes)

    return Misdescribed()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_agents": 0}, "spec.n_agents is 0; it must be at least 1"),
        ({"episode_limit": 0}, "spec.episode_limit is 0"),
        ({"unit_dim": 3}, "2 agents x 3 features do not fit into a state of 4"),
        ({"return_range": (1.0, 1.0)}, "is not (smallest, largest)"),
        ({"obs_dim": 5}, "`observe(state)` returns float32[2, 4]; expected float32[2, 5]"),
        ({"state_dim": 9}, "`state(state)` returns float32[4]; expected float32[9]"),
        ({"n_actions": 4}, "`avail(state)` returns bool[2, 3]; expected bool[2, 4]"),
        ({"episode_limit": 4}, "goes on after spec.episode_limit = 4 steps"),
        ({"return_range": (0.0, 1.0)}, "lies outside spec.return_range (0.0, 1.0)"),
    ],
)
def test_a_specification_that_does_not_fit(changes, message):
    assert message in complaint(with_spec(**changes))


def broken(**methods):
    """The counting environment with some methods replaced; each gets the original as its first argument."""
    original = CountingEnv()

    def bind(name, function):
        return lambda self, *args: function(getattr(original, name), *args)

    return type("Broken", (CountingEnv,), {name: bind(name, f) for name, f in methods.items()})()


def with_outcome(change):
    def step(original, state, action, key):
        following, outcome = original(state, action, key)
        return following, change(outcome)

    return broken(step=step)


TRUE = jnp.ones((), bool)
calls = itertools.count()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken(reset=lambda f, key: 1 / 0), "`reset(key)` failed under jax tracing: ZeroDivisionError"),
        (broken(observe=lambda f, s: f(s).astype(int)), "`observe(state)` returns int32[2, 4]; expected float32[2, 4]"),
        (broken(observe=lambda f, s: [f(s)]), "`observe(state)` returns 'list'"),
        (broken(avail=lambda f, s: f(s).astype(jnp.float32)), "`avail(state)` returns float32[2, 3]; expected bool"),
        (broken(avail=lambda f, s: f(s) if s.time > 0 else ~f(s)), "`avail(state)` failed under jax tracing"),
        (broken(step=lambda f, s, a, k: (s, f(s, a, k)[1], 3)), "`step(state, action, key)` failed"),
        (broken(step=lambda f, s, a, k: (s.time, f(s, a, k)[1])), "differ from those of `reset`"),
        (broken(step=lambda f, s, a, k: (f(s, a, k)[0], 0.0)), "expected emu.types.Outcome"),
        (with_outcome(lambda o: o._replace(reward=jnp.zeros(2))), "outcome.reward is float32[2]; expected a scalar"),
        (with_outcome(lambda o: o._replace(reward=1)), "outcome.reward is int32[]; expected a scalar float32"),
        (with_outcome(lambda o: o._replace(won=jnp.int32(1))), "outcome.won is int32[]; expected a scalar bool"),
    ],
)
def test_what_tracing_shows(env, message):
    assert message in complaint(env)
    assert message in complaint(env, check_shapes)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken(observe=lambda f, s: jnp.where(s.time > 0, jnp.nan, f(s))), "NaN or infinity in obs"),
        (broken(state=lambda f, s: jnp.where(s.time > 0, jnp.inf, f(s))), "NaN or infinity in state"),
        (broken(avail=lambda f, s: f(s) & (s.time == 0)), "an agent has no available action"),
        (with_outcome(lambda o: o._replace(reward=o.reward * jnp.nan)), "the reward is NaN or infinite"),
        (with_outcome(lambda o: Outcome(o.reward, o.won, o.won, o.won)), "are both true"),
        (with_outcome(lambda o: o._replace(terminated=~TRUE, truncated=~TRUE)), "goes on after spec.episode_limit"),
    ],
)
def test_what_only_playing_shows(env, message):
    text = complaint(env)
    assert message in text and "(first: episode" in text
    check_shapes(env)


def test_randomness_from_outside_is_found():
    def step(original, state, action, key):
        following, outcome = original(state, action, key)
        noise = jax.pure_callback(lambda: jnp.int32(next(calls)), jax.ShapeDtypeStruct((), jnp.int32))
        return following._replace(action=following.action + noise), outcome

    assert "not a function of its arguments" in complaint(broken(step=step))


def test_everything_found_is_said_at_once():
    env = broken(observe=lambda f, s: f(s) * jnp.nan, state=lambda f, s: f(s) * jnp.nan)
    text = complaint(env)
    assert "NaN or infinity in obs" in text and "NaN or infinity in state" in text


def test_a_specification_that_does_not_fit_together_does_not_hide_what_playing_shows():
    text = complaint(with_spec(unit_dim=3, return_range=(0.0, 1.0)))
    assert "do not fit into a state" in text and "lies outside spec.return_range" in text


# Environments in Python


def test_a_sound_python_environment_passes(capsys):
    check_env(HostCounting(), episodes=14)
    assert main(["check", "host_envs:HostCounting"]) == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("obs", "NaN or infinity in obs: nan at [0, 0], type float32 (first: episode 2, step 2)"),
        ("state", "NaN or infinity in state"),
        ("avail", "an agent has no available action"),
        ("reward", "the reward is NaN or infinite"),
        ("shape", "obs of shape (2, 5); its specification says (2, 4)"),
        ("raise", "`step(action)` raised RuntimeError: the ball is lost"),
    ],
)
def test_the_checker_finds_what_is_wrong(tmp_path, kind, message):
    assert message in complaint(Trouble(kind, str(tmp_path)), episodes=14)


def test_the_checker_finds_an_episode_without_end():
    assert "goes on after spec.episode_limit = 3 steps" in complaint(HostCounting(limit=3), episodes=14)


def test_the_checker_finds_a_seed_that_decides_nothing():
    class Forgetful(HostCounting):
        count = 0

        def reset(self, seed):
            self.count += 1
            return super().reset(self.count)

    assert "same seed gives two different observations" in complaint(Forgetful())


def test_the_checker_wants_views_and_outcomes():
    class Loose(HostCounting):
        def reset(self, seed):
            return tuple(super().reset(seed))

    assert "returns tuple; expected emu.envs.View" in complaint(Loose())


def test_faults_of_a_python_environment_are_all_said_at_once():
    class Careless(HostCounting):
        def step(self, action):
            view, outcome = super().step(action)
            broken = view._replace(state=view.state * np.nan)
            return broken, outcome._replace(reward=np.nan, terminated=True, truncated=True)

    text = complaint(Careless())
    for fault in ("NaN or infinity in state", "the reward is NaN", "`terminated` and `truncated` are both true"):
        assert text.count(fault) == 1 and "(first: episode 0, step 1)" in text


def test_words_of_an_environments_own_do_not_steer_the_check(tmp_path):
    """Its name and its messages may hold any word: what ends a check is what happened."""

    class Named(HostCounting):
        def __init__(self):
            super().__init__()
            self.spec = dataclasses.replace(self.spec, name="raised returns reward", return_range=(0.0, 1.0))
            self.begun = 0

        def reset(self, seed):
            self.begun += 1
            return super().reset(seed)

    env = Named()
    assert "lies outside spec.return_range" in complaint(env, episodes=6)
    assert env.begun == 6


def test_an_environment_that_raised_is_not_asked_again(tmp_path):
    class Once(HostCounting):
        begun = 0

        def reset(self, seed):
            self.begun += 1
            raise RuntimeError("no game today")

    env = Once()
    text = complaint(env)
    assert "`reset(seed)` raised RuntimeError: no game today (" in text
    assert "test_check.py:" in text and " in reset) (first: episode 0)" in text
    assert env.begun == 1
