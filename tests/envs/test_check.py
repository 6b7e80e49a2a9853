"""Every way of breaking the contract is found and explained; a sound environment passes in silence."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

from emu.envs.check import check_env, check_shapes
from emu.errors import EnvError
from emu.types import Outcome
from toys import CountingEnv


def complaint(env, check=check_env):
    with pytest.raises(EnvError) as error:
        check(env)
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
        (broken(observe=lambda f, s: jnp.where(s.time > 0, jnp.nan, f(s))), "`observe` returns NaN or infinity"),
        (broken(state=lambda f, s: jnp.where(s.time > 0, jnp.inf, f(s))), "`state` returns NaN or infinity"),
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
    assert "`observe` returns NaN" in text and "`state` returns NaN" in text
