"""Every kind of piece comes from a folder outside of the package: the very files that docs/add-your-own.md shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from emu.cli.app import main
from emu.errors import ConfigError, EmuError
from emu.run.folder import read_config
from emu.run.metrics import read_rows
from emu.run.team import load_team
from emu.training.session import resume, train
from toys import silent, tiny_config

PAGE = Path(__file__).parents[2] / "docs" / "add-your-own.md"


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the page's files, which is the current one."""
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        name = re.match(r'"""(\w+)\.py:', code)
        assert name, code[:60]
        (tmp_path / f"{name[1]}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]


def rows_of(config, folder=Path("run")):
    train(config, folder, silent())
    return [row for row in read_rows(folder) if "updates" in row and "loss" in row]


def test_a_term_from_outside_adds_its_reward_with_its_settings(outside):
    rewards = []
    for scale in (0.02, 0.04):
        terms = {"restless:Restless": {"scale": scale}}
        rows = rows_of(tiny_config("vdn", steps=200, terms=terms), Path(f"run{scale}"))
        rewards.append(rows[0]["restless_reward"])
    assert 0 < rewards[0] < 0.02
    assert rewards[1] == pytest.approx(2 * rewards[0], rel=1e-3)  # the same first updates, nearly


@pytest.mark.parametrize("algo", ["dqn", "td3"])
def test_a_term_that_reads_no_team_values_serves_learners_of_one_agent_too(outside, algo):
    from emu.devices import Devices
    from emu.envs import EnvSpec
    from emu.learners.build import build_learner

    spec = EnvSpec(
        "one", "1", 1, 1 if algo == "td3" else 3, 2, 2, 9, 2, True, (0.0, 1.0), action_dim=int(algo == "td3")
    )
    config = tiny_config(algo, terms={"restless:Restless": {}})
    assert [term.name for term in build_learner(config, spec, Devices.of()).terms] == ["restless"]


def test_a_learner_from_outside_trains_acts_and_is_resumed(outside):
    changes = {
        "learner.kind": "monte_carlo:MonteCarlo",
        "learner.settings": {"hidden": 8},
        "learner.learning_rate": 0.01,
    }
    rows = rows_of(tiny_config("vdn", steps=300, **changes))
    assert rows[-1]["updates"] > 20 and all(np.isfinite(row["loss"]) for row in rows)
    assert read_config(Path("run")).learner.settings == {"hidden": 8}
    resume(Path("run"), 400, silent(), trust=True)
    assert read_rows(Path("run"))[-1]["step"] >= 400
    team = load_team(Path("run"), trust=True)
    assert type(team.learner).__name__ == "MonteCarlo" and team.learner.settings.hidden == 8


def test_a_logger_from_outside_gets_every_row(outside):
    rows_of(tiny_config("vdn", steps=200, loggers={"long_table:LongTable": {"file": "all.csv"}}))
    lines = [line.split(",") for line in Path("run/all.csv").read_text().splitlines()]
    told = {(int(step), name): float(value) for step, name, value in lines}
    written = [(row["step"], name, value) for row in read_rows(Path("run")) for name, value in row.items()]
    assert told == {(step, name): value for step, name, value in written if name != "step"}


def test_an_embedder_from_outside_is_trained_and_makes_the_keys(outside):
    changes = {"memory.embedder.kind": "wide:Wide", "memory.embedder.settings": {"hidden": 8}}
    rows = rows_of(tiny_config("emu_vdn", steps=300, **changes))
    assert any("embedder_return_loss" in row for row in rows)
    assert all(np.isfinite(row["embedder_loss"]) for row in rows if "embedder_loss" in row)


def test_an_environment_from_outside_passes_the_checker_and_trains(outside):
    assert main(["check", "rendezvous:Rendezvous"]) == 0
    rows = rows_of(tiny_config("vdn", "rendezvous:Rendezvous", steps=200, env_args={"cells": 5}))
    assert rows


def test_settings_from_outside_are_as_strict_as_the_packages_own(outside):
    for changes, message in (
        ({"terms": {"restless:Restless": {"scal": 1.0}}}, r"'terms\.restless:Restless\.scal'\. Did you mean 'scale'"),
        ({"terms": {"restless:Restless": {"scale": "big"}}}, r"scale' must be of type float, not 'big'"),
        ({"terms": {"restless:Restless": 1}}, r"gives every term its settings"),
        ({"terms": {"restless:Restles": {}}}, r"has no 'Restles'\. Did you mean 'Restless'"),
        ({"terms": {"curiosity": {}}}, r"switched on by its own settings: curiosity\.scale above 0"),
        ({"terms": {"curiosty": {}}}, r"No term is called 'curiosty' .* Did you mean 'curiosity'"),
        ({"learner.kind": "monte_carlo:MonteCarlo", "learner.settings": {"hiden": 8}}, r"Did you mean 'hidden'"),
        ({"learner.settings": {"hidden": 8}}, r"'learner\.settings' must be empty: ValueLearner has no settings"),
        ({"learner.kind": "valu"}, r"No learner is called 'valu' .* Did you mean 'value'"),
        ({"loggers": {"long_table:LongTable": {"fil": ""}}}, r"Did you mean 'file'"),
        ({"loggers": {"tensorbord": {}}}, r"No logger is called 'tensorbord' .* Did you mean 'tensorboard'"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(tiny_config("vdn", steps=50, **changes), outside / "never", silent())


TRAP = """
import pathlib
def system(**named): pathlib.Path("ran").touch()
def listed(config, spec, settings): pathlib.Path("ran").touch()
class Callable:
    def __init__(self, *all, **named): pathlib.Path("ran").touch()
"""


PLACES = ("env", "learner.kind", "terms", "loggers", "memory.embedder.kind", "pymarl", "pettingzoo")
NAMES = ("os:system", "trap:system", "trap:listed", "trap:Callable", "subprocess:Popen")
ADAPTERS_CALL = ("trap:system", "trap:listed")  # a package's own function may make an environment: only calling tells


@pytest.mark.parametrize(
    ("where", "name"),
    [(w, n) for w in PLACES for n in NAMES if w not in ("pymarl", "pettingzoo") or n not in ADAPTERS_CALL],
)
def test_what_is_not_of_the_wanted_kind_is_refused_and_nothing_of_it_is_called(outside, where, name):
    (outside / "trap.py").write_text(TRAP)
    args = {"command": "touch ran", "args": "touch ran", "shell": True}
    changes = {
        "env": {"env": name, "env_args": args},
        "pymarl": {"env": f"pymarl:{name}", "env_args": args},
        "pettingzoo": {"env": f"pettingzoo:{name}", "env_args": args},
        "terms": {"terms": {name: {}}},
        "loggers": {"loggers": {name: {}}},
    }.get(where, {where: name})
    with pytest.raises(EmuError, match=r"is no (environment|learner|term|logger|embedder): .*Nothing of it was called"):
        train(tiny_config("emu_vdn", steps=50, **changes), outside / "run", silent())
    assert not (outside / "ran").exists()
