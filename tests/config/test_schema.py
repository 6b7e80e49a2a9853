"""Configurations: the JSON round trip, and what is refused with which words."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.bounds import hints_of
from emu.config import schema as c
from emu.config.presets import ALGORITHMS, preset
from emu.errors import ConfigError
from emu.memory.options import EmbedderOptions, MemoryOptions

numbers = st.integers(1, 10_000)
shares = st.floats(0, 1, allow_nan=False)
positive = st.floats(1e-6, 1e3)

configs = st.builds(
    c.Config,
    algo=st.sampled_from(sorted(ALGORITHMS)),
    env=st.text(max_size=20),
    env_args=st.dictionaries(st.text(max_size=5), st.one_of(numbers, shares, st.text(max_size=5), st.booleans())),
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 2**31 - 1),
    rollout=st.builds(c.RolloutConfig, envs=numbers, chunk=numbers, epsilon_end=shares, epsilon_steps=numbers),
    replay=st.builds(c.ReplayConfig, episodes=st.integers(5_000, 10_000), gigabytes=positive),
    mixer=st.builds(c.MixerConfig, kind=st.sampled_from(["vdn", "qmix", "qplex", "none"]), nonlinear=st.booleans()),
    learner=st.builds(c.LearnerConfig, gamma=shares, learning_rate=positive, batch_size=st.integers(1, 5_000)),
    memory=st.builds(c.MemoryConfig, return_threshold=st.one_of(st.none(), positive), radius=shares),
)


@settings(max_examples=30)
@given(configs)
def test_json_round_trip_is_exact(config):
    assert c.from_dict(json.loads(json.dumps(c.to_dict(config)))) == config


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_every_preset_survives_the_round_trip(algo):
    config = preset(algo, "gridworld")
    assert c.from_dict(json.loads(json.dumps(c.to_dict(config)))) == config


def test_whole_numbers_are_taken_where_fractions_are_wanted():
    config = c.from_dict({"replay": {"gigabytes": 2}})
    assert config.replay.gigabytes == 2.0 and isinstance(config.replay.gigabytes, float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sede": 1}, "Unknown configuration key 'sede'. Did you mean 'seed'?"),
        ({"learner": {"gama": 0.9}}, "Unknown configuration key 'learner.gama'. Did you mean 'gamma'?"),
        ({"memory": {"embedder": {"intervall": 3}}}, "'memory.embedder.intervall'. Did you mean 'interval'?"),
        ({"mixer": {"kind": "qmixx"}}, "mixer.kind cannot be 'qmixx'. Did you mean 'qmix'?"),
        ({"learner": 3}, "'learner' must be a group of settings, not 3"),
        ({"seed": "one"}, "'seed' must be of type int, not 'one'"),
        ({"seed": True}, "'seed' must be of type int, not True"),
        ({"tensorboard": 1}, "'tensorboard' must be of type bool, not 1"),
        ({"memory": {"return_threshold": "high"}}, "'memory.return_threshold' cannot be 'high'"),
    ],
)
def test_unknown_keys_and_wrong_types_are_refused_with_a_hint(data, message):
    with pytest.raises(ConfigError) as error:
        c.from_dict(data)
    assert message in str(error.value)


def test_something_that_is_no_object_is_refused():
    with pytest.raises(ConfigError, match=r"JSON object"):
        c.from_dict([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"seed": -1}, "seed must lie in [0, 4294967295], not -1"),
        ({"seed": 2**32}, "seed must lie in"),
        ({"steps": 0}, "steps must lie in"),
        ({"steps": 2**31}, "steps must lie in [1, 2147483647], not 2147483648"),
        ({"log_interval": 0}, "log_interval must be at least 1, not 0"),
        ({"devices": -1}, "devices"),
        ({"rollout.envs": 0}, "rollout.envs must be at least 1, not 0"),
        ({"rollout.epsilon_end": 1.5}, "rollout.epsilon"),
        ({"rollout.epsilon_start": 0.01}, "rollout.epsilon_end (0.05) must not exceed"),
        ({"replay.episodes": 0}, "replay.episodes"),
        ({"replay.gigabytes": float("inf")}, "replay.gigabytes must be a finite number"),
        ({"replay.gigabytes": float("nan")}, "replay.gigabytes must be a finite number"),
        ({"learner.gamma": 1.01}, "learner.gamma must lie in [0, 1], not 1.01"),
        ({"learner.td_lambda": 1.5}, "learner.td_lambda must lie in [0, 1], not 1.5"),
        ({"learner.td_lambda": 0.5, "learner.kind": "dqn"}, "dqn has its own targets"),
        ({"learner.learning_rate": 0.0}, "learner.learning_rate must be greater than 0, not 0.0"),
        ({"learner.learning_rate": float("inf")}, "learner.learning_rate must be a finite number"),
        ({"learner.batch_size": 0}, "learner.batch_size"),
        ({"learner.length_buckets": 99}, "learner.length_buckets must lie in [1, 16], not 99"),
        ({"learner.batch_size": 6_000}, "learner.batch_size (6000) exceeds replay.episodes (5000)"),
        ({"agent.hidden": 0}, "agent.hidden"),
        ({"mixer.embed": 0}, "mixer"),
        ({"memory.key_dim": 9}, "memory.key_dim"),
        ({"memory.embedder.batch_size": 200_000}, "memory.embedder.batch_size must not exceed"),
        ({"memory.embedder.interval": 0}, "memory.embedder.interval must be at least 1"),
        ({"memory.return_quantile": 1.5}, "memory.return_quantile must lie in [0, 1], not 1.5"),
        ({"memory.return_quantile": 0.5, "memory.return_threshold": 1.0}, "memory.return_quantile excludes"),
        ({"memory.prior_desirable": 1.0}, "memory.prior_desirable must not exceed memory.prior_visits"),
        ({"memory.target_hit_rate": 1.0}, "memory.target_hit_rate must lie in [0, 1), not 1.0"),
        ({"memory.metric": "l3"}, "memory.metric cannot be 'l3'. Did you mean 'l2'?"),
        ({"diversity.beta": 0.1}, "diversity.beta needs agent.own_heads"),
        ({"eval.episodes": 0}, "eval.episodes must be at least 1"),
        ({"checkpoint.keep": 0}, "checkpoint"),
        ({"curiosity.decay": 0.0}, "curiosity.decay must lie in (0, 1], not 0.0"),
        ({"elliptical.ridge": 0.0}, "elliptical"),
    ],
)
def test_impossible_values_are_refused(overrides, message):
    with pytest.raises(ConfigError) as error:
        c.replace(c.Config(), overrides)
    assert message in str(error.value)


def test_every_number_of_a_configuration_has_bounds_or_may_be_anything_finite():
    """Only thresholds, and weights that may pull either way, have no bound of their own."""
    free = {f"{group}.{name}" for group, name, hint in numbers_of(c.Config) if not bounded(hint)}
    assert free == {"curiosity.target_factor", "diversity.beta1", "diversity.beta2", "memory.return_threshold"}


def numbers_of(kind: type, group: str = "") -> list[tuple[str, str, object]]:
    """(group, name, type) of all numbers, groups within groups included."""
    found: list[tuple[str, str, object]] = []
    for name, hint in hints_of(kind).items():
        if dataclasses.is_dataclass(hint):
            found += numbers_of(hint, f"{group}.{name}".lstrip("."))  # type: ignore[arg-type]
        elif "int" in str(hint) or "float" in str(hint):
            found.append((group, name, hint))
    return found


def bounded(hint: object) -> bool:
    return "Within" in repr(hint)


def test_one_declaration_serves_the_memory_and_the_run():
    """A run's memory settings are the memory library's options, not a copy of them."""
    shared = [field.name for field in dataclasses.fields(MemoryOptions)]
    assert not set(shared) & set(vars(c.MemoryConfig).get("__annotations__", {}))
    assert isinstance(c.Config().memory, MemoryOptions) and isinstance(c.Config().memory.embedder, EmbedderOptions)


def test_options_made_directly_are_checked_like_those_of_a_configuration():
    with pytest.raises(ConfigError, match=r"memory\.key_dim must lie in \[1, 8\], not 9"):
        MemoryOptions(key_dim=9)
    with pytest.raises(ConfigError, match=r"memory\.capacity must be of type int, not '3'"):
        MemoryOptions(capacity="3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"learner\.gamma must lie in \[0, 1\]"):
        c.LearnerConfig(gamma=2)


def test_a_whole_number_may_be_written_with_an_exponent():
    assert c.from_dict({"steps": 1e6}).steps == 1_000_000
    with pytest.raises(ConfigError, match=r"'steps' must be of type int, not 1\.5"):
        c.from_dict({"steps": 1.5})


def test_replace_changes_only_what_it_is_told():
    config = c.replace(c.Config(), {"mixer.kind": "vdn", "memory.embedder.interval": 7})
    assert (config.mixer.kind, config.memory.embedder.interval) == ("vdn", 7)
    back = c.replace(config, {"mixer.kind": "qmix", "memory.embedder.interval": 10_000})
    assert back == c.Config()


def test_replace_points_at_a_misspelt_path():
    with pytest.raises(ConfigError, match=r"Did you mean 'mixer'"):
        c.replace(c.Config(), {"mixxer.kind": "vdn"})
    with pytest.raises(ConfigError, match=r"Did you mean 'kind'"):
        c.replace(c.Config(), {"mixer.kid": "vdn"})


def test_unknown_algorithm_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"No algorithm is called 'qmx'. Did you mean 'qmix'"):
        preset("qmx", "gridworld")


def test_configs_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.Config().seed = 3  # type: ignore[misc]


def test_own_heads_need_a_shared_network():
    with pytest.raises(ConfigError, match=r"leave agent\.share_parameters on"):
        c.AgentConfig(own_heads=True, share_parameters=False)
