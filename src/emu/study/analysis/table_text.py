"""Tables as text: Markdown for the terminal and for docs, LaTeX (booktabs) for papers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from emu.files import writing

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

    def headings(self) -> list[str]:
        """The columns' names in one line each, with the headings above them."""
        above = [title for title, count in self.groups for _ in range(count)] or [""] * len(self.columns)
        return [f"{group}: {name}" if group else name for group, name in zip(above, self.columns, strict=True)]


def write_tables(tables: Sequence[Table], kind: str, folder: Path) -> list[Path]:
    """KIND.md and KIND.tex in a folder."""
    paths = [folder / f"{kind}.md", folder / f"{kind}.tex"]
    with writing(folder, "Choose another folder with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        paths[0].write_text("\n".join(markdown(table) for table in tables), "utf-8", "backslashreplace")
        paths[1].write_text("\n".join(latex(table) for table in tables), "utf-8", "backslashreplace")
    return paths


def markdown(table: Table) -> str:
    names = table.headings()
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
