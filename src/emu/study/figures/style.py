"""The common look of all figures: panels, colours, axes, the note that says how large a study was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import EmuError
from emu.files import writing
from emu.study.analysis.names import short_steps
from emu.study.analysis.runs import RETURN, WIN_RATE, Run

LABELS = {
    WIN_RATE: "win rate, greedy evaluation",
    RETURN: "return, greedy evaluation",
    "test_length": "episode length, greedy evaluation",
    "train_win_rate": "win rate of training episodes",
    "train_return": "return of training episodes",
    "train_length": "length of training episodes",
    "memory_mean_visits": "mean visits of an entry",
    "memory_hit_rate": "states that matched an entry",
    "memory_recall_rate": "recalls that found an entry",
    "memory_share_desirable": "desirable entries",
    "memory_size": "entries",
}
PICTURES = (".png", ".pdf", ".svg")
COLOURS = ("#2f6db5", "#c8553d", "#3c8d5a", "#8a5aa8", "#c49a1a", "#4f4f4f", "#2aa7a0", "#d06a9c")
STYLES = ("-", "--", (0, (6, 1, 1, 1)), "-.")  # dots are for training episodes
PANEL = (4.2, 3.2)  # inches, of one panel among several
ALONE = (7.0, 4.2)  # of a figure of one panel
LAPTOP = "laptop scale: fewer steps and seeds than in the paper"
SMALL: dict[str, Any] = {"fontsize": 7.5, "color": "#777777", "style": "italic"}


def note_of(runs: Sequence[Run], *others: str) -> str:
    """What a figure must say about itself."""
    laptop = LAPTOP if any(run.scale == "laptop" for run in runs) else ""
    return " · ".join(text for text in (laptop, *others) if text)


def require_picture(out: Path) -> None:
    """Refuse an unknown kind of picture before anything is computed."""
    if out.suffix not in PICTURES:
        raise EmuError(f"A picture is a .png, .pdf or .svg file, not '{out.name}'.")


@contextmanager
def figure(
    out: Path,
    note: str = "",
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float] | None = None,
    heights: Sequence[float] | None = None,
) -> Iterator[tuple[Any, np.ndarray]]:
    """A figure and its (rows, columns) axes; saved when the block ends, with a note below.

    `size` is in inches; `heights` are those of the rows, in proportion.
    """
    require_picture(out)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    width, height = size or (ALONE if rows == columns == 1 else (PANEL[0] * columns, PANEL[1] * rows))
    look: dict[str, Any] = {"dpi": 150, "layout": "constrained", "squeeze": False, "height_ratios": heights}
    made, axes = plt.subplots(rows, columns, figsize=(width, height), **look)
    try:
        yield made, axes
        if note and not made.legends:  # else the legend says it
            made.supxlabel(note, x=0.99, ha="right", **SMALL)
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            made.savefig(out)
    finally:
        plt.close(made)


def grid_of(panels: int) -> tuple[int, int]:
    """Rows and columns for a number of panels: three side by side at most."""
    columns = panels if panels <= 3 else 2 if panels == 4 else 3
    return -(-panels // columns), columns


def hide_rest(axes: np.ndarray, used: int) -> None:
    for empty in axes.flat[used:]:
        empty.set_visible(False)


def line_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style by label; styles change once the colours are used up."""
    return {
        label: {"color": COLOURS[n % len(COLOURS)], "linestyle": STYLES[n // len(COLOURS) % len(STYLES)]}
        for n, label in enumerate(labels)
    }


def shades(count: int) -> list[Any]:
    """Colours for ordered values, from dark to light."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.05 + 0.8 * n / max(count - 1, 1)) for n in range(count)]


def plain(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def bounds(metric: str) -> tuple[float, float]:
    """Between which numbers a metric can lie."""
    if metric.endswith("rate") or "share" in metric:
        return 0.0, 1.0
    if metric.endswith(("length", "visits", "size", "bytes", "episodes", "loss", "_abs", "_norm", "_std")):
        return 0.0, np.inf
    return -np.inf, np.inf


def over_steps(axes: Any, metric: str, title: str, smooth: int = 1) -> None:
    """Axes of a metric over environment steps."""
    plain(axes)
    axes.xaxis.set_major_formatter(lambda x, _: short_steps(x) if x else "0")
    name = LABELS.get(metric, metric) + (f"\n(mean of the last {smooth} values)" if smooth > 1 else "")
    axes.set(xlabel="environment steps", ylabel=name, title=title)
    if metric.endswith("rate"):
        axes.set_ylim(-0.03, 1.03)
    elif "share" in metric:
        axes.set_ylim(bottom=0)


def legend(made: Any, axes: np.ndarray, note: str = "") -> None:
    """One legend for all panels: inside a single one, below several."""
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    if len(made.axes) == 1:
        axes.flat[0].legend(handles.values(), handles.keys(), frameon=False)
        return
    widest = 0.7 + 0.07 * max(map(len, handles))  # inches: a line and the letters beside it
    columns = max(1, min(len(handles), int(made.get_figwidth() / widest)))
    place: dict[str, Any] = {"loc": "outside lower left", "ncols": columns, "frameon": False, "fontsize": 9}
    below = made.legend(handles.values(), handles.keys(), title=note or None, alignment="left", **place)
    below.get_title().set(**SMALL)
