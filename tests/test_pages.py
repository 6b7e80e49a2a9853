"""The pages keep up with the code: commands, algorithms, settings and extras that they name are those there are."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pytest

import emu
from emu.cli.app import COMMANDS, main
from emu.config.presets import ALGORITHMS, preset

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "packaging" / "description.md"])
COMING: set[str] = set()  # described ahead of the code that brings it


def script(name):
    """A module of `scripts/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def shown_commands(page):
    """The words of every `emu …` line in a page's shell blocks; continued lines are one, comments go."""
    for block in (*blocks(page, "bash"), *blocks(page, "sh")):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["emu"] and len(words) > 1:
                yield words[1:]


@pytest.fixture(scope="module")
def options(request):
    """What each command explains with --help, asked once."""
    known: dict[str, str] = {}

    def of(command, capsys, monkeypatch):
        if command not in known:
            monkeypatch.setenv("COLUMNS", "400")
            with pytest.raises(SystemExit):
                main([command, "--help"])
            known[command] = capsys.readouterr().out
        return known[command]

    return of


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_exists_with_its_options(page, options, capsys, monkeypatch):
    for words in shown_commands(page):
        if COMING & set(words):
            continue
        assert words[0] in ("train", *COMMANDS), words
        explained = options(words[0], capsys, monkeypatch)
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{flag}\b", explained), f"emu {words[0]} has no {flag}"
        if "--algo" in words:
            preset(words[words.index("--algo") + 1], "gridworld")  # refuses an unknown name
        if "--env-args" in words:
            json.loads(words[words.index("--env-args") + 1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_a_page_is_python(page):
    for block in blocks(page, "python"):
        if not re.search(r"^\+ ", block, re.M):  # a difference, shown with the lines that are new
            ast.parse(block)


def test_the_notebook_is_python_without_outputs():
    cells = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    for cell in code:
        ast.parse("".join(cell["source"]))
        assert cell["outputs"] == [] and cell["execution_count"] is None


def test_every_command_is_on_its_page():
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert set(re.findall(r"^\| `emu (\w[\w-]*)", text, re.M)) == {"train", *COMMANDS}


def test_every_algorithm_is_on_the_page_of_algorithms():
    table = (ROOT / "docs" / "algorithms" / "index.md").read_text()
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(ALGORITHMS)


def test_every_extra_is_on_the_page_of_installing():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "docs" / "how-to" / "install.md").read_text()
    named = {name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(extras)


def test_the_citation_names_this_version():
    assert re.search(rf"^version: {re.escape(emu.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.M)


def test_every_setting_is_explained():
    settings = script("settings_reference")
    for kind, group in settings.groups(settings.Config):
        notes = settings.comments(kind)
        for name, hint in settings.hints(kind).items():
            assert dataclasses.is_dataclass(hint) or notes.get(name), f"{group}{name}"


class Bound:
    def __str__(self):
        return "be at least 1"


Bound.__module__ = "emu.bounds"  # only the package's own bounds are shown


@dataclasses.dataclass(frozen=True)
class Inner:
    """How deep."""

    depth: Annotated[int, Bound()] = 1_000  # how deep | how far
    kind: Literal["a", "b"] = "a"  # which


@dataclasses.dataclass(frozen=True)
class Outer:
    """All."""

    share: float | None = None  # a share
    inner: Inner = Inner()


def test_a_table_of_settings_shows_type_bounds_default_and_comment():
    assert script("settings_reference").reference(Outer).splitlines() == [
        "## The run", "", "All.", "",
        "| setting | type | default | meaning |", "|---|---|---|---|",
        "| `share` | float or none | none | a share |", "",
        "## `inner`", "", "How deep.", "",
        "| setting | type | default | meaning |", "|---|---|---|---|",
        "| `inner.depth` | int, at least 1 | 1,000 | how deep \\| how far |",
        "| `inner.kind` | `a` `b` | `a` | which |",
    ]  # fmt: skip


def heights(svg):
    return {name: float(y) for y, name in re.findall(r'<text x="[\d.]+" y="([\d.]+)">(\w+)</text>', svg)}


def test_a_drawn_graph_has_a_box_for_every_room_above_what_it_imports():
    drawing = script("graph_svg").drawing
    svg = drawing("graph TD\n  cli --> run\n  run --> types\n  cli --> types\n  run --> errors\n")
    at = heights(svg)
    assert at["cli"] < at["run"] < at["types"] == at["errors"]
    assert svg.count('class="edge"') == svg.count('class="tip"') == 4
    with pytest.raises(ValueError, match="a cycle: a -> b -> a"):
        drawing("graph TD\n  a --> b\n  b --> a\n")


def test_links_that_leave_the_documentation_become_text_or_lead_to_the_host():
    pytest.importorskip("mkdocs")
    relinked = script("site_hooks").relinked
    page = "[a](../src/emu/types.py), [b](memory.md#speed), [c](algorithms/), [d](https://x.org), ![e](images/e.png)"
    kept = "[b](memory.md#speed), [c](algorithms/index.md), [d](https://x.org), ![e](images/e.png)"
    assert relinked(page, "concepts.md", None) == f"a, {kept}"
    assert (
        relinked(page, "concepts.md", "https://host/emu") == f"[a](https://host/emu/blob/main/src/emu/types.py), {kept}"
    )
    assert relinked("[f](../README.md) [g](../CHANGELOG.md)", "concepts.md", None) == "[f](index.md) [g](changelog.md)"
    assert relinked("[h](docs/memory.md)", "changelog.md", None) == "[h](memory.md)"
    named = relinked("[metrics.md](../metrics.md)", "algorithms/emu.md", None)
    assert named == "[Metrics](../metrics.md)"  # a reader of the site knows no files
    assert relinked("```\n[i](../src/x.py)\n```\n", "concepts.md", None) == "```\n[i](../src/x.py)\n```\n"
