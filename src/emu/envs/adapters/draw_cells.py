"""Pictures of foraging and of the warehouse, drawn with Pillow: the packages' own viewers want a window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from emu.envs.draw import INK, LINE, PAPER

CELL = 72  # pixels; pictures are drawn at twice their size and reduced, for smooth edges
AGENTS = ("#2f6db5", "#c8553d", "#8a5ea8", "#d18f2c", "#3b8f8f", "#7a6a53", "#b0487f", "#5b7f2b")
FOOD, SHELF, REQUESTED, GOAL = "#6aa84f", "#d6cfc0", "#e3b23c", "#4b4844"


class Figure(NamedTuple):
    """Something in a cell: a disc or a square with a letter, and for robots where they look."""

    row: int
    column: int
    shape: str  # "disc" or "square"
    fill: str
    letter: str = ""
    looks: tuple[int, int] | None = None  # one cell in (rows, columns)


class Scene(NamedTuple):
    """A moment, with nothing of the package in it: it can be kept while the game goes on."""

    rows: int
    columns: int
    figures: list[Figure]  # in the order in which they are drawn
    title: str


def foraging_scene(game: Any, title: str) -> Scene:
    """Food with its level, players with theirs."""
    food = [
        Figure(int(row), int(column), "square", FOOD, str(game.field[row, column]))
        for row, column in np.argwhere(game.field > 0)
    ]
    players = [
        Figure(int(player.position[0]), int(player.position[1]), "disc", AGENTS[i % len(AGENTS)], str(player.level))
        for i, player in enumerate(game.players)
    ]
    return Scene(game.rows, game.cols, food + players, title)


def warehouse_scene(game: Any, title: str) -> Scene:
    """Goals, shelves (requested ones in another colour) and robots; one that carries has its shelf around it."""
    goals = [Figure(int(y), int(x), "square", GOAL, "G") for x, y in game.goals]
    wanted = {shelf.id for shelf in game.request_queue}
    shelves = [Figure(int(s.y), int(s.x), "square", REQUESTED if s.id in wanted else SHELF) for s in game.shelfs]
    ways = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}
    robots = [
        Figure(int(robot.y), int(robot.x), "disc", AGENTS[i % len(AGENTS)], looks=ways[robot.dir.name])
        for i, robot in enumerate(game.agents)
    ]
    rows, columns = game.grid_size
    return Scene(int(rows), int(columns), goals + shelves + robots, title)


def draw_scene(scene: Scene) -> np.ndarray:
    """(height, width, 3) uint8; the title stands above the cells."""
    image = Image.new("RGB", (scene.columns * CELL + 2, (scene.rows + 1) * CELL + 2), PAPER)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=CELL // 2)
    for row in range(scene.rows):
        for column in range(scene.columns):
            pen.rectangle(_box(row, column, 0), outline=LINE, width=2)
    for figure in scene.figures:
        _draw_figure(pen, figure, font)
    pen.text((CELL // 4, CELL // 5), scene.title, fill=INK, font=font)
    return np.asarray(image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS))


def _draw_figure(pen: ImageDraw.ImageDraw, figure: Figure, font: Any) -> None:
    if figure.shape == "disc":
        pen.ellipse(_box(figure.row, figure.column, CELL // 5), fill=figure.fill)
    else:
        pen.rectangle(_box(figure.row, figure.column, CELL // 10), fill=figure.fill)
    left, top, right, bottom = _box(figure.row, figure.column, 0)
    middle = ((left + right) / 2, (top + bottom) / 2)
    if figure.looks is not None:
        down, across = (way * CELL * 0.42 for way in figure.looks)
        pen.line((*middle, middle[0] + across, middle[1] + down), fill=INK, width=CELL // 9)
    if figure.letter:
        pen.text(middle, figure.letter, fill="white", font=font, anchor="mm")


def _box(row: int, column: int, inset: int) -> tuple[int, int, int, int]:
    left, top = column * CELL, (row + 1) * CELL
    return left + inset, top + inset, left + CELL - inset, top + CELL - inset
