"""The demo, made so short that nothing is learnt."""

from __future__ import annotations

from emu.cli.demo import run_demo

SHORT = {"steps": 200, "eval.interval": 100, "eval.episodes": 2, "learner.batch_size": 4, "agent.hidden": 8}


def test_the_demo_says_who_is_ahead_and_draws_curves_and_the_best_team(tmp_path, capfd):
    assert run_demo(tmp_path / "demo", SHORT, seeds=[0]) == 0
    shown = capfd.readouterr()
    assert "2 runs finished" in shown.out
    assert "Probability of improvement" in shown.out
    assert "1 seed against 1: the order may be chance." in shown.out or "have the same overall win rate" in shown.out
    assert (tmp_path / "demo" / "curves.png").stat().st_size > 0
    assert (tmp_path / "demo" / "team.gif").read_bytes().startswith(b"GIF")

    assert run_demo(tmp_path / "demo", SHORT, seeds=[0]) == 0  # a second time nothing is trained
    assert "nothing to do" in capfd.readouterr().err
