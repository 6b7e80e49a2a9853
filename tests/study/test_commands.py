"""`emu plot`, `emu table` and `emu export` from the command line."""

import json

from emu.cli.app import main
from study.synthetic import make_study


def test_plot_table_and_export_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = str(make_study(tmp_path / "study", seeds=2))
    assert main(["plot", folder]) == 0
    assert (tmp_path / "curves.png").exists()
    assert main(["plot", folder, "--kind", "improvement", "--measure", "last", "--out", "x.pdf"]) == 0
    assert (tmp_path / "x.pdf").exists()
    capsys.readouterr()
    assert main(["table", folder, "--out", "tables"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("**Summary (laptop scale)**") and shown == (tmp_path / "tables" / "summary.md").read_text()
    assert main(["export", folder, "out.json"]) == 0
    assert list(json.loads((tmp_path / "out.json").read_text())) == ["gridworld"]


def test_what_is_refused_ends_with_status_two(tmp_path, capsys):
    folder = str(make_study(tmp_path / "study", seeds=1, memory=False))
    assert main(["plot", folder, "--kind", "recall", "--out", str(tmp_path / "x.png")]) == 2
    assert "logged a memory" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "nowhere")]) == 2
    assert main(["plot"]) == 2
    assert "Name a run's folder" in capsys.readouterr().err
    assert main(["absolute", folder]) == 2  # runs without a trained team
    assert "no trained team" in capsys.readouterr().err
