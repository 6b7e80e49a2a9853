"""Tables of a study: who did how well, the paper's table of radius and embedder, memory use, improvement.

What is better is bold only where the seeds separate it from everything beside it: the 95 % interval of the difference
lies above 0, which takes five seeds at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from emu import envs
from emu.config import Config
from emu.errors import EmuError, did_you_mean
from emu.study.analysis import scores, stats
from emu.study.analysis.names import EMBEDDERS, readable, seeds_text, short_number, short_steps
from emu.study.analysis.runs import Run, by_env, by_label, require_one_version, scale_note
from emu.study.analysis.scores import Score, Summary
from emu.study.analysis.table_text import NOTHING, Cell, Table

CI = "(95 % CI)"


def summary_tables(runs: Sequence[Run]) -> list[Table]:
    """One row per environment and label, tasks with a goal apart from those without."""
    summaries = scores.summarise(runs)
    kinds = dict.fromkeys(summary.score for summary in summaries)
    return [_summary_table(runs, score, [s for s in summaries if s.score == score]) for score in kinds]


def _summary_table(runs: Sequence[Run], score: Score, summaries: list[Summary]) -> Table:
    many = any(len(s.seeds) >= stats.ENOUGH_SEEDS for s in summaries)  # below, an IQM is hardly more than a mean
    intervals = {f"last {score.name}": [s.last for s in summaries]}
    intervals |= {"IQM": [s.iqm for s in summaries]} if many else {}
    after = {f"training {score.name}": [s.training for s in summaries]}
    after |= {f"absolute {score.name}": [s.absolute for s in summaries]} if any(s.absolute for s in summaries) else {}
    columns = ["environment", "algorithm", "seeds", "steps", f"overall {score.name}"]
    columns += [_sure(name, found, score) for name, found in intervals.items()]
    columns += [f"best {score.name}", *(_sure(name, found, score) for name, found in after.items())]
    rows = []
    for place, s in enumerate(summaries):
        cells = [Cell(text) for text in (s.env, readable(s.label), str(len(s.seeds)), short_steps(s.steps))]
        cells += [Cell(over_seeds(s), s.ahead), *(_interval(found[place], score) for found in intervals.values())]
        cells += [Cell(score.text(s.best)), *(_interval(found[place], score) for found in after.values())]
        rows.append(cells)
    return Table(f"Summary{scale_note(runs)}", columns, rows)


def _sure(name: str, found: Sequence[stats.Interval | None], score: Score) -> str:
    """A column's name; that it has intervals is said where it has any."""
    return f"{name} {CI}" if any(one and score.span(one) for one in found) else name


def _interval(found: stats.Interval | None, score: Score) -> Cell:
    return Cell(interval_text(found, score) if found else NOTHING)


def over_seeds(summary: Summary) -> str:
    """The mean overall score with the seeds themselves; from five seeds on with their standard deviation."""
    mean = summary.score.text(summary.overall.value, 3)
    if len(summary.seeds) >= stats.ENOUGH_SEEDS:
        return f"{mean} ± {summary.score.text(float(stats.spread(summary.seeds)), 3)}"
    listed = ", ".join(summary.score.text(value, 3) for value in summary.seeds)
    return f"{mean} ({listed})" if len(summary.seeds) > 1 else mean


def interval_text(found: stats.Interval, score: Score = scores.WINS) -> str:
    return f"{score.text(found.value)} {score.span(found)}".rstrip()


def radius_tables(runs: Sequence[Run]) -> list[Table]:
    """The paper's table per environment: overall win-rate by radius (rows), training time and embedder (columns)."""
    remembering = [run for run in runs if run.config.memory.use != "none"]
    if not remembering:
        raise EmuError("None of these runs has a memory, so there is no radius to compare.")
    tables = []
    for env, group in by_env(remembering).items():
        for algo in dict.fromkeys(run.algo for run in group):
            tables.append(_radius_table(env, algo, [run for run in group if run.algo == algo]))
    return tables


def _radius_table(env: str, algo: str, runs: list[Run]) -> Table:
    cells: dict[tuple[float, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.config.memory.radius, run.config.memory.embedder.kind), []).append(run)
    kinds = [kind for kind in EMBEDDERS if any(kind == k for _, k in cells)]
    end, score = scores.common_end(runs), scores.score_of(runs)
    times = [end / 3, 2 * end / 3, end]
    rows = []
    for radius in sorted({radius for radius, _ in cells}):
        row = [Cell(short_number(radius) if radius else "auto")]
        for time in times:
            row += _side_by_side([cells.get((radius, kind), []) for kind in kinds], time, score)
        rows.append(row)
    counted = seeds_text(len(members) for members in cells.values())
    what = f"Overall {score.name} of {readable(algo)} on {env} by radius δ and embedder"
    groups = (("", 1), *((short_steps(t), len(kinds)) for t in times))
    names = [EMBEDDERS[kind] for kind in kinds]
    return Table(f"{what}, {counted}{scale_note(runs)}", ["δ", *names * len(times)], rows, groups)


