"""The paper's experiments as declared, against sizes worked out by hand; and what their time is estimated from."""

import json

import pytest

from emu import envs
from emu.cli.app import main
from emu.config import replace
from emu.config.presets import preset
from emu.errors import EmuError
from emu.study.plan import estimate as speed
from emu.study.plan.experiments import EXPERIMENTS, SCALES, plan
from emu.study.plan.plans import Planned, check_plan

from .fakes import complete


@pytest.fixture(autouse=True)
def no_cache_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_gridworld_study_is_the_preset_on_six_seeds():
    runs = plan("gridworld").runs
    expected = [(algo, seed) for algo in ("emu_qplex", "emc", "qplex", "qmix") for seed in range(6)]
    assert [(run.algo, run.seed) for run in runs] == expected
    for run, (algo, seed) in zip(runs, expected, strict=True):
        assert str(run.folder) == f"runs/gridworld/{algo}/seed{seed}"
        assert run.config() == preset(algo, "gridworld", seed=seed, devices=1, tensorboard=False)
        assert run.config().steps == 500_000 and run.config().eval.episodes == 30


def test_gridworld_results_made_by_hand_are_recognised(tmp_path):
    chosen = plan("gridworld")
    for run in chosen.runs[:2]:
        config = preset(run.algo, "gridworld", seed=run.seed, devices=1, tensorboard=False)
        complete(tmp_path / "runs" / "gridworld" / run.algo / f"seed{run.seed}", config, step=500_096)
    assert list(check_plan(chosen, tmp_path).values()) == ["finished"] * 2 + ["new"] * 22


@pytest.mark.parametrize(
    ("name", "scale", "runs"),
    [
        ("gridworld", "paper", 4 * 6),
        ("smac", "paper", 6 * 6 * 5),
        ("radius_embedder", "paper", 2 * 3 * 4 * 5),
        ("radius_embedder", "laptop", 1 * 3 * 4 * 1),
        ("radius", "paper", 1 * 4 * 5),
        ("reconstruction", "paper", 2 * 5 * 5),
        ("loss_cases", "paper", 2 * 4 * 5),
        ("ablation", "paper", (2 * 5 + 1 * 4) * 5),
        ("ablation", "laptop", 5 * 2),
        ("e3b", "paper", 2 * 5 * 5),
        ("football", "paper", 3 * 6 * 5),
        ("radius_football", "paper", 3 * 4 * 5),
        ("ablation_football", "paper", 2 * 4 * 5),
        ("ablation_football", "laptop", 1 * 4 * 2),
        ("mujoco", "paper", 3 * 2 * 5),
        ("return_threshold", "laptop", 1 * 3 * 2),
    ],
)
def test_sizes(name, scale, runs):
    assert len(plan(name, scale).runs) == runs


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_study_can_be_made(name):
    for scale in SCALES:
        chosen = plan(name, scale, seeds=[0])
        assert len({run.folder for run in chosen.runs}) == len(chosen.runs) > 0
        assert all(run.env in envs.registered() or run.env.startswith("gymnasium:") for run in chosen.runs)
        configs = {run.label + run.env: run.config() for run in chosen.runs}
        plain = [replace(config, {"algo": "", "seed": 0}) for config in configs.values()]
        assert all(plain.count(config) == 1 for config in plain)
    assert sum(r.config().steps for r in plan(name, "laptop").runs) < sum(r.config().steps for r in plan(name).runs)


def test_radius_and_embedder_differ_in_nothing_else():
    runs = {run.label: run.config() for run in plan("radius_embedder", seeds=[0], tasks=["smac/3s_vs_5z"]).runs}
    assert [*runs][::11] == ["random δ=1.3e-7", "dcae δ=1.3e-2"]
    config = runs["embnet δ=1.3e-3"]
    assert (config.memory.use, config.memory.radius, config.memory.embedder.kind) == ("control", 1.3e-3, "embnet")
    same = {"memory.radius": 1.0, "memory.embedder.kind": "dcae"}
    assert len({json.dumps(str(replace(config, same))) for config in runs.values()}) == 1


def test_laptop_scale_says_so_and_changes_only_size():
    small, large = plan("gridworld", "laptop"), plan("gridworld")
    assert (small.scale, large.scale) == ("laptop", "paper")
    size = {"steps": 500_000, "rollout.epsilon_steps": 200_000}
    assert replace(small.runs[0].config(), size) == large.runs[0].config()


