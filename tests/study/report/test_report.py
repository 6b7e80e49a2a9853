"""The report's Python side: packing, thinning, budgets, verdicts, and a page that is complete in itself."""

import json
import re
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emu.cli.app import main
from emu.errors import EmuError
from emu.run.snapshots import snapshot_paths
from emu.study.analysis.projection import principal_components
from emu.study.analysis.stats import ENOUGH_SEEDS
from emu.study.report import memories, page
from emu.study.report import series as curves
from emu.study.report.memories import memories_payload, project
from emu.study.report.packing import STEPS, packed, quantised, unpacked
from emu.study.report.page import LIMIT, as_script, write_report
from emu.study.report.series import curves_payload, read_runs, thinned
from emu.study.report.settings import differing, settings_html
from emu.study.report.summary import summary_html
from emu.training.session import train
from study.report.memories import invent_snapshot
from study.synthetic import make_study, write_run
from toys import flip_byte, silent, tiny_config

quick = settings(max_examples=40, deadline=None, derandomize=True)
finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)


def no_warning(text):
    raise AssertionError(text)


def read(folder):
    return read_runs(folder, no_warning)


@pytest.fixture
def study(tmp_path):
    """Two algorithms, two environments, two seeds; the memories of emu_qplex have three snapshots each."""
    folder = make_study(tmp_path / "study", envs=("gridworld", "smac/3m"), seeds=2)
    for env in ("gridworld", "smac/3m"):
        for seed in (0, 1):
            for step in (30_000, 60_000, 90_000):
                invent_snapshot(folder / f"runs/{env.replace('/', '-')}/emu_qplex/seed{seed}", env, step)
    return folder


def data_of(path):
    text = path.read_text()
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)[1])


# Packing


@quick
@given(arrays(np.float32, st.integers(1, 30), elements=finite))
def test_packed_numbers_come_back_and_quantised_ones_nearly(values):
    np.testing.assert_array_equal(unpacked(packed(values)), values)
    record = quantised(values)
    back, span = unpacked(record), record["high"] - record["low"]
    assert np.abs(back - values).max() <= 0.5001 * span / STEPS + 1e-9 * np.abs(values).max()
    assert back.min() == pytest.approx(values.min()) and back.max() == pytest.approx(values.max())


def test_bytes_lie_as_the_browser_reads_them():
    assert packed(np.array([1, 258], np.uint16)) == {"type": "u2", "data": "AQACAQ=="}  # 01 00 02 01
    assert packed(np.array([1, 0], bool).astype(np.uint8)) == {"type": "u1", "data": "AQA="}


def test_nothing_in_the_data_can_end_the_script():
    text = as_script({"label": "</script><script>alert(1)</script><!--"})
    assert "<" not in text and json.loads(text)["label"].startswith("</script>")


# Curves


def test_thinned_points_are_means_of_their_neighbours():
    steps, values = thinned(np.arange(6.0), np.array([0.0, 2, 4, 4, 9, 1]), 3)
    assert steps.tolist() == [0.5, 2.5, 4.5] and values.tolist() == [1, 4, 5]
    short = thinned(np.arange(3.0), np.ones(3), 3)
    assert short[0].tolist() == [0, 1, 2]


@quick
@given(st.integers(1, 500), st.integers(1, 60))
def test_thinning_keeps_the_mean_and_the_order(count, points):
    values = np.random.default_rng(count).normal(size=count)
    x, y = thinned(np.arange(count, dtype=float), values, points)
    assert len(x) == len(y) == min(count, points) and (np.diff(x) > 0).all()
    edges = np.linspace(0, count, len(x) + 1).round().astype(int)
    np.testing.assert_allclose((y * np.diff(edges)).sum(), values.sum(), atol=1e-9)


