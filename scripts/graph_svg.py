"""A Mermaid graph as an SVG drawing, so that the site shows it without a script from another host.

Layered from top to bottom: a node lies above all that it points to. An edge that spans several layers passes them
through points of its own, which keeps it clear of the boxes; each layer is sorted by where its neighbours lie.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise

Edge = tuple[str, str]
HIGH, APART, GAP, LETTER = 30.0, 66.0, 22.0, 8.4  # of a box, from layer to layer, between boxes, of a letter
SWEEPS = 12  # times that the layers are sorted, down and up


def drawing(mermaid: str) -> str:
    """The graph of `a --> b` lines."""
    edges = [edge for line in mermaid.splitlines() for edge in _edges(line)]
    layers, pieces = _layered(edges)
    _sort(layers, [piece for chain in pieces for piece in chain])
    places, width = _places(layers)
    height = APART * (len(layers) - 1) + HIGH
    lines = [_line([places[chain[0][0]], *(places[end] for _, end in chain)]) for chain in pieces]
    boxes = [_box(name, *places[name]) for layer in layers for name in layer if not name.startswith("·")]
    view = f'viewBox="-4 -4 {width + 8:.0f} {height + 8:.0f}" style="max-width: {width + 8:.0f}px"'
    return "\n".join([f'<svg class="graph" role="img" aria-label="import graph" {view}>', *lines, *boxes, "</svg>"])


def _edges(line: str) -> list[Edge]:
    names = [name.strip() for name in line.split("-->")]
    return list(pairwise(names)) if all(re.fullmatch(r"\w+", name) for name in names) else []


def _layered(edges: list[Edge]) -> tuple[list[list[str]], list[list[Edge]]]:
    """Names by layer, the highest first, and every edge as a chain of steps from layer to layer."""
    below: dict[str, set[str]] = defaultdict(set)
    for above, under in edges:
        below[above].add(under)

    def depth(name: str, path: tuple[str, ...] = ()) -> int:
        if name in path:
            raise ValueError(f"a cycle: {' -> '.join([*path, name])}")
        return 1 + max((depth(under, (*path, name)) for under in below[name]), default=-1)

    depths = {name: depth(name) for edge in edges for name in edge}
    top = max(depths.values(), default=0)
    layers: list[list[str]] = [[] for _ in range(top + 1)]
    for name in sorted(depths):
        layers[top - depths[name]].append(name)
    chains = []
    for number, (above, under) in enumerate(edges):
        between = [f"·{number}·{level}" for level in range(depths[above] - 1, depths[under], -1)]
        for name in between:
            layers[top - int(name.rsplit("·", 1)[1])].append(name)
        chains.append(list(zip([above, *between], [*between, under], strict=True)))
    return layers, chains


def _sort(layers: list[list[str]], pieces: list[Edge]) -> None:
    """In place: a name goes where the mean of its neighbours in the layer before is."""
    above, below = defaultdict(list), defaultdict(list)
    for high, low in pieces:
        above[low].append(high)
        below[high].append(low)
    for sweep in range(SWEEPS):
        order, near = (layers, above) if sweep % 2 == 0 else (layers[::-1], below)
        for before, layer in pairwise(order):
            at = {name: (place + 0.5) / len(before) for place, name in enumerate(before)}
            own = {name: (place + 0.5) / len(layer) for place, name in enumerate(layer)}
            mean = {
                name: sum(at[n] for n in near[name]) / len(near[name]) if near[name] else own[name] for name in layer
            }
            layer.sort(key=lambda name: mean[name])


def _wide(name: str) -> float:
    return 6.0 if name.startswith("·") else LETTER * len(name) + 22


def _places(layers: list[list[str]]) -> tuple[dict[str, tuple[float, float]], float]:
    """The middle of every box; layers are centred."""
    widths = [sum(map(_wide, layer)) + GAP * (len(layer) - 1) for layer in layers]
    places = {}
    for number, (layer, wide) in enumerate(zip(layers, widths, strict=True)):
        x = (max(widths) - wide) / 2
        for name in layer:
            places[name] = (x + _wide(name) / 2, number * APART + HIGH / 2)
            x += _wide(name) + GAP
    return places, max(widths)


def _line(points: list[tuple[float, float]]) -> str:
    """A curve that leaves and enters every layer upright."""
    x, y = points[0][0], points[0][1] + HIGH / 2
    path = [f"M{x:.1f} {y:.1f}"]
    for place, (to_x, middle) in enumerate(points[1:], start=1):
        last = place == len(points) - 1
        to_y = middle - HIGH / 2 - (4 if last else 0)
        bend = (to_y - y) / 2
        path.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
        if not last:
            path.append(f"V{middle + HIGH / 2:.1f}")
        x, y = to_x, middle + HIGH / 2
    tip = points[-1][0], points[-1][1] - HIGH / 2
    arrow = f'<path class="tip" d="M{tip[0]:.1f} {tip[1]:.1f}l-3.5 -6h7z"/>'
    return f'<path class="edge" d="{"".join(path)}"/>{arrow}'


def _box(name: str, x: float, y: float) -> str:
    wide = _wide(name)
    frame = f'<rect x="{x - wide / 2:.1f}" y="{y - HIGH / 2:.1f}" width="{wide:.1f}" height="{HIGH:.0f}" rx="6"/>'
    return f'{frame}<text x="{x:.1f}" y="{y + 5:.1f}">{name}</text>'
