"""Every environment that the registry names can be made by that name."""

import importlib.util

import pytest

from emu import envs
from emu.envs.protocols import Env, PythonEnv
from emu.errors import EnvError

NEEDS = {"atari/": "ale_py", "football/": "gfootball"}


def missing(name):
    return [package for prefix, package in NEEDS.items() if name.startswith(prefix) and not found(package)]


def found(package):
    return importlib.util.find_spec(package) is not None


@pytest.mark.parametrize("name", [name for name in envs.registered() if name != "smacv2/custom" and not missing(name)])
def test_a_registered_environment_is_made_by_its_name(name):
    env = envs.make(name)
    assert isinstance(env, Env | PythonEnv)
    spec = env.spec
    assert min(spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim, spec.episode_limit) >= 1


def test_a_scenario_of_ones_own_says_what_it_needs():
    with pytest.raises(EnvError, match="capability_config"):
        envs.make("smacv2/custom")
