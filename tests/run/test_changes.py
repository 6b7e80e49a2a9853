"""The table of what may change at a resume."""

import re
from pathlib import Path

import pytest

from emu.config import Config, to_dict
from emu.errors import ConfigError
from emu.run.changes import RULES, allowed_changes, changes, verdict

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"


def settings_of(node, where=""):
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from settings_of(value, f"{where}{name}.")
        else:
            yield f"{where}{name}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("steps", "free"),
        ("checkpoint.keep", "free"),
        ("rollout.workers", "free"),
        ("rollout.epsilon_end", "noted"),
        ("rollout.envs", "fixed"),
        ("learner.learning_rate", "noted"),
        ("learner.kind", "fixed"),
        ("memory.radius", "noted"),
        ("memory.embedder.interval", "noted"),
        ("memory.embedder.kind", "fixed"),
        ("devices", "noted"),
        ("seed", "fixed"),
        ("something.new", "fixed"),
    ],
)
def test_the_longest_rule_decides_and_what_no_rule_names_is_fixed(name, expected):
    assert verdict(name) == expected


def test_every_setting_has_a_rule_of_its_own_or_of_its_group():
    names = list(settings_of(to_dict(Config())))
    assert len(names) > 80
    assert [name for name in names if not any(name == rule or name.startswith(f"{rule}.") for rule in RULES)] == []


def test_differences_are_found_by_their_dotted_names():
    before, now = to_dict(Config()), to_dict(Config(seed=3, env_args={"a": 1}))
    now["learner"]["gamma"] = 0.5
    assert {str(change) for change in changes(before, now)} == {
        "seed 0 -> 3",
        "env_args {} -> {'a': 1}",
        "learner.gamma 0.99 -> 0.5",
    }


def test_a_setting_of_another_version_is_no_change():
    before = to_dict(Config())
    before["learner"]["forgotten"] = 1
    del before["tensorboard"]
    assert changes(before, to_dict(Config())) == []


def test_what_is_fixed_is_refused_and_what_is_free_not_even_noted():
    now = to_dict(Config(steps=7))
    assert allowed_changes(to_dict(Config()), now) == []
    now["learner"]["gamma"] = 0.5
    assert [change.name for change in allowed_changes(to_dict(Config()), now)] == ["learner.gamma"]
    now["agent"]["hidden"] = 5
    with pytest.raises(ConfigError, match=r"agent\.hidden 64 -> 5"):
        allowed_changes(to_dict(Config()), now)


def test_the_page_about_checkpoints_shows_the_same_table():
    rows = re.findall(r"^\| (free|noted|fixed) \|[^|]*\|([^|]*)\|$", PAGE.read_text(), re.M)
    shown = {name: row for row, names in rows for name in re.findall(r"`([\w.]+)`", names)}
    assert shown == RULES
