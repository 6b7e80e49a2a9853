"""Snapshots for the memory explorer: a flat map of the keys, values, and drawings, thinned to fit.

All snapshots of a run are projected together, so that a place on the map means the same key at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from emu import envs
from emu.envs.protocols import Sketchable
from emu.envs.spec import Sketch
from emu.errors import EmuError
from emu.run.folder import RunFolder
from emu.run.snapshots import Snapshot, read_snapshot, snapshot_paths
from emu.run.trust import require_registered
from emu.study.analysis.projection import principal_components, require_tsne, tsne
from emu.study.analysis.runs import Warn
from emu.study.report.packing import TEXT_PER_BYTE, packed, quantised
from emu.study.report.series import ReportRun

Projection = Literal["pca", "tsne"]
BUDGET = 12_000_000  # characters for all snapshots
RUNS = 24  # explored at most
PLACES = 150  # of an episode at most
SIZES = ((16, 2_000), (12, 1_500), (10, 1_000), (8, 700), (6, 500), (5, 300), (4, 200), (3, 100), (1, 50))
TSNE_FROM = 3  # where SIZES are small enough for t-SNE to take a minute and not ten
ROW_BYTES = 27  # of a memory without its drawing: place 4, key 8, return 4, desirable 1, visits 8, time 2


def memories_payload(
    runs: Sequence[ReportRun], projection: Projection, take: bool, warn: Warn, budget: int = BUDGET
) -> dict[str, Any]:
    """The runs that have a memory to show, with as many snapshots and memories as the budget allows.

    `take`: a run without snapshots gets one from its checkpoint.
    """
    if projection == "tsne":
        require_tsne()
    remembering = [shown for shown in runs if shown.run.config.memory.use != "none"]
    found = [(shown, paths) for shown in remembering if (paths := _paths(shown, take, warn))]
    chosen = _one_seed_of_each_first(found)[:RUNS]
    firsts = len({(shown.panel, shown.run.label) for shown, _ in chosen})
    cost = [_row_bytes(shown) for shown, _ in chosen]
    sizes = SIZES if projection == "pca" else SIZES[TSNE_FROM:]
    count, shots, rows = _fitting([len(paths) for _, paths in chosen], cost, firsts, budget, sizes)
    chosen = chosen[:count]
    records = [_run(shown, _evenly(paths, shots), rows, projection, warn) for shown, paths in chosen]
    return {"runs": [record for record in records if record], "left_out": len(found) - len(chosen)}


def _paths(shown: ReportRun, take: bool, warn: Warn) -> list[Path]:
    paths = snapshot_paths(shown.run.folder)
    if paths or not take or not RunFolder(shown.run.folder).was_trained_here():
        return paths
    if shown.run.env not in envs.registered():
        warn(f"The memory of {shown.run.folder} is not shown: no snapshots, and its environment is not registered.")
        return []
    from emu.training.snapshots import snapshot_of  # which needs JAX: only where there is something to take

    try:
        return [snapshot_of(shown.run.folder)]
    except EmuError as error:
        warn(f"The memory of {shown.run.folder} is not shown: {error}")
        return []


def _one_seed_of_each_first(found: list[tuple[ReportRun, list[Path]]]) -> list[tuple[ReportRun, list[Path]]]:
    """First a run of every curve, then a second one of each, and so on."""
    seen: dict[tuple[str, str], int] = {}
    turns = []
    for item in found:
        name = (item[0].panel, item[0].run.label)
        seen[name] = seen.get(name, 0) + 1
        turns.append(seen[name])
    return [item for _, item in sorted(zip(turns, found, strict=True), key=lambda pair: pair[0])]


def _row_bytes(shown: ReportRun) -> float:
    """Of a memory, drawing included; the environment alone tells how many figures there are."""
    scene = _sketch(shown, np.zeros((1, 0), np.float16), lambda _: None)
    return ROW_BYTES + (4 * scene.figures.shape[1] if scene else 0)


def _fitting(
    shots: list[int], row_bytes: list[float], firsts: int, budget: int, sizes: Sequence[tuple[int, int]]
) -> tuple[int, int, int]:
    """Runs, snapshots a run and memories a snapshot: the first choice within the budget, the smallest if none is.

    Second seeds of a curve go before its snapshots become poorer.
    """
    for most, rows in sizes:
        each = [min(n, most) * (rows + PLACES) * cost * TEXT_PER_BYTE for n, cost in zip(shots, row_bytes, strict=True)]
        for runs in (len(each), firsts):
            if sum(each[:runs]) <= budget:
                return runs, most, rows
    return firsts, *sizes[-1]


def _evenly(items: list[Any], count: int) -> list[Any]:
    """So many of a list, the last one always, the first one if there is room for two."""
    if count == 1:
        return items[-1:]
    return [items[k] for k in np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))]


def _run(shown: ReportRun, paths: list[Path], rows: int, projection: Projection, warn: Warn) -> dict[str, Any] | None:
    snapshots = []
    for path in paths:
        try:
            snapshots.append(_smaller(read_snapshot(path), rows))
        except EmuError as error:
            warn(f"{error} It is left out of the report.")
    snapshots = [s for s in snapshots if len(s.memories.key)]
    if not snapshots:
        return None
    maps = project([s.memories.key for s in snapshots] + [s.episode.key for s in snapshots], projection)
    scene, drawings = _drawings(shown, snapshots, warn)
    shots = []
    for k, shot in enumerate(snapshots):
        places = {name: (flat[k], flat[k + len(snapshots)]) for name, (flat, _) in maps.items()}
        shots.append(_shot(shot, places, *drawings[k]))
    return {
        "panel": shown.panel,
        "label": shown.run.label,
        "seed": shown.run.seed,
        "scene": scene,
        "axes": {name: axes for name, (_, axes) in maps.items()},
        "snapshots": shots,
    }


def _smaller(shot: Snapshot, rows: int) -> Snapshot:
    kept = np.unique(np.linspace(0, len(shot.memories.key) - 1, min(rows, len(shot.memories.key))).round().astype(int))
    places = _evenly(list(range(len(shot.episode.key))), PLACES)
    memories = shot.memories._make(column[kept] for column in shot.memories)
    return shot._replace(memories=memories, episode=shot.episode._make(column[places] for column in shot.episode))


def _shot(shot: Snapshot, places: dict[str, Any], drawn: Any, path_drawn: Any) -> dict[str, Any]:
    m, e = shot.memories, shot.episode
    record: dict[str, Any] = {"step": shot.step, "size": shot.size, "radius": shot.radius, "count": len(m.key)}
    record["memories"] = {
        "places": {name: quantised(flat) for name, (flat, _) in places.items()},
        "key": quantised(m.key),
        "best_return": packed(m.best_return),
        "desirable": packed(m.desirable.astype(np.uint8)),
        "visits": packed(m.visits.astype(np.uint32)),
        "desirable_visits": packed(m.desirable_visits.astype(np.uint32)),
        "time": packed(m.time.clip(0, 65_535).astype(np.uint16)),
        "drawn": drawn,
    }
    record["episode"] = {
        "count": len(e.key),
        "won": shot.won,
        "places": {name: quantised(flat) for name, (_, flat) in places.items()},
        "key": quantised(e.key),
        "best_return": packed(e.best_return),
        "total": packed(e.total),
        "desirable": packed(e.desirable.astype(np.uint8)),
        "found": packed(e.found.astype(np.uint8)),
        "time": packed(e.time.clip(0, 65_535).astype(np.uint16)),
        "drawn": path_drawn,
    }
    return record


# The map


def project(groups: Sequence[np.ndarray], projection: Projection) -> dict[str, tuple[list[np.ndarray], list[str]]]:
    """Flat places of several groups of (n, D) keys, by the name of the projection, and what its axes are."""
    keys = np.concatenate(groups).astype(np.float64)
    cuts = np.cumsum([len(group) for group in groups])[:-1]
    flat, shares = principal_components(keys)
    words = [f"{name} principal component ({share:.0%})" for name, share in zip(("1st", "2nd"), shares, strict=True)]
    maps = {"PCA": (np.split(flat, cuts), words)}
    if projection == "tsne":
        maps["t-SNE"] = (np.split(tsne(keys), cuts), ["t-SNE 1", "t-SNE 2"])
    return maps


# The drawings


def _sketch(shown: ReportRun, states: np.ndarray, warn: Warn) -> Sketch | None:
    """Drawings of (n, S) states; None where the environment offers none, is not registered, or is not here."""
    if shown.run.env not in envs.registered():
        return None
    try:
        require_registered(shown.run.folder, shown.run.config)
        env = envs.make(shown.run.env, **shown.run.config.env_args)
    except EmuError as error:
        warn(f"States of {shown.run.env} are not drawn: {error}")
        return None
    width = env.spec.state_dim
    if not isinstance(env, Sketchable):
        return None
    return env.sketch(states if states.shape[1] else np.zeros((1, width), np.float16))


def _drawings(
    shown: ReportRun, snapshots: list[Snapshot], warn: Warn
) -> tuple[dict[str, Any] | None, list[tuple[Any, Any]]]:
    states = np.concatenate([part for s in snapshots for part in (s.memories.state, s.episode.state)])
    sketch = _sketch(shown, states, warn)
    if sketch is None:
        return None, [(None, None)] * len(snapshots)
    size = np.array([sketch.scene["width"], sketch.scene["height"], 1, 1])
    bytes_ = np.ceil(sketch.figures.clip(0, size) / size * 255 - 1e-3)  # upwards: who lives is drawn
    parts = iter(np.split(bytes_.clip(0, 255).astype(np.uint8), _cuts(snapshots)))
    return sketch.scene, [(packed(next(parts)), packed(next(parts))) for _ in snapshots]


def _cuts(snapshots: list[Snapshot]) -> np.ndarray:
    return np.cumsum([len(rows) for s in snapshots for rows in (s.memories.key, s.episode.key)])[:-1]
