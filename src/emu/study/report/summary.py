"""The top of the page: per environment who leads, by how much, and how sure that is; then over all environments."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from emu.errors import EmuError
from emu.study.analysis.runs import WIN_RATE, Run, by_label, short_steps
from emu.study.analysis.stats import (
    Interval,
    Summary,
    common_end,
    improvement_interval,
    interval,
    mean,
    quantiles,
    resample,
    run_scores,
    scores_by_label,
    summarise,
    values_at,
)
from emu.study.report.series import Told

RETURN = "test_return"
FEW_SEEDS = 5  # below, resampling seeds says too little about other seeds


class Line(NamedTuple):
    """One label of an environment."""

    summary: Summary
    returns: np.ndarray  # (seeds,) at the last common step


def summary_html(told: Sequence[Told]) -> str:
    """A table and a sentence per environment, and a table over all of them where they can be compared."""
    tested = [t for t in told if t.run.has(WIN_RATE)]
    runs = [t.run._replace(env=t.panel) for t in tested]
    panels = dict.fromkeys(t.panel for t in tested)
    parts = [_environment(panel, [run for run in runs if run.env == panel]) for panel in panels]
    if len(panels) > 1:
        parts.insert(0, _over_all(runs))
    curves = {(run.env, run.label) for run in runs}
    fewest = min((sum((r.env, r.label) == curve for r in runs) for curve in curves), default=FEW_SEEDS)
    if fewest < FEW_SEEDS:
        parts.append('<p class="note">With fewer than five seeds, intervals over seeds are too narrow.</p>')
    untested = len(told) - len(tested)
    if untested:
        parts.append(f'<p class="note">{_count(untested, "run")} without any test yet: not in these tables.</p>')
    return "\n".join(parts) or '<p class="note">No run has been tested yet.</p>'


def _environment(panel: str, runs: list[Run]) -> str:
    until, groups = common_end(runs), by_label(runs)
    lines = [Line(s, values_at(groups[s.label], until, RETURN)) for s in summarise(runs)]
    lines.sort(
        key=lambda line: (line.summary.last.value, line.summary.overall.value, line.returns.mean()), reverse=True
    )
    absolute = any(line.summary.absolute for line in lines)
    rows = [_row(line, lines[0], absolute) for line in lines]
    head = ["", "seeds", "win rate", "IQM", "overall win rate", "best", "return", "behind"]
    if absolute:
        head.insert(6, "absolute")
    return (
        f'<article class="card"><h3>{escape(panel)} <small>at {int(until):,} steps</small></h3>'
        f'<p class="verdict">{verdict(lines, groups, until)}</p>{_table(head, rows)}</article>'
    )


def _row(line: Line, leader: Line, absolute: bool) -> list[str]:
    s, best = line.summary, leader.summary
    sure = s.seeds > 1  # one seed has no interval
    behind = f"{best.last.value - s.last.value:.3f} <small>overall {best.overall.value - s.overall.value:.3f}</small>"
    cells = [
        escape(s.label),
        str(s.seeds),
        _bar(s.last, sure),
        _span(s.iqm, sure),
        _span(s.overall, sure),
        f"{s.best:.3f}",
        f"{line.returns.mean():.2f}",
        "leads" if line is leader else behind,
    ]
    if absolute:
        cells.insert(6, _span(s.absolute, sure) if s.absolute else "–")
    return cells


def verdict(lines: list[Line], groups: dict[str, list[Run]], until: float) -> str:
    """Who leads, by how much over the next one, and what the seeds allow to say."""
    first, *others = lines
    name = f"<b>{escape(first.summary.label)}</b>"
    if not others:
        found = first.summary.last
        return f"{name} alone: win rate {_words(found) if first.summary.seeds > 1 else f'{found.value:.3f}'}."
    second = others[0]
    what, scores = _deciding(first, second, groups, until)
    if what is None:
        return f"{name} and <b>{escape(second.summary.label)}</b> end the same in every measure."
    gap, sure = difference(*scores), improvement_interval([scores[0]], [scores[1]])
    text = f"{name} leads <b>{escape(second.summary.label)}</b> by "
    if min(map(len, scores)) < 2:
        return f"{text}{gap.value:.3f} in {what}; with a single seed nothing can be said about chance."
    text += f"{_words(gap)} in {what}; a seed of the one beats a seed of the other with probability {_words(sure, 2)}."
    if gap.low <= 0 <= gap.high:
        text += " <em>The interval of the difference holds 0: these seeds do not tell them apart.</em>"
    return text


def _deciding(
    first: Line, second: Line, groups: dict[str, list[Run]], until: float
) -> tuple[str | None, tuple[np.ndarray, np.ndarray]]:
    """The first measure in which the two differ as far as the page shows digits, and the scores of both."""
    pair = groups[first.summary.label], groups[second.summary.label]
    last, overall = ([run_scores(runs, measure, until) for runs in pair] for measure in ("last", "overall"))
    ordered = {"win rate": last, "overall win rate": overall, "return": [first.returns, second.returns]}
    for what, (a, b) in ordered.items():
        if f"{a.mean() - b.mean():.3f}".lstrip("-") != "0.000":
            return what, (a, b)
    return None, (last[0], last[1])


def difference(first: np.ndarray, second: np.ndarray, seed: int = 0) -> Interval:
    """Difference of two means over seeds with its bootstrap interval; both are resampled."""
    rng = np.random.default_rng(seed)
    low, high = quantiles(mean(resample([first], rng)) - mean(resample([second], rng)))
    return Interval(float(first.mean() - second.mean()), float(low), float(high))


def _over_all(runs: list[Run]) -> str:
    """Interquartile means over all environments; nothing where some label has no runs in some of them."""
    try:
        last, overall = scores_by_label(runs, "last"), scores_by_label(runs, "overall")
    except EmuError:
        return '<p class="note">Not every curve has runs on every environment: no comparison over all of them.</p>'
    spans = {label: (interval(last[label]), interval(overall[label])) for label in last}
    order = sorted(spans, key=lambda label: spans[label][0].value, reverse=True)
    rows = [[escape(label), _bar(spans[label][0]), _span(spans[label][1])] for label in order]
    table = _table(["", "IQM of the win rate", "IQM of the overall win rate"], rows)
    return f'<article class="card"><h3>All environments</h3>{table}</article>'


# Words and cells


def _words(found: Interval, digits: int = 3) -> str:
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _span(found: Interval, sure: bool = True) -> str:
    if not sure:
        return f"{found.value:.3f}"
    return f'{found.value:.3f} <span class="interval">[{found.low:.3f}, {found.high:.3f}]</span>'


def _bar(found: Interval, sure: bool = True) -> str:
    """A number with its interval drawn on a line from 0 to 1."""
    low, high, value = (min(max(x, 0.0), 1.0) * 100 for x in (found.low, found.high, found.value))
    marks = f'<i style="left:{low:.1f}%;width:{max(high - low, 1):.1f}%"></i><b style="left:{value:.1f}%"></b>'
    return f'{_span(found, sure)}<span class="range" aria-hidden="true">{marks}</span>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    body = "".join(f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def facts(told: Sequence[Told]) -> dict[str, Any]:
    """What the head of the page says of the runs."""
    panels = dict.fromkeys(t.panel for t in told)
    labels = dict.fromkeys(t.run.label for t in told)
    scales = dict.fromkeys(t.run.scale for t in told if t.run.scale)
    steps = sum(max((float(s[-1]) for s, _ in t.series.values()), default=0.0) for t in told)
    words = [_count(len(told), "run"), _count(len(labels), "curve"), _count(len(panels), "environment")]
    words.append(f"{short_steps(steps)} steps in all")
    words += [f"at {scale} scale" for scale in scales]
    return {"words": " · ".join(words), "labels": list(labels), "panels": list(panels)}
