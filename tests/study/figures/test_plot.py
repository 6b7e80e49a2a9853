"""Figures: a file comes out of each kind, what is drawn is right where it can be read off, what makes no sense is
refused."""

import numpy as np
import pytest
from PIL import Image

from emu.errors import EmuError
from emu.study.analysis.runs import load_run, load_runs
from emu.study.figures import comparison, curves
from emu.study.figures.plot import Options, draw, plot_curves
from emu.study.figures.style import NOTE, figure, grid_of, looks
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


def test_a_learning_curve_shows_mean_and_spread_over_seeds(tmp_path):
    points = [((0, 0.0), (100, 0.25)), ((0, 0.0), (100, 0.75))]
    runs = [load_run(write_run(tmp_path / str(n), seed=n, points=p)) for n, p in enumerate(points)]
    with figure(tmp_path / "x.png", runs) as (_, axes):
        curves.draw_band(axes[0, 0], runs, "test_win_rate", "std", "qmix", {"color": "k"})
        (line,) = axes[0, 0].get_lines()
        np.testing.assert_allclose(line.get_xydata(), [[0, 0], [100, 0.5]])
        band = axes[0, 0].collections[0].get_paths()[0].get_extents()
        deviation = np.sqrt(2 * 0.25**2)  # of 0.25 and 0.75, n - 1
        assert (band.ymin, band.ymax) == pytest.approx((0, 0.5 + deviation))
        curves.draw_band(axes[0, 0], runs, "test_win_rate", "ci", "qmix", {"color": "k"})
        assert axes[0, 0].collections[1].get_paths()[0].get_extents().ymax == pytest.approx(0.75)
    with figure(tmp_path / "z.png", runs) as (_, axes):
        runs[0] = load_run(write_run(tmp_path / "longer", seed=0, points=(*points[0], (200, 1.0))))
        curves.draw_band(axes[0, 0], runs, "test_win_rate", "seeds", "qmix", {"color": "k"})
        mean, *seeds = axes[0, 0].get_lines()
        np.testing.assert_allclose(mean.get_xydata(), [[0, 0], [100, 0.5]])  # as far as both got
        assert [len(line.get_xdata()) for line in seeds] == [3, 2] and not axes[0, 0].collections
        assert axes[0, 0].get_legend_handles_labels()[1] == ["qmix"]
    with pytest.raises(EmuError, match="Did you mean 'std'"), figure(tmp_path / "y.png", runs) as (_, axes):
        curves.draw_band(axes[0, 0], runs, "test_win_rate", "sdt", "qmix", {"color": "k"})
    assert not (tmp_path / "y.png").exists()


@pytest.mark.parametrize(("scale", "said"), [("laptop", True), ("paper", False), ("", False)])
@pytest.mark.parametrize("envs", [("gridworld",), ("gridworld", "smac/3m")])
def test_a_laptop_study_says_so_on_the_figure(tmp_path, scale, said, envs):
    folder = make_study(tmp_path, envs=envs, scale=scale, seeds=1)
    for kind in ("curves", "improvement"):
        picture = draw(kind, load_runs([folder]), tmp_path / "x.svg", Options())
        assert ("<!-- " + NOTE in picture.read_text()) == said


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
    assert curves.the_parameter(runs) == "memory.radius"
    variants = curves.by_variant(runs, "memory.radius")
    assert {name: len(group) for name, group in variants.items()} == {"random": 2, "dcae": 2}
    assert list(curves.by_value(variants["dcae"], "memory.radius")) == [1.3e-5, 1.3e-3]
    two = {"a": ("emu_qplex", {"memory.radius": 1.0, "learner.gamma": 0.5}), "b": ("emu_qplex", {})}
    with pytest.raises(EmuError, match=r"--parameter\. Varied: learner\.gamma, memory\.radius"):
        curves.the_parameter(load_runs([make_study(tmp_path / "b", labels=two, seeds=1)]))


def test_panels_labels_and_titles():
    assert [grid_of(n) for n in (1, 2, 3, 4, 5, 7)] == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    assert len({tuple(look.items()) for look in looks(map(str, range(16))).values()}) == 16


def test_comparisons_say_what_they_are_made_over(tmp_path):
    runs = load_runs([make_study(tmp_path, envs=("gridworld", "smac/3m"), seeds=1)])
    assert comparison.over_what(runs) == "2 environments"
    assert comparison.over_what(runs[:1]) == "gridworld"
