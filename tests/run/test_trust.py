"""Which settings name code from outside."""

import pytest

from emu.config import replace
from emu.run.trust import outside
from toys import tiny_config


@pytest.mark.parametrize(
    "env", ["gridworld", "gridworld/tiny", "smac/3m", "football", "gymnasium:CartPole-v1", "jaxmarl:MPE_simple_v3"]
)
def test_what_the_registries_know_is_not_from_outside(env):
    assert outside(replace(tiny_config(), {"env": env})) == []


def test_a_name_that_nobody_knows_imports_nothing():
    assert outside(replace(tiny_config(), {"env": "gridwrld"})) == []


@pytest.mark.parametrize(
    "env", ["os:system", "a.b:C", ":", "x:", ":x", "pymarl:x:Y", "pettingzoo:mpe2.simple_v3", "gymnasium:a:B-v0"]
)
def test_whatever_an_environment_imports_is(env):
    assert outside(replace(tiny_config(), {"env": env})) == [f"env {env!r}"]


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ({"weights": "/some/path:with/colon"}, 0),
        ({"weights": "C:\\weights", "url": "https://example.org"}, 0),
        ({"class": "os:system"}, 1),
        ({"deep": [{"inside": ["a.b:C"]}]}, 1),
        ({"os:system": 1}, 1),
    ],
)
def test_arguments_are_looked_through(args, count):
    assert len(outside(replace(tiny_config(), {"env_args": args}))) == count


def test_a_cluster_elsewhere_is_from_outside_and_ones_own_is_not():
    ray = {"rollout.where": "ray", "rollout.workers": 1}
    assert outside(replace(tiny_config(), ray)) == []
    assert outside(replace(tiny_config(), ray | {"rollout.cluster": "10.0.0.1:6379"})) != []
