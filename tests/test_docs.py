"""What the documentation shows works, and what it links to exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from emu.cli.app import main

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


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


def test_the_graph_of_the_rooms_is_the_one_in_the_code():
    shown = re.search(r"<!-- rooms:begin -->\n```mermaid\n(.*?)```\n<!-- rooms:end -->", ARCHITECTURE.read_text(), re.S)
    drawn = subprocess.run([sys.executable, ROOT / "scripts" / "rooms.py"], capture_output=True, text=True, check=True)
    assert shown and shown[1].strip() == drawn.stdout[drawn.stdout.index("graph TD") :].strip()


def test_every_environment_setting_is_on_its_page():
    import dataclasses

    from emu.envs.gridworld import GridWorld

    text = (ROOT / "docs" / "envs" / "gridworld.md").read_text()
    fields = [field.name for field in dataclasses.fields(GridWorld)]
    assert {"rows", "columns", "penalty", "limit"} <= set(fields)
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_a_module_or_factory_that_is_not_there_is_explained(capsys):
    assert main(["check", "no_such_module:Thing"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    assert main(["check", "emu.envs.gridworld:GridWord"]) == 2
    assert "Did you mean 'GridWorld'" in capsys.readouterr().err
