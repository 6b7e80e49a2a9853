"""The end of the page: which settings differ between the curves, all of each, and where every run came from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from emu.study.analysis.runs import settings
from emu.study.report.series import ReportRun

FULL_SETTINGS = 40  # curves whose settings are listed in full
LISTED_RUNS = 400
APART = ("seed", "env", "devices", "tensorboard", "memory.snapshot_interval")  # other values, same experiment


def settings_html(runs: Sequence[ReportRun], root: Path) -> str:
    groups: dict[tuple[str, str], list[ReportRun]] = {}
    for shown in runs:
        groups.setdefault((shown.panel, shown.run.label), []).append(shown)
    flat = {name: settings(members[0].run.config) for name, members in groups.items()}
    return "\n".join([_differences(flat), _in_full(flat), _provenance(runs, root)])


def differing(flat: dict[Any, dict[str, Any]]) -> list[str]:
    """Names of the settings that are not the same for all."""
    names = dict.fromkeys(name for one in flat.values() for name in one)
    return [n for n in names if n not in APART and len({json.dumps(s.get(n)) for s in flat.values()}) > 1]


def _differences(flat: dict[tuple[str, str], dict[str, Any]]) -> str:
    names = differing(flat)
    if not names:
        return '<p class="note">All curves have the same settings.</p>'
    shown = list(flat)[:FULL_SETTINGS]
    several = len({panel for panel, _ in shown}) > 1
    titles = [f"{label}<br><small>{escape(panel)}</small>" if several else label for panel, label in _escaped(shown)]
    rows = [[name, *(_value(flat[key].get(name)) for key in shown)] for name in names]
    return (
        f"<details open><summary>What differs ({len(names)} settings)</summary>{_table(['', *titles], rows)}</details>"
    )


def _escaped(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(panel, escape(label)) for panel, label in names]


def _in_full(flat: dict[tuple[str, str], dict[str, Any]]) -> str:
    parts = []
    for (panel, label), found in list(flat.items())[:FULL_SETTINGS]:
        rows = [[name, _value(value)] for name, value in found.items()]
        parts.append(f"<details><summary>{escape(label)} on {escape(panel)}: all</summary>{_table([], rows)}</details>")
    return "\n".join(parts)


def _provenance(runs: Sequence[ReportRun], root: Path) -> str:
    rows = [_origin(shown, root) for shown in runs[:LISTED_RUNS]]
    more = f'<p class="note">and {len(runs) - LISTED_RUNS:,} more</p>' if len(runs) > LISTED_RUNS else ""
    head = ["run", "seed", "steps", "environment", "commit", "versions", "machine", "command"]
    return f"<details><summary>Where each run came from</summary>{_table(head, rows)}{more}</details>"


def _origin(shown: ReportRun, root: Path) -> list[str]:
    run, meta = shown.run, shown.meta
    steps, wanted = max((int(at[-1]) for at, _ in shown.series.values()), default=0), run.config.steps
    commit, _, changes = str(meta.get("git_commit") or "unknown").partition("+")
    packages = meta.get("packages")
    versions = {"emu": meta.get("emu", "?"), "python": meta.get("python", "?")}
    versions |= packages if isinstance(packages, dict) else {}
    words = meta.get("command")
    command = shlex.join(["emu", *map(str, words[1:])]) if isinstance(words, list) and words else ""
    return [
        escape(run.folder.relative_to(root).as_posix()),
        str(run.seed),
        f"{steps:,}" if steps >= wanted else f"{steps:,} of {wanted:,}",
        escape(run.version),
        escape(commit[:10] + ("+changes" if changes else "")),
        escape(", ".join(f"{name} {version}" for name, version in versions.items())),
        escape(str(meta.get("machine", "unknown"))),
        f"<code>{escape(command)}</code>",
    ]


def _value(value: Any) -> str:
    return f"<code>{escape(json.dumps(value))}</code>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = f"<thead><tr>{''.join(f'<th>{t}</th>' for t in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows)
    return f'<div class="wide"><table class="settings">{titles}<tbody>{body}</tbody></table></div>'
