"""One sentence about an environment: who is ahead, by how much, and what the seeds allow to say.

"Leads" is said only where the seeds show it: the 95 % interval of the difference lies above 0, which takes five seeds
each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emu.study.analysis import stats
from emu.study.analysis.names import readable, seeds_text
from emu.study.analysis.scores import WINS, Score, Summary


def ranked(summaries: Sequence[Summary]) -> list[Summary]:
    """The labels of one environment, the best first."""
    return sorted(summaries, key=lambda s: (s.overall.value, s.last.value), reverse=True)


def verdict(summaries: Sequence[Summary], show: Callable[[str], str] = readable) -> str:
    """How the best of one environment stands to the next one; `show` writes a label."""
    first, *others = ranked(summaries)
    name, what, score = show(first.label), f"overall {first.score.name}", first.score
    if not others:
        return f"{name} alone: {what} {in_words(first.overall, score)}, {seeds_text([len(first.seeds)])}."
    second = others[0]
    other = show(second.label)
    gap = stats.difference(first.seeds, second.seeds)
    if float(score.text(gap.value, 3)) == 0:
        return f"{name} and {other} have the same {what}."
    if not stats.enough([first.seeds], [second.seeds]):
        seeds = f"{seeds_text([len(first.seeds)])} against {len(second.seeds)}"
        return f"{name} is {score.text(gap.value, 3)} above {other} in {what}. {seeds}: the order may be chance."
    beats = stats.improvement_interval([first.seeds], [second.seeds])
    chance = f"a seed of the one beats a seed of the other with probability {in_words(beats, WINS, 2)}."
    if beats.value == 1:
        chance = "every seed of the one beats every seed of the other."
    if stats.separated(first.seeds, second.seeds):
        return f"{name} leads {other} by {in_words(gap, score)} in {what}; {chance}"
    return (
        f"{name} is above {other} by {in_words(gap, score)} in {what}; {chance} "
        "The interval of the difference holds 0: these seeds do not tell them apart."
    )


def in_words(found: stats.Interval, score: Score, digits: int = 3) -> str:
    """A value, and its interval where there is one."""
    return f"{score.text(found.value, digits)} {score.span(found, digits)}".rstrip()
