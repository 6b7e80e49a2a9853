"""Pictures of the small environments, drawn with Pillow; no display needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

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