def test_tasks_and_seeds_can_be_chosen():
    assert {run.env for run in plan("smac", tasks=["smac/MMM2"]).runs} == {"smac/MMM2"}
    assert {run.seed for run in plan("smac", seeds=[7, 9]).runs} == {7, 9}
    assert {run.env for run in plan("smac", "laptop", tasks=["smac/2s3z"]).runs} == {"smac/2s3z"}
    with pytest.raises(EmuError, match="not a task of the study 'smac'"):
        plan("smac", tasks=["smac/MM2"])


def test_the_list_shows_all_studies_and_marks_times_that_were_not_measured_here(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["study", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in EXPERIMENTS)
    assert "12.0M" in text and "not all measured here" in text
    assert text.count("~") > 2 * len(EXPERIMENTS)  # a time for every study at both scales, before anything was run
    speed.remember({speed.kind(run.config()): 1_000.0 for run in plan("gridworld", seeds=[0]).runs})
    assert main(["study", "--list", "--workers", "1"]) == 0  # 12,000,000 steps, a thousand a second: 3.33 hours
    assert " 3 h " in capsys.readouterr().out


def test_an_unknown_name_is_explained(capsys):
    assert main(["study", "gridwrld"]) == 2
    assert "Did you mean 'gridworld'?" in capsys.readouterr().err
    assert main(["study"]) == 2
    assert "emu study --list" in capsys.readouterr().err


# Time


def test_an_estimate_is_steps_over_speed_shared_among_workers():
    runs = [Planned("matrix/climbing", algo, algo, seed, {"steps": 600}) for algo in ("vdn", "qmix") for seed in (0, 1)]
    vdn, qmix = (speed.kind(run.config()) for run in (runs[0], runs[2]))
    whole = speed.estimate(runs, 2, {vdn: 100.0, qmix: 50.0})
    assert whole == speed.Estimate(2_400, (12 + 24) / 2, 2, 2) and whole.text() == "18 s"
    half = speed.estimate(runs, 2, {vdn: 100.0})
    assert half.known == 1 and half.seconds == (12 + 1_200 / speed.reference_speed(runs[2].config())) / 2
    assert half.text() == "~6 s"


def test_reference_speeds_know_what_makes_a_run_slow():
    three, eight = (speed.reference_speed(preset("qplex", f"smac/{name}")) for name in ("3m", "8m"))
    assert three == 1_000 and 130 < eight < 200
    emu = preset("emu_qplex", "smac/3m", **{"curiosity.scale": 0.0, "memory.embedder.interval": 1_000})
    assert speed.reference_speed(emu) == 600
    assert speed.reference_speed(replace(emu, {"curiosity.scale": 0.1})) == pytest.approx(270)
    for experiment in EXPERIMENTS:
        for run in plan(experiment, seeds=[0]).runs:
            assert 1 < speed.reference_speed(run.config()) <= 1_000


def test_lengths_of_time_are_rough():
    assert [speed.about(s) for s in (59, 119, 121, 7_300, 90_000, 200_000)] == [
        "59 s",
        "119 s",
        "2 min",
        "2 h",
        "25 h",
        "2 days",
    ]


def test_seed_and_radius_do_not_change_the_kind_of_a_run_but_the_mixer_does():
    base = preset("emu_qplex", "gridworld")
    assert speed.kind(replace(base, {"seed": 5, "steps": 7, "memory.radius": 0.5})) == speed.kind(base)
    assert speed.kind(replace(base, {"mixer.kind": "vdn"})) != speed.kind(base)


def test_speeds_of_another_machine_are_forgotten(monkeypatch):
    speed.remember({"a": 1.0})
    speed.remember({"b": 2.0})
    assert speed.known_speeds() == {"a": 1.0, "b": 2.0}
    monkeypatch.setattr(speed, "machine", lambda: "another")
    assert speed.known_speeds() == {}


def test_the_speed_of_a_run_leaves_out_compiling_and_the_time_between_two_processes(tmp_path):
    rows = [(0, 0, 0), (100, 50, 1), (200, 51, 2), (300, 52, 3), (200, 500, 0.5), (300, 501, 1.5), (400, 504, 2.5)]
    lines = [json.dumps({"step": step, "wall": wall, "rollout": spent}) for step, wall, spent in rows]
    (tmp_path / "timing.jsonl").write_text("\n".join(lines))
    assert speed.speed_of(tmp_path) == (100 + 100 + 100 + 100) / (1 + 1 + 1 + 3)
    assert speed.speed_of(tmp_path / "nothing") == 0.0
