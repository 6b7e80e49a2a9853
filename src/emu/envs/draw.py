"""Pictures of the small environments, drawn with Pillow; no display needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from emu.envs.spec import Sketch

if TYPE_CHECKING:
    from emu.envs.gridworld import GridWorld

PAPER, LINE, LIGHT, INK = "#fbfaf7", "#d9d5cc", "#fff1c9", "#33312e"
TEAM = ("#2f6db5", "#c8553d")


def draw_grid(env: GridWorld, position: np.ndarray, time: int, cell: int = 36) -> np.ndarray:
    """The room, its light, both goals and both agents; drawn at twice the size and reduced, for smooth edges."""
    cell *= 2
    top_bar = cell
    image = Image.new("RGB", (env.columns * cell, env.rows * cell + top_bar), PAPER)
    pen = ImageDraw.Draw(image)

    def box(row: int, column: int, inset: int = 0) -> tuple[int, int, int, int]:
        left, top = column * cell, row * cell + top_bar
        return left + inset, top + inset, left + cell - inset, top + cell - inset

    top, bottom, left, right = env.light_room
    for row in range(env.rows):
        for column in range(env.columns):
            lit = top <= row <= bottom and left <= column <= right
            pen.rectangle(box(row, column), fill=LIGHT if lit else PAPER, outline=LINE, width=2)
    middle = env.columns // 2 * cell
    pen.line((middle, top_bar, middle, image.height), fill=INK, width=6)
    for (row, column), colour in zip(env.goals.tolist(), TEAM, strict=True):
        pen.rectangle(box(row, column, 10), outline=colour, width=6)
    for (row, column), colour in zip(position.tolist(), TEAM, strict=True):
        pen.ellipse(box(row, column, 16), fill=colour)

    arrived = (position == env.goals).all(axis=-1)
    word = "won" if arrived.all() else "alone!" if arrived.any() else ""
    font = ImageFont.load_default(size=cell // 2)
    pen.text((cell // 4, cell // 5), f"step {time}   {word}", fill=INK, font=font)
    return np.asarray(image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS))


def sketch_grid(env: GridWorld, states: np.ndarray) -> Sketch:
    """The same room for a browser; positions are read back from the one-hot rows and columns of each observation."""
    seen = np.asarray(states, np.float32).reshape(len(states), 2, -1)
    row = seen[..., : env.rows].argmax(axis=-1)
    column = seen[..., env.rows : env.rows + env.columns].argmax(axis=-1)
    there = np.ones_like(row)
    figures = np.stack([column + 0.5, row + 0.5, there, 0 * there], axis=-1).astype(np.float32)
    return Sketch(_grid_scene(env), figures)


def _grid_scene(env: GridWorld) -> dict[str, Any]:
    top, bottom, left, right = env.light_room
    light = [max(left, 0), max(top, 0), min(right + 1, env.columns), min(bottom + 1, env.rows)]
    shapes: list[dict[str, Any]] = [{"box": light, "fill": LIGHT}]
    for x in range(1, env.columns):
        middle = x == env.columns // 2
        colour, thickness = (INK, 0.1) if middle else (LINE, 0.03)
        shapes.append({"line": [[x, 0], [x, env.rows]], "stroke": colour, "thickness": thickness})
    for y in range(1, env.rows):
        shapes.append({"line": [[0, y], [env.columns, y]], "stroke": LINE, "thickness": 0.03})
    for (row, column), colour in zip(env.goals.tolist(), TEAM, strict=True):
        box = [column + 0.14, row + 0.14, column + 0.86, row + 0.86]
        shapes.append({"box": box, "stroke": colour, "thickness": 0.09})
    figure = {"corners": 0, "turn": 0, "size": 0.28, "letter": "", "rings": False}
    figures = [{**figure, "fill": colour, "stroke": colour} for colour in TEAM]
    return {"width": env.columns, "height": env.rows, "background": PAPER, "shapes": shapes, "figures": figures}


def draw_payoff(payoff: np.ndarray, action: np.ndarray, cell: int = 72) -> np.ndarray:
    """A two-player payoff table with the chosen cell marked."""
    rows, columns = payoff.shape
    image = Image.new("RGB", (columns * cell, rows * cell), PAPER)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=cell // 3)
    for row in range(rows):
        for column in range(columns):
            chosen = action[0] == row and action[1] == column
            place = (column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
            pen.rectangle(place, fill=LIGHT if chosen else PAPER, outline=LINE, width=2)
            middle = ((column + 0.5) * cell, (row + 0.5) * cell)
            pen.text(middle, f"{payoff[row, column]:g}", fill=INK, font=font, anchor="mm")
    return np.asarray(image)
