"""What mkdocs does beside its own work when it builds the site (`mkdocs.yml`).

The pages are written to be read in the repository as well, so their links may leave `docs/`. On the site a link to a
file of the repository becomes a link to its host, where `repo_url` names one, and plain text where it does not. A
link that shows a file's name shows the page's title instead, and a Mermaid graph becomes a drawing.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from graph_svg import drawing  # noqa: E402
from settings_reference import reference  # noqa: E402

DOCS = ROOT / "docs"
AT_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}  # shown on the site, too
SETTINGS = "<!-- settings -->"

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    for name, place in AT_THE_ROOT.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if SETTINGS in markdown:
        markdown = markdown.replace(SETTINGS, reference())
    markdown = MERMAID.sub(lambda found: drawing(found[1]), markdown)
    return relinked(markdown, page.file.src_uri, config.repo_url)


def relinked(markdown: str, place: str, host: str | None) -> str:
    """The same page with links that lead somewhere on the site, or to the repository's host."""
    at_the_root = {shown: name for name, shown in AT_THE_ROOT.items()}
    folder = ROOT if place in at_the_root else (DOCS / place).parent

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = Path(os.path.normpath(folder / target))
        shown = place_of(path)
        if shown is not None:
            text = title_of(path) if text.strip("`").endswith(path.name) and path.suffix == ".md" else text
            return f"[{text}]({os.path.relpath(shown, Path(place).parent)}{anchor})"
        if host:
            return f"[{text}]({host.rstrip('/')}/blob/main/{path.relative_to(ROOT)}{anchor})"
        return text

    parts, last = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(link, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, LINK.sub(link, markdown[last:])])


def title_of(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text(), re.M)
    return found[1].replace("`", "") if found else page.name


def place_of(path: Path) -> str | None:
    """Where a file of the repository is shown on the site, relative to its root."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.parent == ROOT and path.name in AT_THE_ROOT:
        return AT_THE_ROOT[path.name]
    if not path.is_relative_to(DOCS):
        return None
    return (path / "index.md" if path.is_dir() else path).relative_to(DOCS).as_posix()