def test_curves_hold_every_run_with_shared_steps(study):
    payload = curves_payload(read(study))
    assert [(r["panel"], r["label"], r["seed"]) for r in payload["runs"][:3]] == [
        ("gridworld", "EMU (QPLEX)", 0),
        ("gridworld", "EMU (QPLEX)", 1),
        ("gridworld", "QPLEX", 0),
    ]
    assert len(payload["grids"]) == 2  # of the tests, and of the training rows, which begin later
    assert payload["metrics"][:4] == ["test_win_rate", "test_return", "train_win_rate", "train_return"]
    win = payload["runs"][0]["series"]["test_win_rate"]
    assert len(unpacked(win)) == len(unpacked(payload["grids"][win["grid"]])) == 11
    assert (payload["thinned"], payload["left_out"]) == (0, 0)


def test_a_small_budget_takes_points_first_then_metrics(study):
    runs = read(study)
    roomy = len(json.dumps(curves_payload(runs)))
    for budget in (roomy // 3, roomy // 12):
        payload = curves_payload(runs, budget)
        assert "test_win_rate" in payload["metrics"]
    assert payload["left_out"] > 0


def test_versions_of_an_environment_get_panels_of_their_own(tmp_path):
    write_run(tmp_path / "a", version="1")
    write_run(tmp_path / "b", version="2")
    assert [t.panel for t in read(tmp_path)] == ["gridworld (gridworld 1)", "gridworld (gridworld 2)"]


def test_a_run_keeps_only_what_the_tables_need_in_memory(study):
    shown = read(study)[0]
    assert {name for row in shown.run.rows for name in row} == curves.SUMMARISED
    assert "memory_size" in shown.series


def test_what_decides_on_the_tasks_comes_first(tmp_path):
    write_run(tmp_path / "a" / "x", "td3", "gymnasium:Hopper-v4", has_goal=False)
    assert curves_payload(read(tmp_path / "a"))["metrics"][0] == "test_return"
    write_run(tmp_path / "a" / "y", "qmix", "gridworld")
    runs = read(tmp_path / "a")
    assert curves_payload(runs)["metrics"][:2] == ["score", "test_return"]
    assert curves.score_metrics(runs) == {"gymnasium:Hopper-v4": "test_return", "gridworld": "test_win_rate"}


def test_a_broken_run_is_named_and_does_not_cost_the_page(tmp_path):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad") / "config.json").write_text("{")
    odd = {"packages": 3, "command": 5, "git_commit": [], "env": {"name": "gridworld", "version": "1"}}
    (write_run(tmp_path / "odd") / "meta.json").write_text(json.dumps(odd))
    heard: list[str] = []
    path = write_report(tmp_path, warn=heard.append)
    assert len(heard) == 1 and "bad" in heard[0] and "2 runs" in path.read_text()
    with pytest.raises(EmuError, match="None of the runs"):
        write_report(tmp_path / "bad")


def test_a_report_runs_nobodys_code(tmp_path):
    folder = write_run(tmp_path / "a", "emu_qplex", memory=True)
    invent_snapshot(folder, "gridworld", 100)
    config = json.loads((folder / "config.json").read_text())
    payload = {"env": "os:system", "env_args": {"command": f"touch {tmp_path / 'ran'}"}}
    (folder / "config.json").write_text(json.dumps(config | payload))
    heard: list[str] = []
    (shown,) = data_of(write_report(tmp_path, warn=heard.append))["memories"]["runs"]
    assert shown["scene"] is None  # its memory is shown, but not drawn
    shutil.rmtree(folder / "snapshots")
    (folder / "checkpoints").mkdir()
    assert data_of(write_report(tmp_path, warn=heard.append))["memories"]["runs"] == []
    assert str(folder) in heard[-1] and "not shown" in heard[-1] and not (tmp_path / "ran").exists()


# Summary and settings


def verdict_of(tmp_path, first, second, env="gridworld"):
    for label, ends in (("emu_qmix", first), ("qmix", second)):
        for seed, end in enumerate(ends):
            points = ((0, 0.0), (100, end))
            has_goal = None if env == "gridworld" else False
            write_run(tmp_path / label / str(seed), label, env, seed, points=points, has_goal=has_goal)
    return re.search(r'class="verdict">(.*?)</p>', summary_html(read(tmp_path)), re.S)[1]


def test_the_verdict_says_who_leads_and_by_how_much(tmp_path):
    text = verdict_of(tmp_path, [1.0, 0.8, 1.0, 0.9, 0.8], [0.2, 0.4, 0.2, 0.3, 0.4])
    assert "<b>EMU (QMIX)</b> leads <b>QMIX</b> by 0.300 [0.2" in text and "in overall win rate" in text
    assert "every seed of the one beats every seed of the other." in text and "do not tell them apart" not in text


def test_the_verdict_says_when_seeds_do_not_tell_them_apart(tmp_path):
    text = verdict_of(tmp_path, [1.0, 0.0, 0.5, 1.0, 0.0], [0.5, 0.25, 0.5, 0.6, 0.4])
    assert "do not tell them apart" in text and "leads" not in text


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_below_five_seeds_nobody_leads_and_there_is_no_interval(tmp_path, seeds):
    text = verdict_of(tmp_path, [1.0] * seeds, [0.5, 0.4, 0.45, 0.5][:seeds])
    assert "<b>EMU (QMIX)</b> is 0." in text and "may be chance" in text
    assert "leads" not in text and "[" not in text
    html = summary_html(read(tmp_path))
    assert 'class="interval"' not in html and html.count("<u ") == 2 * seeds and ">leads<" not in html


def test_ranks_are_by_the_whole_of_training_and_not_by_the_last_evaluation(tmp_path):
    write_run(tmp_path / "a", "emu_qmix", points=((0, 0.0), (50, 1.0), (100, 0.5)))
    write_run(tmp_path / "b", "qmix", points=((0, 0.0), (50, 0.0), (100, 1.0)))
    html = summary_html(read(tmp_path))
    assert "<b>EMU (QMIX)</b> is 0.375 above <b>QMIX</b> in overall win rate" in html
    assert html.index("<tr><th>EMU (QMIX)</th>") < html.index("<tr><th>QMIX</th>")


def test_without_a_goal_the_verdict_is_about_returns(tmp_path):
    text = verdict_of(tmp_path, [30.0, 20.0], [10.0, 20.0], "gymnasium:Hopper-v4")
    assert "is 50.00 above <b>QMIX</b> in overall return" in text and "win rate" not in text
    assert "win rate" not in summary_html(read(tmp_path))


def test_nobody_is_above_by_nothing(tmp_path):
    for label, end in (("emu_qmix", 100_000), ("qmix", 100_040)):  # evaluations a few steps apart: overall 0.0001 apart
        points = ((0, 0.0), (50_000, 0.5), (end, 1.0), (200_000, 1.0))
        write_run(tmp_path / label, label, points=points)
    assert "have the same overall win rate" in summary_html(read(tmp_path))


def test_training_episodes_stand_beside_the_greedy_ones(tmp_path):
    write_run(tmp_path / "a", "qmix")
    html = summary_html(read(tmp_path))
    assert "<th>in training</th>" in html and "<td>0.800</td>" in html


def test_over_all_environments_only_where_every_curve_has_runs(study):
    assert "All environments" in summary_html(read(study))
    shutil.rmtree(study / "runs/smac-3m/qplex")
    assert "no comparison over all" in summary_html(read(study))


def test_runs_without_evaluations_are_counted_not_hidden(tmp_path):
    write_run(tmp_path / "a")
    run = write_run(tmp_path / "b", seed=1)
    (run / "metrics.jsonl").write_text('{"step": 5, "loss": 1.0}\n')
    assert "1 run without any evaluation" in summary_html(read(tmp_path))


def test_settings_that_differ_are_listed(study):
    assert differing({"a": {"x": 1, "y": [1], "seed": 0}, "b": {"x": 2, "y": [1], "seed": 1}}) == ["x"]
    html = settings_html(read(study), study)
    assert "memory.use" in html and "runs/gridworld/emu_qplex/seed0" in html and str(study) not in html


# The memory


def test_principal_components_of_a_tilted_line():
    along = np.array([-2.0, -1, 0, 1, 2])
    keys = np.stack([3 * along, 4 * along, 0 * along], axis=1) + 7
    flat, shares = principal_components(keys)
    np.testing.assert_allclose(flat[:, 0], 5 * along, atol=1e-9)
    np.testing.assert_allclose(flat[:, 1], 0, atol=1e-9)
    assert shares == pytest.approx([1, 0])


def test_keys_of_one_dimension_and_equal_keys_still_have_a_map():
    assert principal_components(np.arange(4.0)[:, None])[0].shape == (4, 2)
    flat, shares = principal_components(np.ones((3, 4)))
    assert (flat == 0).all() and shares == [0, 0]


def test_all_snapshots_share_one_map():
    keys = np.random.default_rng(0).normal(size=(30, 4))
    together = project([keys[:10], keys[10:]], "pca")["PCA"][0]
    whole = project([keys], "pca")["PCA"][0][0]
    np.testing.assert_allclose(np.concatenate(together), whole)


def test_t_sne_comes_beside_pca_if_installed():
    pytest.importorskip("openTSNE")
    keys = np.random.default_rng(0).normal(size=(40, 4))
    maps = project([keys[:30], keys[30:]], "tsne")
    assert list(maps) == ["PCA", "t-SNE"] and [part.shape for part in maps["t-SNE"][0]] == [(30, 2), (10, 2)]


def test_a_snapshot_arrives_with_its_values_and_drawings(study):
    payload = memories_payload(read(study), "pca", False, no_warning)
    assert [(r["panel"], r["seed"]) for r in payload["runs"]] == [
        ("gridworld", 0),
        ("smac/3m", 0),
        ("gridworld", 1),
        ("smac/3m", 1),
    ]
    run = payload["runs"][0]
    shot = run["snapshots"][1]
    assert (shot["step"], shot["size"], shot["count"]) == (60_000, 600, 60)
    assert unpacked(shot["memories"]["visits"]).tolist() == list(range(1, 61))
    drawn = unpacked(shot["memories"]["drawn"]).reshape(60, 2, 4)
    assert drawn[0].tolist() == [[11, 12, 255, 0], [245, 244, 255, 0]]  # upper left and lower right of 12 x 11 cells
    assert [f["name"] for f in payload["runs"][1]["scene"]["figures"]] == ["marine"] * 6


def test_a_small_budget_takes_fewer_snapshots_and_memories(study):
    runs = read(study)
    # a row takes 27 + 2 * 4 bytes on the grid, 27 + 6 * 4 in the battle; 3 * (100 + 150) * (35 + 51) * 4/3 = 86,000
    for budget, seeds, shots, rows in ((memories.BUDGET, 2, 3, 60), (90_000, 1, 3, 60), (20_000, 1, 1, 50)):
        payload = memories_payload(runs, "pca", False, no_warning, budget)
        assert [[s["count"] for s in r["snapshots"]] for r in payload["runs"]] == [[rows] * shots] * 2 * seeds
        assert [r["snapshots"][-1]["step"] for r in payload["runs"]] == [90_000] * 2 * seeds
        assert payload["left_out"] == 4 - 2 * seeds


def test_every_curve_shows_one_seed_before_any_shows_two(study, monkeypatch):
    monkeypatch.setattr(memories, "RUNS", 3)
    payload = memories_payload(read(study), "pca", False, no_warning)
    assert [(r["panel"], r["seed"]) for r in payload["runs"]] == [("gridworld", 0), ("smac/3m", 0), ("gridworld", 1)]
    assert payload["left_out"] == 1


def test_a_damaged_snapshot_is_named_and_left_out(study):
    flip_byte(snapshot_paths(study / "runs/gridworld/emu_qplex/seed0")[1], 0.2)
    heard: list[str] = []
    payload = memories_payload(read(study), "pca", False, heard.append)
    assert len(payload["runs"][0]["snapshots"]) == 2 and "damaged" in heard[0]


# The page


def test_the_page_needs_no_other_file_and_no_network(study):
    path = write_report(study, warn=no_warning)
    text = path.read_text()
    assert path == study / "report.html" and path.stat().st_size < 2_000_000
    assert "@@" not in text.split('<script id="data"')[0]
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text) and "@import" not in text and "fetch(" not in text
    assert "https://" not in text and "http://" not in text
    assert "A synthetic study" in text and "at laptop scale" in text
    assert data_of(path)["labels"] == ["EMU (QPLEX)", "QPLEX"]


def test_the_same_runs_give_the_same_page(study, tmp_path):
    first, second = (write_report(study, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_strange_names_cannot_break_the_page(tmp_path):
    folder = make_study(tmp_path / "study", labels={"<b>&</script>": ("qmix", {})}, seeds=1, memory=False)
    text = write_report(folder).read_text()
    assert "<b>&</script>" not in text and "&lt;b&gt;&amp;" in text


def test_a_run_without_snapshots_gets_one_from_its_checkpoint(tmp_path):
    train(tiny_config("emu_qmix", **{"memory.snapshot_interval": 0, "steps": 200}), tmp_path / "run", silent())
    without = write_report(tmp_path, tmp_path / "a.html", take_snapshots=False)
    assert not data_of(without)["memories"]["runs"] and not snapshot_paths(tmp_path / "run")
    (run,) = data_of(write_report(tmp_path, tmp_path / "b.html", warn=no_warning))["memories"]["runs"]
    assert len(run["snapshots"]) == 1 == len(snapshot_paths(tmp_path / "run"))


def test_bad_requests_are_explained(tmp_path, capsys):
    with pytest.raises(EmuError, match="does not exist"):
        write_report(tmp_path / "nowhere")
    write_run(tmp_path / "run")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.pdf")]) == 2
    assert "an .html file" in capsys.readouterr().err


def test_the_command_says_where_the_page_is(study, tmp_path, capsys):
    assert main(["report", str(study), "--out", str(tmp_path / "page.html")]) == 0
    assert "page.html: 0." in capsys.readouterr().out.replace("\n", "")


def test_many_long_runs_stay_within_the_limit(tmp_path):
    """400 runs of 2,000 rows and 40 metrics, which on disk are half a gigabyte: the page is judged by its payload."""
    one = read(write_run(tmp_path / "run").parent)[0]
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(900, 1100, 2_000)).astype(float)
    series = {f"metric_{k}": (steps + k % 2, rng.normal(size=2_000)) for k in range(37)}
    series |= {name: (steps, rng.normal(size=2_000)) for name in curves.ALWAYS}
    many = [
        curves.ReportRun(one.run._replace(seed=k), one.panel, {n: (s + k, v) for n, (s, v) in series.items()}, {})
        for k in range(400)
    ]
    payload = curves_payload(many)
    assert len(as_script(payload)) <= curves.BUDGET * 1.02
    assert len(payload["runs"]) == 400 and "test_win_rate" in payload["metrics"]
    assert curves.BUDGET + memories.BUDGET <= 0.9 * LIMIT


def test_every_script_of_the_template_is_used():
    template = page.resources.files("emu.study.report") / "template"
    scripts = {item.name.removesuffix(".js") for item in template.iterdir() if item.name.endswith(".js")}
    assert scripts == set(page.SCRIPTS)
    assert ENOUGH_SEEDS == 5  # the page says "five" in words, chart.js as a number
    assert f"ENOUGH_SEEDS = {ENOUGH_SEEDS};" in (template / "chart.js").read_text()
