"""Figures: a file comes out of each kind, what is drawn is right where it can be read off, what makes no sense is
refused."""

import numpy as np
import pytest
import scipy.stats
from PIL import Image

from emu.errors import EmuError
from emu.study.analysis.runs import load_run, load_runs
from emu.study.figures import comparison, parameter
from emu.study.figures.bands import TRAINING, band_note, draw_curve, draw_curves, draw_score, named
from emu.study.figures.options import Options
from emu.study.figures.plot import KINDS, draw, plot_curves
from emu.study.figures.style import LAPTOP, bounds, figure, grid_of, line_styles
from study.synthetic import make_study, write_run

RADII = {
    f"{kind} {radius}": ("emu_qplex", {"memory.radius": radius, "memory.embedder.kind": kind})
    for kind in ("random", "dcae")
    for radius in (1.3e-5, 1.3e-3)
}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_comes_out(tmp_path, suffix):
    runs = [write_run(tmp_path / f"{algo}{seed}", algo, seed=seed) for algo in ("vdn", "qmix") for seed in range(2)]
    path = plot_curves(runs, tmp_path / "deep" / f"curves.{suffix}")
    assert path.stat().st_size > 5_000
    if suffix == "png":
        assert Image.open(path).size == (1050, 630)


@pytest.mark.parametrize("kind", ["curves", "ablation", "recall", "profile", "improvement", "iqm"])
def test_every_kind_of_figure_takes_a_study_of_two_environments(tmp_path, kind):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=2)])
    assert draw(kind, runs, tmp_path / "x.png", Options(title="A title")).stat().st_size > 10_000


def test_a_study_of_one_parameter_takes_two_embedders(tmp_path):
    runs = load_runs([make_study(tmp_path, labels=RADII, seeds=2)])
    assert draw("parameter", runs, tmp_path / "x.png").stat().st_size > 10_000


@pytest.fixture
def axes(tmp_path):
    with figure(tmp_path / "x.png") as (_, axes):
        yield axes[0, 0]


def seeds_of(tmp_path, *ends, length=100):
    """Runs that rise evenly from 0 to the given ends."""
    points = [((0, 0.0), (length, end)) for end in ends]
    return [load_run(write_run(tmp_path / f"{n}", seed=n, points=p)) for n, p in enumerate(points)]


def drawn(axes, runs, **options):
    draw_curve(axes, runs, "test_win_rate", Options(**options), "qmix", {"color": "k"})
    return axes.get_lines(), axes.collections


def test_one_seed_is_a_thin_line_and_no_mean(tmp_path, axes):
    (line,), bands = drawn(axes, seeds_of(tmp_path, 0.5))
    assert line.get_linewidth() < 1 and not bands


@pytest.mark.parametrize("band", ["auto", "ci", "std", "seeds"])
def test_below_five_seeds_the_seeds_are_drawn_and_no_interval(tmp_path, axes, band):
    (mean, *seeds), bands = drawn(axes, seeds_of(tmp_path, 0.2, 0.4, 0.6, 0.8), band=band)
    np.testing.assert_allclose(mean.get_xydata(), [[0, 0], [100, 0.5]])
    assert len(seeds) == 4 and not bands
    assert mean.get_linewidth() > 2 * max(line.get_linewidth() for line in seeds)
    assert axes.get_legend_handles_labels()[1] == ["qmix"]


def test_five_seeds_are_a_mean_in_its_interval(tmp_path, axes):
    ends = np.array([0.2, 0.4, 0.5, 0.6, 0.8])
    lines, (band,) = drawn(axes, seeds_of(tmp_path, *ends))
    assert len(lines) == 1
    extent = band.get_paths()[0].get_extents()
    theirs = scipy.stats.bootstrap((ends,), np.mean, method="percentile", rng=np.random.default_rng(0))
    assert extent.ymax == pytest.approx(theirs.confidence_interval.high, abs=0.02) and extent.ymin == 0


def test_a_band_stays_within_what_a_win_rate_can_be(tmp_path, axes):
    ends = [1.0, 1.0, 1.0, 0.5, 1.0]
    _, (band,) = drawn(axes, seeds_of(tmp_path, *ends), band="std")
    assert np.mean(ends) + np.std(ends, ddof=1) > 1 and band.get_paths()[0].get_extents().ymax == 1
    assert bounds("memory_share_desirable") == (0, 1) and bounds("test_length") == (0, np.inf)
    assert bounds("test_return") == (-np.inf, np.inf)


def test_a_mean_goes_as_far_as_all_seeds_and_each_seed_to_its_own_end(tmp_path, axes):
    long = load_run(write_run(tmp_path / "long", seed=9, points=((0, 0.0), (100, 0.25), (200, 1.0))))
    (mean, *seeds), _ = drawn(axes, [long, *seeds_of(tmp_path, 0.75)])
    np.testing.assert_allclose(mean.get_xydata(), [[0, 0], [100, 0.5]])
    assert [line.get_xdata()[-1] for line in seeds] == [200, 100]


def test_smoothing_and_training_episodes_can_be_asked_for(tmp_path, axes):
    runs = seeds_of(tmp_path, 0.5, 1.0)
    lines, _ = drawn(axes, runs, smooth=2)
    np.testing.assert_allclose(lines[0].get_ydata(), [0, 0.375])
    draw_curves(axes, runs, {"qmix": runs}, "test_win_rate", Options(training=True), line_styles(["qmix"]))
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    np.testing.assert_allclose(dotted[0].get_xydata(), [[100, 0.8 * 0.75]])  # training rows begin later
    assert TRAINING in axes.get_legend_handles_labels()[1]


