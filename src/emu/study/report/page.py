"""The page itself: template/page.html with styles, scripts, tables and data put in, so that it needs no other file."""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import emu
from emu.errors import EmuError
from emu.files import writing
from emu.study.analysis.runs import Warn, read_study
from emu.study.report.memories import Projection, memories_payload
from emu.study.report.series import curves_payload, read_runs, score_metrics
from emu.study.report.settings import settings_html
from emu.study.report.summary import facts, summary_html

LIMIT = 20_000_000  # bytes of a page
SCRIPTS = ("data", "theme", "axes", "chart", "curves", "colours", "scatter", "sketch", "details", "explorer", "main")


def write_report(
    folder: Path,
    out: Path | None = None,
    projection: Projection = "pca",
    take_snapshots: bool = True,
    warn: Warn = lambda _: None,
) -> Path:
    """Write one page about all runs in and below a folder; returns where it is."""
    folder, out = folder.resolve(), out or folder / "report.html"
    if out.suffix != ".html":
        raise EmuError(f"A report is an .html file, not '{out.name}'.")
    runs, study = read_runs(folder, warn), read_study(folder)
    known = facts(runs)
    data = {
        "labels": known["labels"],
        "panels": known["panels"],
        "scores": score_metrics(runs),
        "curves": curves_payload(runs),
        "memories": memories_payload(runs, projection, take_snapshots, warn),
    }
    page = fill(
        {
            "TITLE": escape(str(study.get("title") or study.get("name") or folder.name)),
            "FACTS": escape(known["words"]),
            "VERSION": escape(emu.__version__),
            "COMMAND": escape(str(study.get("command") or "")),
            "SUMMARY": summary_html(runs),
            "SETTINGS": settings_html(runs, folder),
            "DATA": as_script(data),
        }
    )
    return _write(out, page.encode("utf-8", "backslashreplace"), warn)


def _write(out: Path, content: bytes, warn: Warn) -> Path:
    if len(content) > LIMIT:
        warn(f"The page is large: {len(content) / 1e6:.0f} MB. Report on fewer runs for a smaller one.")
    with writing(out, "Choose another place with --out."):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content)
    return out


def fill(parts: dict[str, str]) -> str:
    """The template with its parts; `@@NAME@@` marks where each goes."""
    template = resources.files("emu.study.report") / "template"
    text = (template / "page.html").read_text("utf-8")
    style = (template / "style.css").read_text("utf-8")
    scripts = "\n".join((template / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    pieces = {**parts, "STYLE": style, "SCRIPTS": scripts}
    found: list[str] = []
    for number, piece in enumerate(text.split("@@")):  # in one pass: what is put in may hold anything
        found.append(pieces[piece] if number % 2 else piece)
    return "".join(found)


def as_script(data: Any) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or begin a comment."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
