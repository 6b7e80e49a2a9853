"""Run folders that name code: looking at them never executes any of it, and whatever would build it asks for trust.

The payloads are real: they would write a file. They are put into every place of a `config.json` (and of an exported
team) from which something is imported or called."""

import itertools
import json

import pytest

import emu as package
from emu.errors import EmuError
from study.report.memories import invent_snapshot
from study.synthetic import write_run

from .common import command

PAYLOAD = """
import pathlib
pathlib.Path("executed").touch()
class Anything:
    def __init__(self, *a, **k): pathlib.Path("executed").touch()
    reset = step = observe = avail = state = spec = sketch = __init__
"""

# Where in the settings, and what is put there. `evil` is a module in the current folder that writes a file on import.
PLACES = {
    "os.system": {"env": "os:system", "env_args": {"command": "touch executed"}},
    "subprocess": {"env": "subprocess:Popen", "env_args": {"args": ["touch", "executed"]}},
    "exec": {"env": "builtins:exec", "env_args": {"source": "open('executed', 'w')"}},
    "a module of one's own": {"env": "evil:Anything"},
    "deep inside a module": {"env": "evil:Anything.state"},
    "a module alone": {"env": "evil:"},
    "pymarl": {"env": "pymarl:evil:Anything"},
    "pymarl, os.system": {"env": "pymarl:os:system", "env_args": {"command": "touch executed"}},
    "pettingzoo": {"env": "pettingzoo:evil"},
    "gymnasium, by module": {"env": "gymnasium:evil:Anything-v0"},
    "an argument": {"env_args": {"map_name": "evil:Anything"}},
    "an argument deep inside": {"env_args": {"a": [{"b": ["evil:Anything"]}]}},
    "a key of the arguments": {"env_args": {"evil:Anything": 1}},
    "an argument with a namespace": {"env_args": {"env_id": "evil:space/Anything-v0"}},
    "learner": {"learner": {"kind": "evil:Anything"}},
    "learner, os.system": {"learner": {"kind": "os:system", "settings": {"command": "touch executed"}}},
    "settings of a learner": {"learner": {"settings": {"x": "evil:Anything"}}},
    "term": {"terms": {"evil:Anything": {}}},
    "term, os.system": {"terms": {"os:system": {"command": "touch executed"}}},
    "logger": {"loggers": {"evil:Anything": {}}},
    "logger, os.system": {"loggers": {"os:system": {"command": "touch executed"}}},
    "embedder": {"memory": {"embedder": {"kind": "evil:Anything"}}},
    "embedder, os.system": {"memory": {"embedder": {"kind": "os:system"}}},
    "settings of an embedder": {"memory": {"embedder": {"settings": {"x": "evil:Anything"}}}},
    "ray": {"rollout": {"where": "ray", "workers": 1, "cluster": "ray://evil.example:10001"}},
}
LOOKS = {
    "table": lambda run, out: command("table", run),
    "plot": lambda run, out: command("plot", run, "--out", out / "x.png"),
    "export": lambda run, out: command("export", run, out / "x.json"),
    "report": lambda run, out: command("report", run, "--out", out / "x.html"),
}
BUILDS = {
    "evaluate": lambda run, out: command("evaluate", run, "--episodes", 1),
    "evaluate last": lambda run, out: command("evaluate", run, "--which", "last"),
    "render": lambda run, out: command("render", run, "--out", out / "x.gif"),
    "resume": lambda run, out: command("resume", run),
    "resume --restart": lambda run, out: command("resume", run, "--restart"),
    "absolute": lambda run, out: command("absolute", run),
    "export-team": lambda run, out: command("export-team", run, out / "team"),
}
API = {
    "load": lambda run: package.load(run),
    "evaluate": lambda run: package.evaluate(run),
    "resume": lambda run: package.resume(run, quiet=True),
    "export_team": lambda run: package.export_team(run, run.parent / "team"),
}


