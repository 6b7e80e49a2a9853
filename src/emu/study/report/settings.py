"""The end of the page: which settings differ between the curves, all of each, and where every run came from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from emu.study.analysis.runs import settings
from emu.study.report.series import Told

FULL_SETTINGS = 40  # curves whose settings are listed in full
LISTED_RUNS = 400
APART = ("seed", "env", "devices", "tensorboard", "memory.snapshot_interval")  # other values, same experiment


def settings_html(told: Sequence[Told], root: Path) -> str:
    groups: dict[tuple[str, str], list[Told]] = {}
    for t in told:
        groups.setdefault((t.panel, t.run.label), []).append(t)
    flat = {name: settings(members[0].run.config) for name, members in groups.items()}
    return "\n".join([_differences(flat), _in_full(flat), _provenance(told, root)])


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


def _provenance(told: Sequence[Told], root: Path) -> str:
    rows = [_origin(t, root) for t in told[:LISTED_RUNS]]
    more = f'<p class="note">and {len(told) - LISTED_RUNS:,} more</p>' if len(told) > LISTED_RUNS else ""
    head = ["run", "seed", "steps", "environment", "commit", "versions", "machine", "command"]
    return f"<details><summary>Where each run came from</summary>{_table(head, rows)}{more}</details>"


def _origin(t: Told, root: Path) -> list[str]:
    steps = max((int(s[-1]) for s, _ in t.series.values()), default=0)
    wanted = t.run.config.steps
    commit, dirty = str(t.meta.get("git_commit") or "unknown"), ""
    if "+" in commit:
        commit, dirty = commit.split("+")[0], "+changes"
    packages = {"emu": t.meta.get("emu", "?"), "python": t.meta.get("python", "?"), **t.meta.get("packages", {})}
    words = [str(word) for word in t.meta.get("command") or []]
    command = shlex.join(["emu", *words[1:]]) if words else ""
    return [
        escape(t.run.folder.relative_to(root).as_posix()),
        str(t.run.seed),
        f"{steps:,}" if steps >= wanted else f"{steps:,} of {wanted:,}",
        escape(t.run.version),
        escape(commit[:10] + dirty),
        escape(", ".join(f"{name} {version}" for name, version in packages.items())),
        escape(str(t.meta.get("machine", "unknown"))),
        f"<code>{escape(command)}</code>",
    ]


def _value(value: Any) -> str:
    return f"<code>{escape(json.dumps(value))}</code>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = f"<thead><tr>{''.join(f'<th>{t}</th>' for t in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows)
    return f'<div class="wide"><table class="settings">{titles}<tbody>{body}</tbody></table></div>'
