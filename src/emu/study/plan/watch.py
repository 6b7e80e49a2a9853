"""What a person sees of a sweep: a live table of all runs on a terminal, plain lines elsewhere.

Everything is read from the runs' own metrics.jsonl, so that it does not matter where a run's process lives.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from emu.files import parse_json
from emu.run.folder import RunFolder, read_meta
from emu.run.record import is_number
from emu.study.plan.plans import Planned
from emu.training.live import human_time

WINDOW = 60.0  # seconds over which the speed of a run is measured
LINES_EVERY = 30.0  # seconds between two plain lines about the runs under way
TAIL = 1 << 15  # bytes at the end of metrics.jsonl that are looked at

State = Literal["waiting", "running", "finished", "found", "failed", "stopped"]
STYLES: dict[str, str] = {"running": "bold", "finished": "green", "found": "green", "failed": "red"}
WORDS: dict[str, str] = {"found": "finished before"}


class LastValues(NamedTuple):
    """The newest values in a run's metrics."""

    step: int = 0
    win: float | None = None
    total: float | None = None  # return


def last_values(folder: Path, before: LastValues = LastValues()) -> LastValues:
    """The end of a run's metrics.jsonl; whatever it does not say stays as before."""
    try:
        with RunFolder(folder).metrics.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return before
    rows = [row for row in map(_row, lines) if row]
    tests = [row for row in rows if "test_return" in row]
    if not rows:
        return before
    if not tests:
        return before._replace(step=int(rows[-1]["step"]))
    return LastValues(int(rows[-1]["step"]), tests[-1].get("test_win_rate"), tests[-1]["test_return"])


def _row(line: bytes) -> dict[str, float] | None:
    """A line cut at either end is no row."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and "step" in row and all(map(is_number, row.values()))
    return row if whole else None


class Line:
    """One run as the table shows it."""

    def __init__(self, run: Planned, out: Path, steps: int, state: State) -> None:
        self.run, self.folder, self.steps, self.state = run, out / run.folder, steps, state
        self.note = ""
        self._goal: bool | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self.values = last_values(self.folder)

    def update(self, now: float) -> None:
        self.values = last_values(self.folder, self.values)
        step = self.values.step
        if self._recent and step < self._recent[-1][1]:  # resumed from an earlier checkpoint
            self._recent.clear()
        if not self._recent or step > self._recent[-1][1]:
            self._recent.append((now, step))
        while len(self._recent) > 2 and now - self._recent[1][0] > WINDOW:
            self._recent.popleft()

    def rate(self) -> float:
        """Environment steps a second over the recent past; 0 while it is not known."""
        if self.state != "running" or len(self._recent) < 2:
            return 0.0
        (then, first), (now, last) = self._recent[0], self._recent[-1]
        return (last - first) / (now - then) if now > then else 0.0

    def left(self) -> int:
        return 0 if self.state in ("finished", "found", "failed") else max(0, self.steps - self.values.step)

    def has_goal(self) -> bool:
        """Whether its win rate means anything: as the run says, once it has begun."""
        if self._goal is None:
            env = read_meta(self.folder).get("env")
            self._goal = env.get("has_goal") if isinstance(env, dict) else None
        return self._goal is not False

    def forget_speed(self) -> None:
        self._recent.clear()


class Watch:
    """The table, or the lines."""

    def __init__(self, lines: Sequence[Line], title: str, console: Console | None = None) -> None:
        self.lines, self.title = list(lines), title
        self.console = console or Console(stderr=True, emoji=False)
        self._live: Live | None = None
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        self.say(f"{self.title}: {self.summary()}")
        if self.console.is_terminal:
            self._live = Live(self.table(), console=self.console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            self._live.__exit__(kind, error, where)
            self._live = None

    def update(self) -> None:
        """Look at the runs under way and show what is new."""
        now = time.monotonic()
        under_way = [line for line in self.lines if line.state == "running"]
        for line in under_way:
            line.update(now)
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
        elif now - self._spoke > LINES_EVERY:
            self._spoke = now
            for line in under_way:
                self.say("  ".join(_cells(line)))
            self.say(self.summary())

    def event(self, line: Line, state: State, note: str = "") -> None:
        """A run changed its state; where there is no table, a line says so."""
        line.state, line.note = state, note
        line.update(time.monotonic())
        if self._live is None:
            self.say("  ".join(_cells(line)))

    def say(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, soft_wrap=True)

    def summary(self) -> str:
        """How many runs are where, and how long it may still take at the present speed."""
        states = [line.state for line in self.lines]
        counts = [f"{states.count(s)} {WORDS.get(s, s)}" for s in dict.fromkeys(sorted(states))]
        rate = sum(line.rate() for line in self.lines)
        left = f"; about {human_time(sum(line.left() for line in self.lines) / rate)} left" if rate else ""
        return f"{len(states)} runs: {', '.join(counts)}{left}"

    def table(self) -> Table:
        table = Table(box=None, title=escape(self.title), caption=escape(self.summary()))
        table.title_justify = table.caption_justify = "left"
        for name in ("run", "seed", "step", "steps/s", "left", "win", "return", "status"):
            right = name not in ("run", "status")
            table.add_column(name, justify="right" if right else "left", no_wrap=name != "status")
        for line in self._shown():
            cells = [escape(cell) for cell in _cells(line)]
            table.add_row(*cells, style=STYLES.get(line.state, "dim"))
        return table

    def _shown(self) -> list[Line]:
        """All runs where they fit; else those that matter most now, in the study's order."""
        room = max(3, self.console.height - 5)
        if len(self.lines) <= room:
            return self.lines
        urgency = ("running", "failed", "stopped", "waiting", "finished", "found")
        chosen = sorted(self.lines, key=lambda line: urgency.index(line.state))[:room]
        return [line for line in self.lines if line in chosen]


def _cells(line: Line) -> list[str]:
    values, rate = line.values, line.rate()
    status = WORDS.get(line.state, line.state) + (f": {line.note}" if line.note else "")
    return [
        f"{line.run.env} {line.run.label}",
        str(line.run.seed),
        f"{values.step:,}/{line.steps:,}",
        f"{rate:,.0f}" if rate else "-",
        human_time(line.left() / rate) if rate else "-",
        "-" if values.win is None or not line.has_goal() else f"{values.win:.2f}",
        "-" if values.total is None else f"{values.total:.2f}",
        status,
    ]