def merged(base, changes):
    whole = dict(base)
    for name, value in changes.items():
        group = isinstance(whole.get(name), dict) and isinstance(value, dict) and name != "env_args"
        whole[name] = merged(whole[name], value) if group else value
    return whole


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """Makes a run whose settings name something; everything happens in a folder with a module that must not load."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(PAYLOAD)

    def make(changes):
        run = write_run(tmp_path / "run", "emu_qmix", memory=True)
        for name in ("checkpoints/000000000200", "best", "replay"):
            (run / name).mkdir(parents=True)
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(merged(config, changes)))
        return run

    yield make
    assert not (tmp_path / "executed").exists(), "the payload was executed"


@pytest.mark.parametrize(("place", "look"), itertools.product(PLACES, LOOKS))
def test_looking_at_a_run_executes_nothing(poisoned, tmp_path, place, look):
    answer = LOOKS[look](poisoned(PLACES[place]), tmp_path / "out")
    assert answer.status == 0, answer


OUTSIDE = {
    "an adapter": {"env": "gymnasium:CartPole-v1"},
    "a module": {"env": "mine:Arena"},
    "an argument": {"env_args": {"penalty": "mine:Arena"}},
}


@pytest.mark.parametrize("what", OUTSIDE)
@pytest.mark.parametrize("from_what", ["snapshot", "checkpoint"])
def test_a_report_builds_no_environment_but_registered_ones(poisoned, tmp_path, monkeypatch, what, from_what):
    """Neither to draw the states of a snapshot nor to take one from a checkpoint."""
    run = poisoned(OUTSIDE[what])
    if from_what == "snapshot":
        invent_snapshot(run, "gridworld", 100)
    monkeypatch.setattr("emu.envs.make", lambda *_, **__: pytest.fail("an environment was built"))
    answer = command("report", run, "--out", tmp_path / "x.html")
    assert answer.status == 0, answer


@pytest.mark.parametrize("place", PLACES)
def test_a_picture_of_its_memory_executes_nothing(poisoned, tmp_path, place):
    """The only figure for which a team and its environment are built."""
    answer = command("plot", poisoned(PLACES[place]), "--kind", "embedding", "--out", tmp_path / "x.png")
    assert answer.status == 2 and "which this command never does" in answer.said, answer
    assert "--trust" not in answer.said  # it has no such option


@pytest.mark.parametrize(("place", "build"), itertools.product(PLACES, BUILDS))
def test_whatever_would_build_it_asks_for_trust(poisoned, tmp_path, place, build):
    run = poisoned(PLACES[place])
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = BUILDS[build](run, tmp_path / "out")
    assert answer.status == 2 and "--trust" in answer.said, answer
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("place", "call"), itertools.product(PLACES, API))
def test_the_python_api_asks_for_trust(poisoned, place, call):
    with pytest.raises(EmuError, match="trust=True"):
        API[call](poisoned(PLACES[place]))


@pytest.mark.parametrize("place", PLACES)
def test_an_exported_team_asks_for_trust(poisoned, tmp_path, place):
    run = poisoned(PLACES[place])
    (tmp_path / "team").mkdir()
    config = json.loads((run / "config.json").read_text())
    team = {"format": 1, "config": config, "step": 1, "evaluation": {}}
    (tmp_path / "team" / "team.json").write_text(json.dumps(team))
    answer = command("evaluate", tmp_path / "team", "--episodes", 1)
    assert answer.status == 2 and "--trust" in answer.said, answer


NEVER = [place for place in PLACES if "os.system" in place or place in ("subprocess", "exec")]


@pytest.mark.parametrize("place", NEVER)
def test_even_trusted_what_is_no_such_piece_is_not_called(poisoned, place):
    """`--trust` lets a module be imported; what is no environment, learner, term or logger stays uncalled."""
    answer = command("evaluate", poisoned(PLACES[place]), "--trust")
    assert answer.status == 2, answer
