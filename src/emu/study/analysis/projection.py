"""Points of many dimensions in the plane: principal components, and t-SNE where openTSNE is installed."""

from __future__ import annotations

import warnings

import numpy as np

from emu.errors import EmuError


def principal_components(points: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The two directions of largest variance: (n, 2) places and the share of the variance each holds."""
    centred = points - points.mean(axis=0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    directions = (directions * np.where(signs == 0, 1, signs)[:, None])[:2]
    flat = centred @ directions.T
    total = float((spread**2).sum()) or 1.0
    shares = [float(s**2 / total) for s in spread[:2]]
    missing = 2 - flat.shape[1]  # points of one dimension
    return np.pad(flat, ((0, 0), (0, missing))), shares + [0.0] * missing


def require_tsne() -> None:
    """Say what is missing before anything long is computed."""
    try:
        import openTSNE  # noqa: F401
    except ImportError as error:
        raise EmuError("t-SNE needs openTSNE: pip install 'emu-marl[study]'.") from error


def tsne(points: np.ndarray) -> np.ndarray:
    """(n, D) points in the plane, neighbours staying neighbours.

    One thread: sums in one order give the same picture each time, and the threads of openTSNE, which wait by spinning,
    take a hundred times as long on a busy machine.
    """
    require_tsne()
    from openTSNE import TSNE

    perplexity = min(30, max(2, (len(points) - 1) // 3))
    layout = TSNE(perplexity=perplexity, neighbors="exact", random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # entries with the same embedding have no distance
        return np.asarray(layout.fit(np.asarray(points, np.float64)))
