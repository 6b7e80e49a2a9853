"""Tables to the letter."""

import json

import pytest

from emu.errors import EmuError
from emu.study.analysis.names import readable, seeds_text, short_number, short_steps
from emu.study.analysis.runs import load_runs
from emu.study.analysis.table_text import Cell, Table, escape, latex, markdown, write_tables
from emu.study.analysis.tables import make_tables
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
        "| environment | algorithm | seeds | steps | overall win rate | last win rate | best win rate "
        "| training win rate |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| gridworld | EMU (QPLEX) | 2 | 30K | 0.375 (0.500, 0.250) | 0.75 | 0.75 | 0.60 |\n"
        "| gridworld | QPLEX | 1 | 30K | 0.250 | 0.50 | 0.50 | 0.40 |\n"
    )


def test_from_five_seeds_on_there_are_intervals_and_what_is_separated_is_bold(tmp_path):
    for seed in range(5):
        write_run(tmp_path / "a" / str(seed), "emu_qplex", seed=seed, points=((0, 0.0), (30_000, 0.8 + 0.05 * seed)))
        write_run(tmp_path / "b" / str(seed), "qplex", seed=seed, points=((0, 0.0), (30_000, 0.1 * seed)))
        write_run(tmp_path / "c" / str(seed), "vdn", seed=seed, points=((0, 0.0), (30_000, 0.25)))
    lines = markdown(only_table(tmp_path, "summary")).splitlines()
    assert lines[2] == (
        "| environment | algorithm | seeds | steps | overall win rate | last win rate (95 % CI) | IQM (95 % CI) "
        "| best win rate | training win rate (95 % CI) |"
    )
    assert lines[4] == (
        "| gridworld | EMU (QPLEX) | 5 | 30K | **0.450 ± 0.040** | 0.90 [0.84, 0.96] | 0.90 [0.82, 0.98] | 0.90 "
        "| 0.72 [0.67, 0.77] |"
    )
    assert lines[6] == "| gridworld | VDN | 5 | 30K | 0.125 ± 0.000 | 0.25 | 0.25 | 0.25 | 0.20 |"  # all alike: no CI


def test_nothing_is_bold_that_the_seeds_do_not_separate(tmp_path):
    for algo, values in (("emu_qplex", (1.0, 0.1, 0.9, 0.2, 0.8)), ("qplex", (0.9, 0.1, 0.8, 0.3, 0.7))):
        for seed, value in enumerate(values):
            write_run(tmp_path / algo / str(seed), algo, seed=seed, points=((0, 0.0), (30_000, value)))
    assert "**" not in "".join(markdown(only_table(tmp_path, "summary")).splitlines()[2:])
    assert "**" not in "".join(markdown(only_table(tmp_path, "improvement")).splitlines()[2:])


def test_tasks_without_a_goal_have_a_table_of_returns(tmp_path):
    write_run(tmp_path / "a", "td3", "gymnasium:Hopper-v4", seed=0, points=((0, 0.0), (30_000, 30.0)))
    write_run(tmp_path / "b", "td3", "gymnasium:Hopper-v4", seed=1, points=((0, 0.0), (30_000, 10.0)))
    write_run(tmp_path / "c", "qmix", points=HALF)
    returns, wins = make_tables(load_runs([tmp_path]), "summary")
    assert markdown(returns).splitlines()[2:] == [
        "| environment | algorithm | seeds | steps | overall return | last return | best return | training return |",
        "|---|---|---|---|---|---|---|---|",
        "| gymnasium:Hopper-v4 | TD3 | 2 | 30K | 100.0 (150.0, 50.00) | 200.0 | 200.0 | 160.0 |",
    ]
    assert "overall win rate" in wins.columns and len(wins.rows) == 1


