"""Tables to the letter."""

import pytest

from emu.errors import EmuError
from emu.study.analysis.runs import load_runs, short_number, short_steps
from emu.study.analysis.tables import Cell, Table, escape, latex, make_tables, markdown, write_tables
from study.synthetic import make_study, write_run

HALF = ((0, 0.0), (30_000, 0.5))
WHOLE = ((0, 0.0), (30_000, 1.0))


def only_table(folder, kind):
    (table,) = make_tables(load_runs([folder]), kind)
    return table


def test_the_summary_to_the_letter(tmp_path):
    write_run(tmp_path / "a", "emu_qplex", seed=0, points=WHOLE)
    write_run(tmp_path / "b", "emu_qplex", seed=1, points=HALF)
    write_run(tmp_path / "c", "qplex", seed=0, points=HALF)
    assert markdown(only_table(tmp_path, "summary")) == (
        "**Summary**\n"
        "\n"
        "| environment | algorithm | seeds | steps | last win rate (95 % CI) | IQM (95 % CI) | overall win-rate "
        "| best win rate |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| gridworld | emu_qplex | 2 | 30K | 0.75 [0.50, 1.00] | 0.75 [0.50, 1.00] | **0.375 ± 0.177** | 0.75 |\n"
        "| gridworld | qplex | 1 | 30K | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] | 0.250 | 0.50 |\n"
    )


def test_the_papers_table_of_radius_and_embedder_to_the_letter(tmp_path):
    for kind, points in (("random", HALF), ("dcae", WHOLE)):
        overrides = {"memory.radius": 1.3e-3, "memory.embedder.kind": kind}
        write_run(tmp_path / kind, "emu_qplex", "smac/3s_vs_5z", points=points, overrides=overrides)
    overrides = {"memory.radius": 1.3e-2, "memory.embedder.kind": "dcae"}
    write_run(tmp_path / "wide", "emu_qplex", "smac/3s_vs_5z", points=HALF, overrides=overrides)
    write_run(tmp_path / "other", "qmix", "smac/3s_vs_5z")  # has no memory: left out
    table = only_table(tmp_path, "radius")
    assert markdown(table) == (
        "**Overall win-rate of emu_qplex on smac/3s_vs_5z by radius δ and embedder, 1 seed**\n"
        "\n"
        "| δ | 10K: random | 10K: dcae | 20K: random | 20K: dcae | 30K: random | 30K: dcae |\n"
        "|---|---|---|---|---|---|---|\n"
        "| 1.3e-3 | 0.083 | **0.167** | 0.167 | **0.333** | 0.250 | **0.500** |\n"
        "| 1.3e-2 | – | **0.083** | – | **0.167** | – | **0.250** |\n"
    )
    assert latex(table) == (
        "\\begin{table}\n"
        "\\caption{Overall win-rate of emu\\_qplex on smac/3s\\_vs\\_5z by radius $\\delta$ and embedder, 1 seed}\n"
        "\\begin{tabular}{lrrrrrr}\n"
        "\\toprule\n"
        "\\multicolumn{1}{c}{} & \\multicolumn{2}{c}{10K} & \\multicolumn{2}{c}{20K} & \\multicolumn{2}{c}{30K} \\\\\n"
        "$\\delta$ & random & dcae & random & dcae & random & dcae \\\\\n"
        "\\midrule\n"
        "1.3e-3 & 0.083 & \\textbf{0.167} & 0.167 & \\textbf{0.333} & 0.250 & \\textbf{0.500} \\\\\n"
        "1.3e-2 & -- & \\textbf{0.083} & -- & \\textbf{0.167} & -- & \\textbf{0.250} \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_memory_use_to_the_letter(tmp_path):  # 92 floats and 89 bytes an entry: 457 MB when full
    write_run(tmp_path / "a", "emu_qplex", seed=0, points=((0, 0.0), (200_000, 1.0)), memory=True)
    write_run(tmp_path / "b", "emu_qplex", seed=1, points=((0, 0.0), (100_000, 0.0)), memory=True)
    assert markdown(only_table(tmp_path, "memory")) == (
        "**Memory use at the end of training**\n"
        "\n"
        "| environment | algorithm | seeds | entries | MiB | bytes per entry | capacity | GiB when full | mean visits "
        "| desirable |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
        "| gridworld | emu_qplex | 2 | 75,000 | 8.6 | 120 | 1,000,000 | 0.43 | 3.00 | 25.0 % |\n"
    )


def test_probability_of_improvement_to_the_letter(tmp_path):
    write_run(tmp_path / "a", "qmix", points=WHOLE)
    write_run(tmp_path / "b", "vdn", points=HALF)
    assert markdown(only_table(tmp_path, "improvement")).splitlines()[2:] == [
        "|  | qmix | vdn |",
        "|---|---|---|",
        "| qmix | – | 1.00 [1.00, 1.00] |",
        "| vdn | 0.00 [0.00, 0.00] | – |",
    ]


def test_laptop_studies_say_so_in_every_title(tmp_path):
    runs = load_runs([make_study(tmp_path)])
    for kind in ("summary", "radius", "memory", "improvement"):
        assert all("(laptop scale)" in table.title for table in make_tables(runs, kind))


def test_there_is_a_table_per_environment_and_algorithm(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=1)])
    assert len(make_tables(runs, "radius")) == 2


def test_what_a_table_cannot_say_is_refused(tmp_path):
    runs = load_runs([write_run(tmp_path / "a", "qmix")])
    for kind, message in (("radius", "has a memory"), ("memory", "logged a memory"), ("improvement", "two labels")):
        with pytest.raises(EmuError, match=message):
            make_tables(runs, kind)
    with pytest.raises(EmuError, match="Did you mean 'summary'"):
        make_tables(runs, "sumary")
    write_run(tmp_path / "b", "qmix", version="2")
    with pytest.raises(EmuError, match="--mix-versions"):
        make_tables(load_runs([tmp_path]), "summary")
    assert make_tables(load_runs([tmp_path]), "summary", mix_versions=True)


def test_tables_are_written_as_markdown_and_latex(tmp_path):
    table = Table("T", ["a"], [[Cell("x|y")]])
    paths = write_tables([table, table], "summary", tmp_path / "tables")
    assert [path.name for path in paths] == ["summary.md", "summary.tex"]
    assert paths[0].read_text() == "**T**\n\n| a |\n|---|\n| x\\|y |\n\n**T**\n\n| a |\n|---|\n| x\\|y |\n"


def test_text_is_safe_for_latex():
    assert escape("50 % of $x_1 & {y} \\ ~^") == (
        "50 \\% of \\$x\\_1 \\& \\{y\\} \\textbackslash{} \\textasciitilde{}\\textasciicircum{}"
    )


def test_numbers_are_short():
    steps = [short_steps(n) for n in (0, 500, 20_000, 33_333, 1_370_000, 2_050_000)]
    assert steps == ["0", "500", "20K", "33.3K", "1.37M", "2.05M"]
    numbers = [short_number(x) for x in (0, 1.3e-7, 1.3e-3, 0.013, 0.01, 0.05, 0.001, 5e-4, 0.1, 0.13, 10)]
    assert numbers == ["0", "1.3e-7", "1.3e-3", "1.3e-2", "0.01", "0.05", "0.001", "5e-4", "0.1", "0.13", "10"]
