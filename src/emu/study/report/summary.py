"""The top of the page: per environment who is ahead, by how much, and how sure that is; then over all environments.

Labels are ranked by their overall score: win rate, or return where a task has no goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.study.analysis import stats
from emu.study.analysis.names import seeds_text, short_steps
from emu.study.analysis.runs import RETURN, Run, by_label
from emu.study.analysis.scores import (
    NORMALISED,
    WINS,
    Score,
    Summary,
    common_end,
    score_of,
    scores_by_label,
    summarise,
    values_at,
)
from emu.study.analysis.verdict import ranked, verdict
from emu.study.report.series import ReportRun

FEW = "With fewer than five seeds there is no interval: dots are the seeds, and an order may be chance."
Span = tuple[float, float]  # what the ends of a drawn scale stand for


class Line(NamedTuple):
    """One label of an environment."""

    summary: Summary
    returns: np.ndarray  # (seeds,) at the last common step


def summary_html(shown: Sequence[ReportRun]) -> str:
    """A table and a sentence per environment, and a table over all of them where they can be compared."""
    evaluated = [s for s in shown if s.run.has(RETURN)]
    runs = [s.run._replace(env=s.panel) for s in evaluated]
    panels = dict.fromkeys(s.panel for s in evaluated)
    parts = [_environment(panel, [run for run in runs if run.env == panel]) for panel in panels]
    if len(panels) > 1:
        parts.insert(0, _over_all(runs))
    curves = [(run.env, run.label) for run in runs]
    if any(curves.count(curve) < stats.ENOUGH_SEEDS for curve in set(curves)):
        parts.append(f'<p class="note">{FEW}</p>')
    missing = len(shown) - len(evaluated)
    if missing:
        parts.append(f'<p class="note">{_count(missing, "run")} without any evaluation yet: not in these tables.</p>')
    return "\n".join(parts) or '<p class="note">No run has been evaluated yet.</p>'


def _environment(panel: str, runs: list[Run]) -> str:
    until, groups = common_end(runs), by_label(runs)
    summaries = ranked(summarise(runs))
    lines = [Line(s, values_at(groups[s.label], until, RETURN)) for s in summaries]
    score = score_of(runs)
    many = any(len(line.summary.seeds) >= stats.ENOUGH_SEEDS for line in lines)
    head = ["", "seeds", f"overall {score.name}", f"last {score.name}", *["IQM"] * many, "best", "in training"]
    head += ["absolute"] * any(line.summary.absolute for line in lines) + ["return"] * (score == WINS) + ["behind"]
    rows = [_row(line, lines, head) for line in lines]
    return (
        f'<article class="card"><h3>{escape(panel)} <small>at {int(until):,} steps</small></h3>'
        f'<p class="verdict">{verdict(summaries, _bold)}</p>{_table(head, rows)}</article>'
    )


def _row(line: Line, lines: list[Line], head: list[str]) -> list[str]:
    s, score = line.summary, line.summary.score
    every = np.concatenate([other.summary.seeds for other in lines])
    span = (0.0, 1.0) if score == WINS else (float(every.min()), float(every.max()))
    cells = [escape(s.label), str(len(s.seeds)), _drawn(s.overall, s.seeds, span, score)]
    cells += [_span(s.last, score), *[_span(s.iqm, score)] * ("IQM" in head), score.text(s.best, 3)]
    cells.append(_span(s.training, score) if s.training else "–")
    if "absolute" in head:
        cells.append(_span(s.absolute, score) if s.absolute else "–")
    if "return" in head:
        cells.append(f"{line.returns.mean():.2f}")
    behind = lines[0].summary.overall.value - s.overall.value
    first = "leads" if s.ahead else "highest" if len(lines) > 1 else "–"
    return [*cells, first if line is lines[0] else score.text(behind, 3)]


def _over_all(runs: list[Run]) -> str:
    """Interquartile means over all environments; nothing where some label has no runs in some of them."""
    try:
        whole, last = scores_by_label(runs, "overall"), scores_by_label(runs, "last")
    except EmuError:
        return '<p class="note">Not every curve has runs on every environment: no comparison over all of them.</p>'
    order = sorted(whole, key=lambda label: float(stats.interquartile_mean(whole[label])), reverse=True)
    rows = []
    for label in order:
        seeds = np.concatenate(whole[label])
        counted = seeds_text(len(task) for task in whole[label])
        overall = _drawn(stats.interval(whole[label]), seeds, (0.0, 1.0), WINS)
        rows.append([escape(label), counted, overall, _span(stats.interval(last[label]), WINS)])
    goals = {run.has_goal for run in runs}
    kind = "win rate" if goals == {True} else NORMALISED if goals == {False} else f"win rate or {NORMALISED}"
    table = _table(["", "seeds", f"IQM of the overall {kind}", f"IQM of the last {kind}"], rows)
    return f'<article class="card"><h3>All environments</h3>{table}</article>'


# Words and cells


def _bold(label: str) -> str:
    return f"<b>{escape(label)}</b>"


def _span(found: stats.Interval, score: Score) -> str:
    interval = score.span(found, 3)
    return score.text(found.value, 3) + (f' <span class="interval">{interval}</span>' if interval else "")


def _drawn(found: stats.Interval, seeds: np.ndarray, span: Span, score: Score) -> str:
    """A mean with its interval, or with its seeds, drawn on a line between two numbers."""
    low, high = span

    def at(value: float) -> float:
        return 100 * min(max((value - low) / (high - low or 1.0), 0.0), 1.0)

    if found.known:
        marks = f'<i style="left:{at(found.low):.1f}%;width:{max(at(found.high) - at(found.low), 1):.1f}%"></i>'
    else:
        marks = "".join(f'<u style="left:{at(value):.1f}%"></u>' for value in seeds)
    marks += f'<b style="left:{at(found.value):.1f}%"></b>'
    return f'{_span(found, score)}<span class="range" aria-hidden="true">{marks}</span>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    body = "".join(f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def facts(shown: Sequence[ReportRun]) -> dict[str, Any]:
    """What the head of the page says of the runs."""
    panels = dict.fromkeys(s.panel for s in shown)
    labels = dict.fromkeys(s.run.label for s in shown)
    scales = dict.fromkeys(s.run.scale for s in shown if s.run.scale)
    steps = sum(max((float(at[-1]) for at, _ in s.series.values()), default=0.0) for s in shown)
    words = [_count(len(shown), "run"), _count(len(labels), "curve"), _count(len(panels), "environment")]
    words.append(f"{short_steps(steps)} steps in all")
    words += [f"at {scale} scale" for scale in scales]
    return {"words": " · ".join(words), "labels": list(labels), "panels": list(panels)}
