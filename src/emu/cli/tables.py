"""Tables of a study on a terminal of any width; in a file or a pipe they are Markdown.

What does not fit is made narrower step by step: intervals go below their values, headings and long names take several
lines; then lists of seeds do; then the last columns are left out, which is said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from emu.study.analysis.table_text import Cell, Table, markdown

GAP = 2  # columns between two cells
LIST = 20  # columns that are enough for a list of seeds, in several lines
NAMES = ("environment", "algorithm", "")  # columns of words, which are broken between words only
NAME = 26  # columns that are enough for a name, in several lines


def print_tables(tables: Sequence[Table], out: Console | None = None) -> None:
    """Print tables of a study."""
    out = out or Console(emoji=False)
    if not out.is_terminal:
        print("\n".join(map(markdown, tables)), end="")
        return
    for made in tables:
        shown = without_shared(made)
        out.print(Text(f"\n{shown.title}", "bold"))
        kept = shown
        while len(kept.columns) > 2 and sum(widths(kept, True)) > out.width:
            kept = kept._replace(columns=kept.columns[:-1], rows=[row[:-1] for row in kept.rows])
        out.print(draw(kept, narrow=sum(widths(kept, False)) > out.width))
        if left_out := shown.columns[len(kept.columns) :]:
            out.print(f"Left out for want of room: {', '.join(left_out)}.", highlight=False)


def without_shared(made: Table) -> Table:
    """What is the same in all of the first column is said in the title instead."""
    same, shared = {row[0].text for row in made.rows}, len(made.rows) > 1
    flat = made._replace(columns=made.headings(), groups=())
    if not shared or len(same) > 1:
        return flat
    return flat._replace(
        title=f"{made.title}, {made.columns[0]} {same.pop()}",
        columns=flat.columns[1:],
        rows=[row[1:] for row in made.rows],
    )


def lines_of(cell: Cell, column: str, narrow: bool) -> list[str]:
    """A cell as it is drawn: where there is little room, an interval stands below its value."""
    if narrow and column in NAMES:
        return textwrap.wrap(cell.text, NAME, break_long_words=False, break_on_hyphens=False) or [""]
    return cell.text.replace(" [", "\n[").splitlines() if narrow else [cell.text]


def widths(made: Table, narrow: bool) -> list[int]:
    """The width of every column with the gap before the next one."""
    found = []
    for place, name in enumerate(made.columns):
        longest = max((len(line) for row in made.rows for line in lines_of(row[place], name, narrow)), default=0)
        if narrow and name not in NAMES:
            found.append(max(min(longest, LIST), *map(len, name.split())) + GAP)
        else:
            found.append(max(longest, len(name)) + GAP)
    return found


def draw(made: Table, narrow: bool) -> Drawn:
    table = Drawn(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, header_style="")
    for place, (name, width) in enumerate(zip(made.columns, widths(made, narrow), strict=True)):
        words = name in NAMES or place == 0
        table.add_column(Text(name), justify="left" if words else "right", width=width - GAP, no_wrap=words)
    for row in made.rows:
        texts = ("\n".join(lines_of(cell, name, narrow)) for cell, name in zip(row, made.columns, strict=True))
        table.add_row(*(Text(text, "bold green" if cell.best else "") for cell, text in zip(row, texts, strict=True)))
    return table
