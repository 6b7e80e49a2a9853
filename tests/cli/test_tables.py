"""Tables of a study on terminals of several widths."""

from __future__ import annotations

import io

from rich.console import Console

from emu.cli.tables import print_tables
from emu.study.analysis.table_text import Cell, Table, markdown

ROWS = [
    [Cell("gridworld/tiny"), Cell("EMU (QPLEX)"), Cell("0.870 ± 0.062", True), Cell("0.90 [0.84, 0.96]"), Cell("1.00")],
    [Cell("gridworld/tiny"), Cell("QPLEX"), Cell("0.594 ± 0.198"), Cell("0.25"), Cell("1.00")],
]
COLUMNS = ["environment", "algorithm", "overall win rate", "last win rate (95 % CI)", "training win rate"]


def printed(width: int, rows: list[list[Cell]] = ROWS) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_tables([Table("Summary", COLUMNS, rows)], out)
    return out.file.getvalue()  # type: ignore[attr-defined]


def test_a_table_never_is_wider_than_the_terminal():
    for width in range(40, 141):
        assert max(map(len, printed(width).splitlines())) <= width, width


def test_no_number_is_cut_or_broken_at_80_columns():
    shown = printed(80)
    for text in ("EMU (QPLEX)", "0.870 ± 0.062", "[0.84, 0.96]", "0.594 ± 0.198", "training"):
        assert text in shown


def test_a_wide_terminal_has_every_row_in_one_line():
    row = next(line for line in printed(140).splitlines() if "EMU (QPLEX)" in line)
    assert "0.90 [0.84, 0.96]" in row and row.rstrip().endswith("1.00")


def test_an_environment_that_all_rows_share_is_said_once_in_the_title():
    assert printed(140).count("gridworld/tiny") == 1
    other = [ROWS[0], [Cell("smac/3m"), *ROWS[1][1:]]]
    assert "environment" in printed(140, other) and printed(140, other).count("gridworld/tiny") == 1


def test_what_a_narrow_terminal_leaves_out_is_said():
    shown = printed(50)
    assert "Left out for want of room: training win rate." in " ".join(shown.split())
    assert "0.870 ± 0.062" in shown


def test_a_long_name_takes_several_lines_before_a_result_is_left_out():
    name = "EMU (QPLEX) (target_hit_rate 0.9, whiten True, prior_visits 2)"
    shown = printed(80, [[Cell("smac/5m_vs_6m"), Cell(name), *ROWS[0][2:]], [Cell("smac/3m"), *ROWS[1][1:]]])
    assert "0.870 ± 0.062" in shown and all(word in shown for word in name.split())


def test_a_pipe_gets_markdown(capsys):
    table = Table("Summary", COLUMNS, ROWS)
    print_tables([table])
    assert capsys.readouterr().out == markdown(table)
