"""The memory's embedding space by t-SNE: 50,000 entries coloured by their return, greedy episodes drawn over them.

The memory is the one in a run's newest checkpoint, the team the run's best. Entries and the states of the episodes are
laid out together; a star marks a state whose nearest entry within the radius is desirable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu import envs
from emu.config import Config
from emu.errors import EmuError
from emu.play.build import recorder
from emu.run.checkpoint import load_embedder
from emu.run.folder import RunFolder
from emu.run.team import load_team
from emu.run.trust import require_registered
from emu.study.analysis.names import readable, short_steps
from emu.study.analysis.projection import tsne
from emu.study.analysis.runs import Run, scale_note
from emu.study.figures.style import figure, grid_of, hide_rest, note_of
from emu.training.memory import TrainingMemory

SAMPLES = 50_000
PANELS = 4  # runs on one figure at most: 50,000 points take three minutes of a processor
TRIES = 8  # episodes among which one that was won and one that was lost are looked for
Layout = Callable[[np.ndarray], np.ndarray]


class Path2D(NamedTuple):
    """A greedy episode in the picture."""

    points: np.ndarray  # (T+1, 2)
    desirable: np.ndarray  # (T+1,) bool
    won: bool


class Cloud(NamedTuple):
    """What one panel shows."""

    points: np.ndarray  # (n, 2)
    returns: np.ndarray  # (n,)
    size: int  # entries of the whole memory
    step: int  # of the checkpoint
    paths: list[Path2D]


def load_memory(run: Path, config: Config) -> tuple[TrainingMemory, int]:
    """The memory and its embedder from a run's newest checkpoint, and the step of it; the run is left alone."""
    if config.memory.use == "none":
        raise EmuError(f"{run} has no episodic memory: {config.algo} keeps none.")
    require_registered(run, config)
    files = RunFolder(run)
    if not (steps := files.checkpoint_steps()):
        raise EmuError(f"{run} has no checkpoint to read a memory from (they are not kept in git): train it again.")
    folder = files.checkpoint(steps[-1])
    keeper = TrainingMemory(config, envs.make(config.env, **config.env_args).spec)
    state, memory = load_embedder(folder, keeper.state)
    keeper.load(memory, state, trainings=0)
    return keeper, steps[-1]


def cloud_of(run: Run, layout: Layout = tsne, samples: int = SAMPLES) -> Cloud:
    """Sampled entries and greedy episodes of one run, laid out in the plane together."""
    keeper, step = load_memory(run.folder, run.config)
    memory = keeper.memory
    if len(memory) < 10:
        raise EmuError(f"The memory of {run.folder} holds {len(memory)} entries: too few for a picture.")
    ids = np.sort(np.random.default_rng(0).choice(len(memory), min(samples, len(memory)), replace=False))
    table = memory.export(ids)
    walks = []
    for won, states in episodes_of(run.folder):
        times = np.arange(len(states), dtype=np.int32)
        answer, _ = memory.peek(states, times)
        walks.append((won, answer))
    points = layout(np.concatenate([table["embedding"], *(answer.embedding for _, answer in walks)]))
    paths, start = [], len(ids)
    for won, answer in walks:
        end = start + len(answer.found)
        paths.append(Path2D(points[start:end], answer.desirable, won))
        start = end
    return Cloud(points[: len(ids)], table["best_return"], len(memory), step, paths)


def episodes_of(run: Path) -> list[tuple[bool, np.ndarray]]:
    """Greedy episodes of a run's best team as (won, (T+1, S) states): one won and one lost, as far as there are."""
    team = load_team(run)
    play = recorder(team.env, team.learner, team.policy, states=True, frames=False)
    chosen: dict[bool, np.ndarray] = {}
    for seed in range(TRIES):
        episode = play(seed)
        assert episode.states is not None
        chosen.setdefault(episode.won, episode.states)
        if len(chosen) == 2:
            break
    return sorted(chosen.items(), reverse=True)


def embeddings(runs: Sequence[Run], out: Path, title: str = "", layout: Layout = tsne) -> Path:
    """A panel per run."""
    if len(runs) > PANELS:
        raise EmuError(f"{len(runs)} runs are too many for one figure: name up to {PANELS} run folders.")
    clouds = [cloud_of(run, layout) for run in runs]
    rows, columns = grid_of(len(runs))
    size = (6.2, 5.2) if len(runs) == 1 else (5.2 * columns, 4.6 * rows)
    with figure(out, note_of(runs), rows, columns, size) as (made, axes):
        for panel, run, cloud in zip(axes.flat, runs, clouds, strict=False):
            _draw(made, panel, cloud)
            count = f"{len(cloud.points):,} of {cloud.size:,} entries at {short_steps(cloud.step)} steps"
            panel.set_title(
                f"{readable(run.label)} on {run.env}, seed {run.seed}\n{count}{scale_note(runs)}", fontsize=10
            )
        hide_rest(axes, len(runs))
        made.suptitle(title or None)
    return out


def _draw(made: Any, axes: Any, cloud: Cloud) -> None:
    order = np.argsort(cloud.returns, kind="stable")  # the best on top
    spots = axes.scatter(
        *cloud.points[order].T, c=cloud.returns[order], s=max(1.0, 12 - len(order) / 2_000), cmap="rainbow_r"
    )
    spots.set(linewidth=0, alpha=0.6, rasterized=True)
    made.colorbar(spots, ax=axes, shrink=0.8, label="best return H")
    for path in cloud.paths:
        _draw_path(axes, path)
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    if cloud.paths:
        axes.legend(loc="best", fontsize=7.5, framealpha=0.85)


def _draw_path(axes: Any, path: Path2D) -> None:
    colour, name = ("#111111", "greedy episode, won") if path.won else ("#888888", "greedy episode, not won")
    axes.plot(*path.points.T, color=colour, linewidth=0.9, alpha=0.8, label=name)
    plain, star = path.points[~path.desirable], path.points[path.desirable]
    axes.scatter(*plain.T, s=14, color=colour, zorder=3)
    axes.scatter(*star.T, s=70, marker="*", color="#ffd400", edgecolor=colour, linewidth=0.7, zorder=4)
    for time in range(0, len(path.points), max(1, len(path.points) // 8)):
        axes.annotate(str(time), path.points[time], xytext=(3, 3), textcoords="offset points", fontsize=7, color=colour)
