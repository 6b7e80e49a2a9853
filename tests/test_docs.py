"""What the documentation shows works, and what it links to exists."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from emu import envs
from emu.cli.app import main
from emu.devices import Devices
from emu.learners.value import ValueLearner
from emu.replay.episodes import Replay, stack
from emu.run.metrics import read_rows
from toys import make_episode, tiny_config

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def code_of(page, number):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)[number]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def anchors(page):
    """What the headings of a page are called in links: lower case, spaces as hyphens, other signs left out."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_environment_setting_is_on_its_page():
    import dataclasses

    from emu.envs.gridworld import GridWorld

    text = (ROOT / "docs" / "envs" / "gridworld.md").read_text()
    fields = [field.name for field in dataclasses.fields(GridWorld)]
    assert {"rows", "columns", "penalty", "limit"} <= set(fields)
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_the_example_environment_passes_the_checker_and_trains(tmp_path, monkeypatch, capsys):
    (tmp_path / "rendezvous.py").write_text(code_of("add-your-own.md", 0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert main(["check", "rendezvous:Rendezvous"]) == 0
    words = "train --algo vdn --env rendezvous:Rendezvous --steps 200 --learner.batch-size 4 --agent.hidden 8 --quiet"
    assert main([*words.split(), "--eval.interval", "100", "--learner.length-buckets", "1"]) == 0
    assert len(read_rows(tmp_path / "runs" / "rendezvous-Rendezvous" / "vdn-seed0")) >= 3


def test_a_module_or_factory_that_is_not_there_is_explained(capsys):
    assert main(["check", "no_such_module:Thing"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    assert main(["check", "emu.envs.gridworld:GridWord"]) == 2
    assert "Did you mean 'GridWorld'" in capsys.readouterr().err


def test_the_example_term_adds_its_reward():
    names: dict = {}
    exec(code_of("add-your-own.md", 1), names)
    config = tiny_config("vdn")
    spec = envs.make(config.env).spec
    learner = ValueLearner(config, spec, Devices.of(), terms=[names["Restless"]()])
    replay = Replay(spec, 8, 10**7, 1)
    batch = stack([replay.batch([make_episode(spec, 6, n) for n in range(4)], 12)])
    state = learner.shards.replicate(jax.jit(learner.init)(jax.random.PRNGKey(0)))
    _, metrics = learner.update(state, learner.shards.put(batch, axis=1), None, np.int32(0))
    reward = np.asarray(metrics["restless_reward"])
    changed = (batch.action[0, :, 1:6] != batch.action[0, :, :5]).any(-1)
    assert reward[0] == pytest.approx(0.01 * changed.sum() / (4 * 6), rel=1e-5)
