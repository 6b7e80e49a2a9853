"""What a person sees while a run goes on: a header, one live line, a line per test."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

if TYPE_CHECKING:
    from emu.config import Config
    from emu.training.loop import Trainer


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def human_time(seconds: float) -> str:
    minutes, seconds = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


WINDOW = 15.0  # seconds over which the speed is measured: compiling should not weigh on it for long


class Progress:
    """Live progress on a terminal; on a pipe or in a log file, a plain line per test."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, quiet=quiet)
        self.closed_by: str | None = None  # the signal that stands for an output that nobody reads any more
        self._bar: Bar | None = None
        self._has_goal = True
        self._win = float("nan")
        self._return = float("nan")
        self._recent: deque[tuple[float, int]] = deque()
        self._extra = ""

    def header(self, config: Config, trainer: Trainer) -> None:
        """What is about to run, and how much memory it may take."""
        spec = trainer.env.spec
        self._has_goal = spec.has_goal
        table = Table.grid(padding=(0, 2))
        what = f"[bold]{escape(config.algo)}[/] on [bold]{escape(config.env)}[/], seed {config.seed}"
        table.add_row("algorithm", what)
        actions = f"actions of {spec.action_dim} numbers" if spec.action_dim else f"{spec.n_actions} actions"
        sizes = f"{spec.n_agents} agents, {actions}, observation {spec.obs_dim}, state {spec.state_dim}"
        table.add_row("task", f"{sizes}, at most {spec.episode_limit} steps")
        table.add_row("replay", f"at most {trainer.replay} and {human_bytes(trainer.replay.most_bytes)}")
        devices = trainer.learner.shards.mesh.devices.ravel().tolist()
        table.add_row("devices", f"{len(devices)} x {devices[0].platform}")
        table.add_row("folder", escape(str(trainer.folder)))
        with self._noticing():
            self.console.print(table)

    @contextlib.contextmanager
    def watching(self, total: int, done: int) -> Iterator[None]:
        self._recent.append((time.monotonic(), done))
        if not self.console.is_terminal:
            self._total = total
            yield
            return
        columns = (
            TextColumn("[bold]train[/]"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self._total = total
        bar = Bar(*columns, console=self.console, refresh_per_second=4)
        with self._noticing():
            bar.start()
            self._bar, self._task = bar, bar.add_task("train", total=total, completed=done, text="compiling …")
        try:
            yield
        finally:
            self._bar = None
            with self._noticing():
                bar.stop()

    def update(self, step: int, epsilon: float, episodes: int, extra: str = "") -> None:
        self._recent.append((time.monotonic(), step))
        while len(self._recent) > 2 and self._recent[-1][0] - self._recent[1][0] > WINDOW:
            self._recent.popleft()
        self._extra = extra
        if self._bar is not None:
            rate = self.rate()
            left = human_time((self._total - step) / rate) if rate else "?"
            text = f"{rate:,.0f} steps/s  {left} left  ε {epsilon:.2f}  {self.scores()}  {extra}"
            with self._noticing():
                self._bar.update(self._task, completed=min(step, self._total), text=text)

    def tested(self, step: int, summary: dict[str, Any]) -> None:
        self._win, self._return = summary["test_win_rate"], summary["test_return"]
        if self._bar is None and not self.console.quiet:
            rate = self.rate()
            left = human_time((self._total - step) / rate) if rate else "?"
            self._print(
                f"step {step:>9,}/{self._total:,}  {rate:6,.0f} steps/s  {left} left  {self.scores()}  {self._extra}"
            )

    def scores(self) -> str:
        """The last evaluation; a win rate only where the task has a goal."""
        win = f"win {self._win:.2f}  " if self._has_goal else ""
        return f"{win}return {self._return:.2f}"

    def rate(self) -> float:
        """Environment steps a second over the recent past."""
        (then, first), (now, last) = self._recent[0], self._recent[-1]
        return (last - first) / (now - then) if now > then else 0.0

    def warn(self, message: str) -> None:
        self._print(f"[yellow]warning[/] {escape(message)}")

    def _print(self, content: Any) -> None:
        with self._noticing():
            self.console.print(content, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """A closed pipe or terminal must not end a run in the middle of a chunk: be silent, and let it save."""
        try:
            yield
        except (OSError, SystemExit):  # rich turns a broken pipe into the latter
            self.console.quiet, self.closed_by = True, "SIGPIPE"
