"""What must be said of an environment, and what may be left out."""

import dataclasses
import json
import math

import numpy as np
import pytest

from emu.envs import EnvSpec

REQUIRED = {
    "name": "arena",
    "version": "1",
    "n_agents": 3,
    "n_actions": 2,
    "obs_dim": 4,
    "state_dim": 13,
    "episode_limit": 9,
}


def test_the_required_fields_are_those_that_the_class_lists():
    needed = [field.name for field in dataclasses.fields(EnvSpec) if field.default is dataclasses.MISSING]
    assert needed == list(REQUIRED)
    assert all(f"`{name}`" in (EnvSpec.__doc__ or "") for name in needed)


def test_the_rest_has_defaults():
    spec = EnvSpec(**REQUIRED)
    assert spec.unit_dim == 4, "the state divided evenly among the agents, as far as it goes"
    assert not spec.has_goal and spec.return_range == (-math.inf, math.inf)
    assert [EnvSpec(**REQUIRED, unit_dim=given).unit_dim for given in (0, 2)] == [0, 2]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name):
    with pytest.raises(TypeError, match=name):
        EnvSpec(**{key: value for key, value in REQUIRED.items() if key != name})


def test_sizes_that_numpy_computed_become_plain_numbers_that_json_knows():
    spec = EnvSpec("any", "1", np.int64(2), np.int32(3), np.int64(4), np.prod([2, 3]), 5, has_goal=np.bool_(True))
    assert json.loads(json.dumps(dataclasses.asdict(spec)))["state_dim"] == 6
    assert type(spec.n_agents) is int and spec.has_goal is True and spec.unit_dim == 3