def _side_by_side(groups: list[list[Run]], until: float, score: Score) -> list[Cell]:
    """Mean overall scores of neighbouring cells, the best bold if it is separated from all others."""
    found = [scores.overall(group, until, score.metric) if group else np.empty(0) for group in groups]
    cells = []
    for place, values in enumerate(found):
        others = [other for k, other in enumerate(found) if k != place and len(other)]
        best = len(values) > 0 and bool(others) and all(stats.separated(values, other) for other in others)
        cells.append(Cell(score.text(values.mean(), 3) if len(values) else NOTHING, best))
    return cells


def memory_tables(runs: Sequence[Run]) -> list[Table]:
    """What the memories held at the end of training, mean over seeds, and what one takes when it is full."""
    remembering = [run for run in runs if run.has("memory_size")]
    if not remembering:
        raise EmuError("None of these runs has logged a memory (memory_size in their metrics).")
    columns = ["environment", "algorithm", "seeds", "entries", "MiB", "bytes per entry", "capacity", "GiB when full"]
    columns += ["mean visits", "desirable"]
    rows = []
    for env, group in by_env(remembering).items():
        for label, members in by_label(group).items():
            texts = [env, readable(label), str(len(members)), *_memory_use(members)]
            rows.append([Cell(text) for text in texts])
    return [Table(f"Memory use at the end of training{scale_note(runs)}", columns, rows)]


def _memory_use(runs: list[Run]) -> list[str]:
    size, used, visits, desirable = (
        float(np.mean([run.last(f"memory_{name}") for run in runs]))
        for name in ("size", "bytes", "mean_visits", "share_desirable")
    )
    each = used / size if size else math.nan
    texts = [f"{size:,.0f}", f"{used / 2**20:.1f}", NOTHING if math.isnan(each) else f"{each:,.0f}"]
    return [*texts, *_when_full(runs[0].config), f"{visits:.2f}", f"{100 * desirable:.1f} %"]


def _when_full(config: Config) -> list[str]:
    """Entries and GiB of a full memory: states, embeddings, keys, counts and index (docs/memory.md).

    The size of a state is the environment's to say. Only registered ones are asked: a table runs nobody's code.
    """
    if config.env not in envs.registered():
        return [f"{config.memory.capacity:,}", NOTHING]
    try:
        state_dim = envs.make(config.env, **config.env_args).spec.state_dim
    except EmuError:  # arguments of another version, or wrong ones: what the run logged counts all the same
        return [f"{config.memory.capacity:,}", NOTHING]
    capacity = config.memory.bounded_capacity(state_dim)
    return [f"{capacity:,}", f"{capacity * config.memory.entry_bytes(state_dim) / 2**30:.2f}"]


def improvement_tables(runs: Sequence[Run], measure: scores.Measure = "overall") -> list[Table]:
    """Probability that the row's label beats the column's, over all environments; bold where 0.5 lies below it."""
    found = scores.scores_by_label(runs, measure)
    if len(found) < 2:
        raise EmuError("A comparison needs runs of two labels at least.")
    counted = seeds_text(len(task) for tasks in found.values() for task in tasks)
    rows = [[Cell(readable(first)), *(_improvement(found, first, second) for second in found)] for first in found]
    title = "Probability of improvement of the row over the column, "
    title += f"{scores.measure_name(measure, runs)}, {counted}{scale_note(runs)}"
    return [Table(title, ["", *map(readable, found)], rows)]


def _improvement(found: dict[str, list[np.ndarray]], first: str, second: str) -> Cell:
    if first == second:
        return Cell(NOTHING)
    interval = stats.improvement_interval(found[first], found[second])
    return Cell(interval_text(interval), interval.low > 0.5)


KINDS: dict[str, Callable[[Sequence[Run]], list[Table]]] = {
    "summary": summary_tables,
    "radius": radius_tables,
    "memory": memory_tables,
    "improvement": improvement_tables,
}


def make_tables(runs: Sequence[Run], kind: str, mix_versions: bool = False) -> list[Table]:
    if kind not in KINDS:
        raise EmuError(f"No kind of table is called '{kind}'. {did_you_mean(kind, KINDS)}")
    require_one_version(runs, mix_versions)
    return KINDS[kind](runs)