def test_an_unknown_band_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(EmuError, match="Did you mean 'std'"), figure(tmp_path / "y.png") as (_, axes):
        drawn(axes[0, 0], seeds_of(tmp_path, 0.5), band="sdt")
    assert not (tmp_path / "y.png").exists()


def test_legends_have_readable_names_and_seed_counts(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=2)])
    assert named("emu_qplex", runs[:2]) == "EMU (QPLEX), 2 seeds"
    assert named("emu_qplex", [runs[0], *runs[4:6]]) == "EMU (QPLEX), 1–2 seeds"


def test_a_figure_says_what_lies_around_its_means(tmp_path):
    few = load_runs([make_study(tmp_path / "few", seeds=2)])
    many = load_runs([make_study(tmp_path / "many", seeds=5)])
    assert band_note(few, "auto") == "thin: seeds, thick: their mean"
    assert band_note(many, "auto") == "shade: 95 % interval of the mean"
    assert band_note(many, "std") == "shade: one standard deviation over seeds"
    assert band_note(load_runs([tmp_path / "few/runs/gridworld/qplex/seed0"]), "auto") == ""


def test_a_bar_has_an_interval_from_five_seeds_on_and_else_its_seeds(tmp_path):
    for seeds, dots in ((np.array([0.1, 0.3, 0.5, 0.7, 0.9]), 0), (np.array([0.1, 0.9]), 2), (np.ones(5), 5)):
        with figure(tmp_path / "x.png") as (_, axes):
            draw_score(axes[0, 0], 0, seeds, "k", 0.6)
            shown = [c for c in axes[0, 0].collections if len(c.get_offsets()) == len(seeds)]
            assert sum(len(c.get_offsets()) for c in shown) == dots
            assert bool(axes[0, 0].containers[1:]) == (dots == 0)  # an error bar is a container of its own


@pytest.mark.parametrize("seeds", [1, 2, 5])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("parameter", "recall", "embedding")])
def test_tasks_without_a_goal_are_drawn_by_their_return(tmp_path, kind, seeds):
    labels = {"emu_td3": ("emu_td3", {}), "td3": ("td3", {})}
    folder = make_study(tmp_path, ("gymnasium:Hopper-v4",), labels, seeds, memory=False, has_goal=False)
    text = draw(kind, load_runs([folder]), tmp_path / "x.svg").read_text()
    assert "return" in text and "win rate" not in text
    assert ("95 %" in text) == (seeds == 5)
    assert f"{seeds} seed" in text


@pytest.mark.parametrize(("scale", "said"), [("laptop", True), ("paper", False), ("", False)])
@pytest.mark.parametrize("envs", [("gridworld",), ("gridworld", "smac/3m")])
def test_a_laptop_study_says_so_on_the_figure(tmp_path, scale, said, envs):
    folder = make_study(tmp_path, envs=envs, scale=scale, seeds=1)
    for kind in ("curves", "improvement"):
        picture = draw(kind, load_runs([folder]), tmp_path / "x.svg", Options())
        assert ("<!-- " + LAPTOP in picture.read_text()) == said


def test_versions_of_one_environment_are_not_mixed_by_accident(tmp_path):
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", version="2")]
    with pytest.raises(EmuError, match="--mix-versions"):
        plot_curves(runs, tmp_path / "x.png")
    assert plot_curves(runs, tmp_path / "x.png", mix_versions=True).exists()
    for kind in ("ablation", "profile", "improvement", "iqm"):
        with pytest.raises(EmuError, match="--mix-versions"):
            draw(kind, load_runs([tmp_path]), tmp_path / "y.png")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    folder = make_study(tmp_path, seeds=1, memory=False)
    runs = load_runs([folder])
    for kind, message in (
        ("recall", "logged a memory"),
        ("parameter", "no parameter to study"),
        ("curve", "Did you mean 'curves'"),
    ):
        with pytest.raises(EmuError, match=message):
            draw(kind, runs, tmp_path / "x.png")
    with pytest.raises(EmuError, match="two labels"):
        draw("improvement", runs[:1], tmp_path / "x.png")
    with pytest.raises(EmuError, match=r"Did you mean 'memory\.radius'"):
        draw("parameter", runs, tmp_path / "x.png", Options(parameter="memory.radios"))
    with pytest.raises(EmuError, match="Did you mean 'test_return'"):
        draw("curves", runs, tmp_path / "x.png", Options(metric="test_retrun"))
    with pytest.raises(EmuError, match=r"\.png, \.pdf or \.svg"):
        draw("curves", runs, tmp_path / "x.xyz")
    assert not (tmp_path / "x.png").exists()


def test_the_parameter_is_found_or_asked_for(tmp_path):
    runs = load_runs([make_study(tmp_path / "a", labels=RADII, seeds=1)])
    assert parameter.the_parameter(runs) == "memory.radius"
    variants = parameter.by_variant(runs, "memory.radius")
    assert {name: len(group) for name, group in variants.items()} == {"random projection": 2, "dCAE": 2}
    assert list(parameter.by_value(variants["dCAE"], "memory.radius")) == [1.3e-5, 1.3e-3]
    two = {"a": ("emu_qplex", {"memory.radius": 1.0, "learner.gamma": 0.5}), "b": ("emu_qplex", {})}
    with pytest.raises(EmuError, match=r"--parameter\. Varied: learner\.gamma, memory\.radius"):
        parameter.the_parameter(load_runs([make_study(tmp_path / "b", labels=two, seeds=1)]))


def test_panels_labels_and_titles():
    assert [grid_of(n) for n in (1, 2, 3, 4, 5, 7)] == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    assert len({str(look) for look in line_styles(map(str, range(16))).values()}) == 16


def test_comparisons_say_what_they_are_made_over(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=1)])
    assert comparison.over_what(runs) == "2 environments"
    assert comparison.over_what(runs[:1]) == "gridworld"
