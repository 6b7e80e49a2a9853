"""Tables of a study, in Markdown and LaTeX: who did how well, the paper's table of radius and embedder, memory use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu import envs
from emu.config import Config
from emu.errors import EmuError, did_you_mean
from emu.memory.episodic import MemoryOptions
from emu.run.trust import outside
from emu.study.analysis import stats
from emu.study.analysis.runs import Run, by_env, by_label, require_one_version, scale_note, short_number, short_steps

NOTHING = "–"


class Cell(NamedTuple):
    text: str
    best: bool = False


class Table(NamedTuple):
    """What a table says, apart from how it is written."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    groups: tuple[tuple[str, int], ...] = ()  # headings above neighbouring columns, and over how many


def summary_tables(runs: Sequence[Run]) -> list[Table]:
    """One row per environment and label; best in an environment: the highest overall win-rate."""
    summaries = stats.summarise(runs)
    absolute = any(summary.absolute for summary in summaries)
    columns = ["environment", "algorithm", "seeds", "steps", "last win rate (95 % CI)", "IQM (95 % CI)"]
    columns += ["overall win-rate", "best win rate"] + ["absolute win rate (95 % CI)"] * absolute
    rows = []
    for s in summaries:
        top = max(other.overall.value for other in summaries if other.env == s.env)
        row = [s.env, s.label, str(s.seeds), short_steps(s.steps), _interval(s.last), _interval(s.iqm)]
        cells = [Cell(text) for text in row]
        cells.append(Cell(_plus_minus(s.overall.value, s.overall_std), s.overall.value == top))
        cells.append(Cell(f"{s.best:.2f}"))
        rows.append(cells + [Cell(_interval(s.absolute) if s.absolute else NOTHING)] * absolute)
    return [Table(f"Summary{scale_note(runs)}", columns, rows)]


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
    kinds = [kind for kind in ("random", "embnet", "dcae") if any(kind == k for _, k in cells)]
    radii = sorted({radius for radius, _ in cells})
    end = stats.common_end(runs)
    times = [end / 3, 2 * end / 3, end]
    rows = []
    for radius in radii:
        row = [Cell(short_number(radius) if radius else "auto")]
        for time in times:
            means = [_mean_overall(cells.get((radius, kind), []), time) for kind in kinds]
            top = max(value for value in means if not math.isnan(value))
            row += [Cell(_number(value, 3), value == top and len(kinds) > 1) for value in means]
        rows.append(row)
    seeds = sorted({len(members) for members in cells.values()})
    count = f"{seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    title = f"Overall win-rate of {algo} on {env} by radius δ and embedder, {_seeds(count)}{scale_note(runs)}"
    return Table(title, ["δ", *kinds * len(times)], rows, (("", 1), *((short_steps(t), len(kinds)) for t in times)))


def _mean_overall(runs: list[Run], until: float) -> float:
    return float(stats.overall_win_rates(runs, until).mean()) if runs else float("nan")


def memory_tables(runs: Sequence[Run]) -> list[Table]:
    """What the memories held at the end of training, mean over seeds, and what one takes when it is full."""
    remembering = [run for run in runs if run.has("memory_size")]
    if not remembering:
        raise EmuError("None of these runs has logged a memory (memory_size in metrics.jsonl).")
    columns = ["environment", "algorithm", "seeds", "entries", "MiB", "bytes per entry", "capacity", "GiB when full"]
    columns += ["mean visits", "desirable"]
    rows = []
    for env, group in by_env(remembering).items():
        for label, members in by_label(group).items():
            size, used, visits, desirable = (
                float(np.mean([run.last(f"memory_{name}") for run in members]))
                for name in ("size", "bytes", "mean_visits", "share_desirable")
            )
            each = used / size if size else float("nan")
            row = [env, label, str(len(members)), f"{size:,.0f}", f"{used / 2**20:.1f}", _number(each, 0)]
            capacity, full = _when_full(members[0].config)
            row += [f"{capacity:,}", _number(full / 2**30, 2), f"{visits:.2f}", f"{100 * desirable:.1f} %"]
            rows.append([Cell(text) for text in row])
    return [Table(f"Memory use at the end of training{scale_note(runs)}", columns, rows)]


def _when_full(config: Config) -> tuple[int, float]:
    """Entries and bytes of a full memory: states, embeddings, keys, counts and index (docs/memory.md).

    The environment says how wide a state is. One from outside the package is not built just to look at a table.
    """
    m = config.memory
    if outside(config):
        return m.capacity, float("nan")
    spec = envs.make(config.env, **config.env_args).spec
    options = MemoryOptions(
        state_dim=spec.state_dim,
        capacity=m.capacity,
        key_dim=m.key_dim,
        max_bytes=int(m.gigabytes * 1e9),
        dtype="float16" if m.half_precision else "float32",
    )
    return options.bounded_capacity, options.bounded_capacity * options.entry_bytes


def improvement_tables(runs: Sequence[Run], measure: stats.Measure = "overall") -> list[Table]:
    """Probability that the row's label beats the column's, over all environments, by overall win-rate."""
    scores = stats.scores_by_label(runs, measure)
    if len(scores) < 2:
        raise EmuError("A comparison needs runs of two labels at least.")
    rows = []
    for first in scores:
        cells = [Cell(first)]
        for second in scores:
            same = first == second
            text = NOTHING if same else _interval(stats.improvement_interval(scores[first], scores[second]))
            cells.append(Cell(text))
        rows.append(cells)
    title = f"Probability of improvement of the row over the column, {measure} win rate{scale_note(runs)}"
    return [Table(title, ["", *scores], rows)]


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


def write_tables(tables: Sequence[Table], kind: str, folder: Path) -> list[Path]:
    """KIND.md and KIND.tex in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{kind}.md", folder / f"{kind}.tex"]
    paths[0].write_text("\n".join(markdown(table) for table in tables))
    paths[1].write_text("\n".join(latex(table) for table in tables))
    return paths


# Writing


def markdown(table: Table) -> str:
    above = [title for title, count in table.groups for _ in range(count)] or [""] * len(table.columns)
    names = [f"{group}: {name}" if group else name for group, name in zip(above, table.columns, strict=True)]
    lines = [f"**{table.title}**", "", _line(names), "|" + "---|" * len(names)]
    lines += [_line([f"**{cell.text}**" if cell.best else cell.text for cell in row]) for row in table.rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def latex(table: Table) -> str:
    """A booktabs table."""
    places = "l" + "r" * (len(table.columns) - 1)
    lines = ["\\begin{table}", f"\\caption{{{escape(table.title)}}}", f"\\begin{{tabular}}{{{places}}}", "\\toprule"]
    if table.groups:
        lines += [_row(f"\\multicolumn{{{n}}}{{c}}{{{escape(title)}}}" for title, n in table.groups)]
    lines += [_row(map(escape, table.columns)), "\\midrule"]
    for row in table.rows:
        lines += [_row(f"\\textbf{{{escape(c.text)}}}" if c.best else escape(c.text) for c in row)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + " \\\\"


LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "δ": "$\\delta$",
    "λ": "$\\lambda$",
    "±": "$\\pm$",
    "×": "$\\times$",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def escape(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _interval(found: stats.Interval) -> str:
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _plus_minus(value: float, deviation: float) -> str:
    return f"{value:.3f}" if math.isnan(deviation) else f"{value:.3f} ± {deviation:.3f}"


def _number(value: float, digits: int) -> str:
    return NOTHING if math.isnan(value) else f"{value:,.{digits}f}"


def _seeds(count: str) -> str:
    return f"{count} seed{'' if count == '1' else 's'}"
