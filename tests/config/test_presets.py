"""Presets: every row of the paper's settings, the order in which they apply, variants, and settings from a file."""

import fnmatch
import json

import pytest

from emu.cli.train_options import USUAL_NAMES, parse_train, whole_number
from emu.config import Config, from_dict, to_dict
from emu.config import presets as p
from emu.config.presets import ALGORITHMS, VARIANTS, complete, preset, split_name
from emu.errors import ConfigError
from emu.run.folder import run_folder

EASY_AND_HARD = ("3m", "8m", "1c3s5z", "2s3z", "3s5z", "3s_vs_5z", "5m_vs_6m")
SMAC, LONG, FOOTBALL = 2_050_000, 5_050_000, 3_050_000  # environment steps
SHORT, MIDDLE, SLOW = 50_000, 200_000, 500_000  # environment steps over which ε falls

# algorithm, map, radius, curiosity, diversity β, ε steps, weighted head, nonlinear, steps, what the memory is for
ROWS = [
    *(("qplex", f"smac/{m}", 1.3e-5, 0.0, 0.0, SHORT, False, False, SMAC, "none") for m in EASY_AND_HARD),
    *(("emc", f"smac/{m}", 1.3e-5, 0.001, 0.0, SHORT, False, False, SMAC, "control") for m in EASY_AND_HARD),
    *(("emu_qplex", f"smac/{m}", 1.3e-5, 0.001, 0.0, SHORT, False, False, SMAC, "incentive") for m in EASY_AND_HARD),
    *(("no_ei", f"smac/{m}", 1.3e-5, 0.001, 0.0, SHORT, False, False, SMAC, "control") for m in EASY_AND_HARD),
    *(("no_se", f"smac/{m}", 1.3e-5, 0.001, 0.0, SHORT, False, False, SMAC, "incentive") for m in EASY_AND_HARD),
    *(("cds", f"smac/{m}", 1.3e-5, 0.0, 0.0, SHORT, False, False, SMAC, "none") for m in EASY_AND_HARD),
    *(("emu_cds", f"smac/{m}", 1.3e-5, 0.0, 0.0, SHORT, False, False, SMAC, "incentive") for m in EASY_AND_HARD),
    # Super hard: EMU without curiosity except on corridor, EMC with its own, CDS with a β for each.
    ("qplex", "smac/MMM2", 1.3e-3, 0.0, 0.0, SHORT, True, True, LONG, "none"),
    ("qplex", "smac/6h_vs_8z", 1.3e-3, 0.0, 0.0, MIDDLE, False, False, LONG, "none"),
    ("qplex", "smac/3s5z_vs_3s6z", 1.3e-3, 0.0, 0.0, MIDDLE, True, False, LONG, "none"),
    ("qplex", "smac/corridor", 1.3e-3, 0.0, 0.0, SHORT, False, False, LONG, "none"),
    ("emc", "smac/MMM2", 1.3e-3, 0.001, 0.0, SHORT, True, True, LONG, "control"),
    ("emc", "smac/6h_vs_8z", 1.3e-3, 0.2, 0.0, MIDDLE, False, False, LONG, "none"),
    ("emc", "smac/3s5z_vs_3s6z", 1.3e-3, 0.08, 0.0, MIDDLE, True, False, LONG, "none"),
    ("emc", "smac/corridor", 1.3e-3, 0.1, 0.0, SHORT, False, False, LONG, "control"),
    ("emu_qplex", "smac/MMM2", 1.3e-3, 0.0, 0.0, SHORT, True, True, LONG, "incentive"),
    ("emu_qplex", "smac/6h_vs_8z", 1.3e-3, 0.0, 0.0, MIDDLE, False, False, LONG, "incentive"),
    ("emu_qplex", "smac/3s5z_vs_3s6z", 1.3e-3, 0.0, 0.0, MIDDLE, True, False, LONG, "incentive"),
    ("emu_qplex", "smac/corridor", 1.3e-5, 0.1, 0.0, SHORT, False, False, LONG, "incentive"),
    ("no_ei", "smac/6h_vs_8z", 1.3e-3, 0.0, 0.0, MIDDLE, False, False, LONG, "control"),
    ("cds", "smac/MMM2", 1.3e-3, 0.0, 0.07, SHORT, True, True, LONG, "none"),
    ("cds", "smac/6h_vs_8z", 1.3e-3, 0.0, 0.1, MIDDLE, False, False, LONG, "none"),
    ("cds", "smac/3s5z_vs_3s6z", 1.3e-3, 0.0, 0.03, SLOW, True, False, LONG, "none"),
    ("cds", "smac/corridor", 1.3e-3, 0.0, 0.1, SHORT, False, False, LONG, "none"),
    ("emu_cds", "smac/MMM2", 1.3e-3, 0.0, 0.07, SLOW, True, True, LONG, "incentive"),
    ("emu_cds", "smac/6h_vs_8z", 1.3e-3, 0.0, 0.1, MIDDLE, False, False, LONG, "incentive"),
    ("emu_cds", "smac/3s5z_vs_3s6z", 1.3e-3, 0.0, 0.03, SLOW, True, False, LONG, "incentive"),
    ("emu_cds", "smac/corridor", 1.3e-3, 0.0, 0.1, SHORT, False, False, LONG, "incentive"),
    ("emu_qplex", "football/3_vs_1_with_keeper", 1.3e-3, 0.0, 0.0, SHORT, False, False, FOOTBALL, "incentive"),
    ("emc", "football/counterattack_hard", 1.3e-3, 0.0, 0.0, SHORT, False, False, FOOTBALL, "control"),
    ("emu_cds", "football/counterattack_easy", 1.3e-3, 0.0, 0.05, SHORT, False, False, FOOTBALL, "incentive"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_papers_settings(row):
    algo, env, *expected = row
    c = preset(algo, env)
    found = [
        c.memory.radius, c.curiosity.scale, c.diversity.beta, c.rollout.epsilon_steps,
        c.mixer.weighted_head, c.mixer.nonlinear, c.steps, c.memory.use,
    ]  # fmt: skip
    assert found == expected
    assert c.mixer.heads == 4 and c.memory.embedder.interval == 10_000


def test_diversity_and_curiosity_have_the_papers_shapes_where_they_are_on():
    for algo in ("cds", "emu_cds"):
        betas = {m: preset(algo, f"smac/{m}").diversity for m in p.SUPER_HARD}
        assert {(betas[m].beta1, betas[m].beta2) for m in ("MMM2", "6h_vs_8z", "3s5z_vs_3s6z")} == {(2.0, 1.0)}
        corridor = betas["corridor"]
        assert (corridor.beta1, corridor.beta2, corridor.anneal_after, corridor.anneal_rate) == (0.5, 0.5, 10**6, 5.0)
        goal = preset(algo, "football/counterattack_easy").diversity
        assert (goal.beta, goal.beta1, goal.beta2) == (0.05, 0.5, 1.0)
    for algo in ("emc", "emu_qplex"):
        curiosity = preset(algo, "smac/corridor").curiosity
        assert (curiosity.decay, curiosity.decay_interval, curiosity.floor) == (0.8, 200_000, 0.01)


@pytest.mark.parametrize(
    ("env", "default", "paper"),
    [
        ("smac/3m", 10_000, 1_000),
        ("football/counterattack_easy", 10_000, 1_000),
        ("gymnasium:Hopper-v4", 100_000, 100_000),
        ("atari/alien", 10_000, 10_000),
        ("gridworld", 1_000, 1_000),
    ],
)
def test_the_embedder_is_trained_as_often_as_the_authors_do_and_on_request_as_the_paper_says(env, default, paper):
    algo = "emu_dqn" if env.startswith("atari") else "emu_qplex"
    assert preset(algo, env).memory.embedder.interval == default
    assert preset(f"{algo}+paper", env).memory.embedder.interval == paper


def test_a_task_wins_over_the_algorithm_a_pair_over_both_a_variant_over_them_and_overrides_over_all(monkeypatch):
    key = "learner.target_interval"
    monkeypatch.setitem(ALGORITHMS, "first", p.Algorithm("", "qmix", {key: 1}))
    monkeypatch.setitem(ALGORITHMS, "second", p.Algorithm("", "first", {key: 2}))
    assert preset("second", "nowhere").learner.target_interval == 2
    monkeypatch.setattr(p, "TASKS", [*p.TASKS, ("now*", {key: 3}), ("nowhere", {key: 4})])
    assert preset("second", "nowhere").learner.target_interval == 4
    monkeypatch.setattr(p, "PAIRS", [*p.PAIRS, ("sec*", "nowhere", {key: 5})])
    assert preset("second", "nowhere").learner.target_interval == 5
    monkeypatch.setitem(VARIANTS, "late", p.Variant("", [("*", {key: 6}), ("now*", {key: 7})]))
    assert preset("second+late", "nowhere").learner.target_interval == 7
    assert preset("second+late", "nowhere", learner__target_interval=8).learner.target_interval == 8


def test_patterns_of_pairs_name_algorithms_that_exist():
    for pattern, _, _ in p.PAIRS:
        assert any(fnmatch.fnmatch(name, pattern) for name in ALGORITHMS), pattern


def test_the_fast_variant_is_named_in_the_run_and_its_folder():
    config = preset("emu+fast", "smac/3m")
    assert config.algo == "emu_qplex+fast" and str(run_folder(config)) == "runs/smac-3m/emu_qplex+fast-seed0"
    assert (config.learner.td_lambda, config.curiosity.scale) == (0.6, 0.0)


def test_the_authors_rules_come_as_a_whole():
    memory = preset("emu_qplex+authors", "smac/3m").memory
    assert (memory.count_new_desirable, memory.backward_propagation, memory.metric) == (False, True, "linf")
    assert (memory.embedder.interval, memory.embedder.min_entries, memory.prior_visits) == (10_000, 102_400, 0.001)
    for env in ("smac/6h_vs_8z", "football/counterattack_easy"):
        assert preset("emu_qplex+authors", env).memory.count_new_desirable
    plain = preset("emu_qplex", "smac/3m").memory
    assert (plain.count_new_desirable, plain.backward_propagation, plain.metric) == (True, False, "l2")


def test_unknown_variants_are_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"No variant is called '\+fats'. Did you mean 'fast'"):
        split_name("emu_qplex+fats")


def test_a_file_of_settings_is_completed_by_the_preset(tmp_path):
    whole = preset("emu_qplex+fast", "smac/8m", seed=4, env_args={"a": 1})
    assert complete(json.loads(json.dumps(to_dict(whole)))) == whole
    few = complete({"algo": "emu", "env": "smac/8m", "learner": {"gamma": 0.9}, "env_args": {"a": 1}})
    assert few == preset("emu_qplex", "smac/8m", learner__gamma=0.9, env_args={"a": 1})
    with pytest.raises(ConfigError, match="Did you mean 'gamma'"):
        complete({"learner": {"gama": 1}})
    with pytest.raises(ConfigError, match="must be a group of settings"):
        complete({"learner": 3})


@pytest.mark.parametrize("name", ["settings.json", "settings.yaml"])
def test_the_command_line_takes_a_file_and_changes_it(tmp_path, name):
    file = tmp_path / name
    whole = to_dict(preset("emu_qplex", "smac/8m", seed=4))
    file.write_text(json.dumps(whole) if name.endswith("json") else "algo: emu\nenv: smac/8m\nseed: 4\n")
    parsed = parse_train(["--config", str(file), "--seed", "5"])
    assert parsed.settings == from_dict(whole | {"seed": 5})
    for words in (["--fast"], ["--algo", "qmix"], ["--rules", "authors"]):
        with pytest.raises(ConfigError, match="--config names the algorithm"):
            parse_train(["--config", str(file), *words])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("a.json", "{", "is not JSON"), ("a.yml", "a: [", "is not YAML"), ("a.json", "[1]", "object of settings")],
)
def test_a_broken_file_is_refused_by_name(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse_train(["--config", str(tmp_path / name)])
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_train(["--config", str(tmp_path / "missing.json")])


def test_the_command_line_understands_usual_words():
    parsed = parse_train(["--algo", "emu", "--env", "smac/3m", "--steps", "1e6", "--fast", "--rules", "authors"])
    assert parsed.settings == preset("emu_qplex+authors+fast", "smac/3m", steps=1_000_000)
    assert parse_train(["--algo=qmix+fast"]).settings.algo == "qmix+fast"
    assert [whole_number(text) for text in ("7", "1e6", "2.5e3", "-3")] == [7, 1_000_000, 2_500, -3]
    with pytest.raises(ValueError, match="not a whole number"):
        whole_number("1.5")


@pytest.mark.parametrize("word", sorted(USUAL_NAMES))
def test_names_of_other_frameworks_are_answered_with_ours(word, capsys):
    wanted = USUAL_NAMES[word]
    with pytest.raises(ConfigError, match=f"it is called {wanted}"):
        parse_train([f"{word}=1"])


def test_every_hint_names_an_option_that_exists(capsys):
    with pytest.raises(SystemExit):
        parse_train(["--help"])
    shown = capsys.readouterr().out
    assert all(f"{option} " in shown or f"{option}," in shown for option in USUAL_NAMES.values())


def test_defaults_without_words_are_those_of_the_default_preset():
    assert parse_train([]).settings == preset(Config.algo, Config.env)
