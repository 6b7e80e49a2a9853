"""Settings that cannot be: every field with values of every other type and beyond every bound, settings that
contradict one another, and runs that this machine's memory could not hold."""

import dataclasses
import math
import typing

import pytest

from emu.bounds import hints_of
from emu.config import Config, replace
from emu.config.presets import preset
from emu.envs import make
from emu.errors import ConfigError, EmuError
from emu.learners.build import build_learner
from emu.training.budget import estimate, machine_bytes, require_memory

from .common import accepting_nothing, command, require_refused


def leaves(kind=Config, where=""):
    """Every setting by its dotted name, with its type."""
    for name, hint in hints_of(kind).items():
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        if dataclasses.is_dataclass(bare):
            yield from leaves(bare, f"{where}{name}.")
        else:
            yield f"{where}{name}", hint


SETTINGS = dict(leaves())
ALIENS = [
    None,
    True,
    "x",
    "",
    "1",
    [],
    [1],
    {},
    {"a": 1},
    math.nan,
    math.inf,
    -math.inf,
    1e400,
    -1,
    -1e-300,
    10**400,
    1.5,
]


def may_be(hint, value):
    """Whether a value is of the type of a setting; bounds are the business of the tables below."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return may_be(arguments[0], value)
    if origin in (typing.Union, type(int | None)):
        return any(may_be(option, value) for option in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is dict:
        return isinstance(value, dict)
    if hint is type(None):
        return value is None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(min(value, 1e308))
    return isinstance(value, hint)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_another_type_is_refused_by_its_name(name):
    """Fourteen hundred values; those that fit the type may be taken, but never fail otherwise."""
    for value in ALIENS:
        try:
            replace(Config(), {name: value})
        except EmuError as error:
            assert name in str(error) or name.rpartition(".")[2] in str(error), (name, value, error)
        else:
            assert may_be(SETTINGS[name], value), f"{name} = {value!r} was taken"


BEYOND = {
    "seed": [-1, 2**32],
    "steps": [0, -1, 2**31],
    "log_interval": [0, 2**31],
    "devices": [-1, 2**31],
    "rollout.envs": [0, -8, 2**31],
    "rollout.chunk": [0, 2**31],
    "rollout.epsilon_start": [-0.1, 1.1],
    "rollout.epsilon_end": [-0.1, 1.1],
    "rollout.epsilon_steps": [0, 2**31],
    "rollout.random_steps": [-1, 2**31],
    "rollout.workers": [-1, 2**31],
    "rollout.where": ["there", "Here"],
    "rollout.timeout": [0, -1],
    "rollout.max_failures": [0],
    "replay.unit": ["games", "Episodes"],
    "replay.episodes": [0, 2**31],
    "replay.steps": [0, 2**31],
    "replay.gigabytes": [0, -4, 1e300],
    "agent.hidden": [0, -64, 2**31],
    "mixer.kind": ["qmx", "None"],
    "mixer.embed": [0],
    "mixer.heads": [0],
    "mixer.kernels": [0],
    "mixer.importance_layers": [0],
    "mixer.attention_regulariser": [-1],
    "learner.gamma": [-0.01, 1.01],
    "learner.learning_rate": [0, -1],
    "learner.rmsprop_decay": [1.0, -0.1],
    "learner.rmsprop_eps": [0],
    "learner.max_grad_norm": [0, -10],
    "learner.batch_size": [0, -32],
    "learner.updates_per_episode": [-1],
    "learner.updates_per_step": [-0.5],
    "learner.updates_per_call": [0],
    "learner.target_interval": [0],
    "learner.td_lambda": [-0.1, 1.1],
    "learner.reward_clip": [-1],
    "learner.length_buckets": [0, 17],
    "dqn.hidden": [0],
    "dqn.huber": [0],
    "dqn.target_interval": [0],
    "ppo.critic": ["nobody"],
    "ppo.epochs": [0],
    "ppo.clip": [0],
    "ppo.gae_lambda": [1.1],
    "ppo.entropy": [-1],
    "td3.hidden": [0],
    "td3.policy_interval": [0],
    "td3.soft_update": [0, 1.1],
    "td3.smoothing": [-1],
    "memory.use": ["sometimes"],
    "memory.capacity": [0, 2**31],
    "memory.gigabytes": [0, 1e300],
    "memory.key_dim": [0, 9],
    "memory.radius": [-1e-3],
    "memory.target_hit_rate": [-0.1, 1.0],
    "memory.metric": ["l3"],
    "memory.return_quantile": [-0.1, 1.1],
    "memory.control_weight": [-1],
    "memory.snapshot_interval": [-1],
    "memory.embedder.kind": ["resnet", ""],
    "memory.embedder.interval": [0],
    "memory.embedder.samples": [0],
    "memory.embedder.batch_size": [0],
    "memory.embedder.loss_case": ["neither"],
    "curiosity.scale": [-1],
    "curiosity.decay": [0, 1.1],
    "curiosity.decay_interval": [0],
    "curiosity.soft_update": [0],
    "diversity.beta": [-1],
    "diversity.hidden": [0],
    "diversity.minibatch": [0],
    "elliptical.scale": [-1],
    "elliptical.ridge": [0],
    "eval.interval": [0],
    "eval.episodes": [0, -5, 2**31],
    "eval.epsilon": [-0.1, 1.1],
    "checkpoint.interval": [0],
    "checkpoint.minutes": [-1],
    "checkpoint.keep": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BEYOND.items() for value in values])
def test_a_setting_beyond_its_bounds_is_refused_by_its_name(name, value):
    with pytest.raises(ConfigError) as refused:
        replace(Config(), {name: value})
    assert name in str(refused.value)


TOGETHER = {
    "learner.td_lambda": {"learner.td_lambda": 0.5, "learner.kind": "dqn"},
    "nothing would be learnt": {"learner.updates_per_episode": 0},
    "no batch could ever be drawn": {"learner.batch_size": 100, "replay.episodes": 99},
    "leave rollout.epsilon_end at 1": {"learner.kind": "mappo", "rollout.epsilon_end": 0},
    "diversity.beta needs agent.own_heads": {"diversity.beta": 0.1},
    "elliptical.scale needs a trained embedder": {"elliptical.scale": 0.1, "memory.embedder.kind": "random"},
    "must not exceed rollout.epsilon_start": {"rollout.epsilon_start": 0.1, "rollout.epsilon_end": 0.2},
    "needs --rollout.workers": {"rollout.where": "ray"},
    "leave agent.share_parameters on": {"agent.own_heads": True, "agent.share_parameters": False},
    "excludes memory.return_threshold": {"memory.return_quantile": 0.5, "memory.return_threshold": 1.0},
    "must not exceed memory.prior_visits": {"memory.prior_desirable": 1.0},
    "must not exceed memory.embedder.samples": {"memory.embedder.batch_size": 10**6},
}


@pytest.mark.parametrize("about", TOGETHER)
def test_settings_that_contradict_one_another_are_refused(about):
    with pytest.raises(ConfigError, match=about):
        replace(Config(), TOGETHER[about])


FILES = {
    "a list": ("[1, 2]", "object of settings"),
    "a number": ("3", "object of settings"),
    "nothing": ("null", "object of settings"),
    "an unknown setting": ('{"nothing": 1}', "nothing"),
    "an unknown setting of a group": ('{"learner": {"nothing": 1}}', "learner.nothing"),
    "a group that is none": ('{"learner": 3}', "learner"),
    "a group that is nothing": ('{"learner": null}', "learner"),
    "arguments that are nothing": ('{"env_args": null}', "env_args"),
    "arguments that are a list": ('{"env_args": [1]}', "env_args"),
    "an algorithm that is a number": ('{"algo": 3}', "3"),
    "an environment that is nothing": ('{"env": null}', "None"),
    "terms that are none": ('{"terms": {"os:system": 3}}', "os:system"),
    "loggers that are none": ('{"loggers": {"tensorboard": 3}}', "tensorboard"),
    "a seed that is text": ('{"seed": "0"}', "seed"),
    "one key twice, wrong": ('{"seed": 1, "seed": -1}', "seed"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_settings_that_cannot_be_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    accepting_nothing(monkeypatch)
    content, about = FILES[name]
    (tmp_path / "settings.json").write_text(content)
    require_refused(command("train", "--config", "settings.json"), about)


# Memory

HUGE = {
    "replay": ("replay.gigabytes", {"replay.gigabytes": 1e6, "replay.episodes": 2**31 - 1}),
    "memory": ("memory.capacity", {"algo": "emu_qmix", "memory.gigabytes": 1e6, "memory.capacity": 2**31 - 1}),
    "copies": ("rollout.envs", {"rollout.envs": 10**9}),
    "chunk": ("rollout.chunk", {"rollout.chunk": 10**9}),
    "network": ("agent.hidden", {"agent.hidden": 10**7}),
    "mixer": ("mixer.embed", {"mixer.embed": 10**9}),
    "batch": ("learner.batch_size", {"learner.batch_size": 10**9, "replay.episodes": 10**9}),
    "evaluation": ("eval.episodes", {"eval.episodes": 10**9}),
    "updates": ("learner.updates_per_call", {"learner.updates_per_call": 10**9}),
}


@pytest.mark.parametrize("what", HUGE)
def test_a_run_that_the_machine_cannot_hold_is_refused_with_the_figures(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    accepting_nothing(monkeypatch)
    about, changes = HUGE[what]
    words = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    answer = command("train", "--run-dir", "run", *words)
    require_refused(answer, about)
    assert "of memory, but this machine has" in answer.said and not (tmp_path / "run").exists()


def parts_of(config):
    env = make(config.env)
    from emu.devices import Devices

    return {
        part.name: part.bytes for part in estimate(config, env.spec, build_learner(config, env.spec, Devices.of(1)))
    }


def test_the_estimate_is_what_the_stores_themselves_say():
    from emu.replay.build import build_replay

    config = preset("emu_qmix", "gridworld", **{"replay.episodes": 100, "memory.capacity": 1_000, "devices": 1})
    spec, parts = make("gridworld").spec, parts_of(config)
    assert parts["the replay"] == build_replay(config, spec).most_bytes
    assert parts["the episodic memory"] == 1_000 * config.memory.entry_bytes(spec.state_dim)
    assert parts_of(preset("qmix", "gridworld"))["the episodic memory"] == 0
    wide = parts_of(replace(config, {"agent.hidden": 128}))
    assert wide["the networks"] > parts["the networks"] and wide["the replay"] == parts["the replay"]


def test_a_run_that_just_fits_is_taken_and_one_byte_less_is_not():
    from emu.devices import Devices

    config, spec = preset("qmix", "gridworld", devices=1), make("gridworld").spec
    learner = build_learner(config, spec, Devices.of(1))
    need = sum(part.bytes for part in estimate(config, spec, learner))
    require_memory(config, spec, learner, need)
    with pytest.raises(ConfigError, match="replay"):
        require_memory(config, spec, learner, need - 1)
    assert need < machine_bytes() < 2**62