def test_the_papers_table_of_radius_and_embedder_to_the_letter(tmp_path):
    for kind, points in (("random", HALF), ("dcae", WHOLE)):
        overrides = {"memory.radius": 1.3e-3, "memory.embedder.kind": kind}
        write_run(tmp_path / kind, "emu_qplex", "smac/3s_vs_5z", points=points, overrides=overrides)
    overrides = {"memory.radius": 1.3e-2, "memory.embedder.kind": "dcae"}
    write_run(tmp_path / "wide", "emu_qplex", "smac/3s_vs_5z", points=HALF, overrides=overrides)
    write_run(tmp_path / "other", "qmix", "smac/3s_vs_5z")  # has no memory: left out
    table = only_table(tmp_path, "radius")
    assert markdown(table) == (
        "**Overall win rate of EMU (QPLEX) on smac/3s_vs_5z by radius δ and embedder, 1 seed**\n"
        "\n"
        "| δ | 10K: random projection | 10K: dCAE | 20K: random projection | 20K: dCAE | 30K: random projection "
        "| 30K: dCAE |\n"
        "|---|---|---|---|---|---|---|\n"
        "| 1.3e-3 | 0.083 | 0.167 | 0.167 | 0.333 | 0.250 | 0.500 |\n"
        "| 1.3e-2 | – | 0.083 | – | 0.167 | – | 0.250 |\n"
    )
    assert latex(table) == (
        "\\begin{table}\n"
        "\\caption{Overall win rate of EMU (QPLEX) on smac/3s\\_vs\\_5z by radius $\\delta$ and embedder, 1 seed}\n"
        "\\begin{tabular}{lrrrrrr}\n"
        "\\toprule\n"
        "\\multicolumn{1}{c}{} & \\multicolumn{2}{c}{10K} & \\multicolumn{2}{c}{20K} & \\multicolumn{2}{c}{30K} \\\\\n"
        "$\\delta$ & random projection & dCAE & random projection & dCAE & random projection & dCAE \\\\\n"
        "\\midrule\n"
        "1.3e-3 & 0.083 & 0.167 & 0.167 & 0.333 & 0.250 & 0.500 \\\\\n"
        "1.3e-2 & -- & 0.083 & -- & 0.167 & -- & 0.250 \\\\\n"
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
        "| gridworld | EMU (QPLEX) | 2 | 75,000 | 8.6 | 120 | 1,000,000 | 0.43 | 3.00 | 25.0 % |\n"
    )


def test_a_memory_whose_environment_cannot_be_made_is_still_counted(tmp_path):
    write_run(tmp_path / "a", "emu_qplex", points=((0, 0.0), (200_000, 1.0)), memory=True)
    settings = tmp_path / "a" / "config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"env_args": {"no_such_thing": 1}}))
    last = markdown(only_table(tmp_path, "memory")).splitlines()[-1]
    assert last == "| gridworld | EMU (QPLEX) | 1 | 100,000 | 11.4 | 120 | 1,000,000 | – | 5.00 | 50.0 % |"


def test_probability_of_improvement_to_the_letter(tmp_path):
    write_run(tmp_path / "a", "qmix", points=WHOLE)
    write_run(tmp_path / "b", "vdn", points=HALF)
    assert markdown(only_table(tmp_path, "improvement")).splitlines()[2:] == [
        "|  | QMIX | VDN |",
        "|---|---|---|",
        "| QMIX | – | 1.00 |",
        "| VDN | 0.00 | – |",
    ]


def test_a_radius_is_bold_where_five_seeds_separate_its_embedder(tmp_path):
    for kind, end in (("random", 0.5), ("dcae", 1.0)):
        for seed in range(5):
            overrides = {"memory.radius": 1.3e-3, "memory.embedder.kind": kind}
            points = ((0, 0.0), (30_000, end - 0.01 * seed))
            write_run(tmp_path / f"{kind}{seed}", "emu_qplex", seed=seed, points=points, overrides=overrides)
    row = only_table(tmp_path, "radius").rows[0]
    assert [cell.best for cell in row] == [False] + [False, True] * 3


def test_a_table_runs_nobodys_code(tmp_path, monkeypatch):
    """Not even its import: being an environment is checked later, when a module has run."""
    monkeypatch.setattr("emu.envs.make", lambda *_, **__: pytest.fail("an environment was built"))
    folder = write_run(tmp_path / "a", "emu_qplex", points=WHOLE, memory=True)
    config = json.loads((folder / "config.json").read_text())
    payload = {"env": "os:system", "env_args": {"command": f"touch {tmp_path / 'ran'}"}}
    (folder / "config.json").write_text(json.dumps(config | payload))
    (row,) = only_table(tmp_path, "memory").rows
    assert row[7].text == "–" and not (tmp_path / "ran").exists()


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


def test_algorithms_are_called_as_people_write_them():
    labels = ["emu_qplex", "emu_qplex δ=1.3e-3", "dcae δ=0.1", "qmix (td_lambda 0.5)", "no_ei", "mine"]
    labels.append("emu_qplex+fast δ=0.1")
    assert [readable(label) for label in labels] == [
        "EMU (QPLEX)",
        "EMU (QPLEX) δ=1.3e-3",
        "dCAE δ=0.1",
        "QMIX (td_lambda 0.5)",
        "EMU (QPLEX) without EI",
        "mine",
        "EMU (QPLEX) + fast δ=0.1",
    ]
    assert [seeds_text(n) for n in ([1], [5, 5], [3, 2])] == ["1 seed", "5 seeds", "2–3 seeds"]


def test_numbers_are_short():
    steps = [short_steps(n) for n in (0, 500, 20_000, 33_333, 1_370_000, 2_050_000)]
    assert steps == ["0", "500", "20K", "33.3K", "1.37M", "2.05M"]
    numbers = [short_number(x) for x in (0, 1.3e-7, 1.3e-3, 0.013, 0.01, 0.05, 0.001, 5e-4, 0.1, 0.13, 10)]
    assert numbers == ["0", "1.3e-7", "1.3e-3", "1.3e-2", "0.01", "0.05", "0.001", "5e-4", "0.1", "0.13", "10"]
