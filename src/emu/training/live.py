"""One line about a run: what there is to say, the most important first, as much of it as fits, and a bar behind it.

43,200/150,000  1,024 steps/s  1:44 left  win 0.31  return 8.20  ε 0.18  ━━━━━━━━━━╺━━━━━━━━━━━━━━━━━━━━━
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

WINDOW = 15.0  # seconds over which the speed is measured: compiling should not weigh on it for long
GAP = "  "
LEAST_BAR, MOST_BAR = 5, 40  # columns
ECHO = "^C "  # what a terminal writes behind the line; in a full line it would wrap, and leave a second line behind


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


@dataclasses.dataclass
class Status:
    """Where a run stands."""

    total: int = 0  # environment steps in all
    step: int = 0
    has_goal: bool = True  # whether the win rate means anything
    epsilon: float | None = None
    extra: str = ""
    evaluation: Mapping[str, float] = dataclasses.field(default_factory=dict)  # the last one
    doing: str = ""  # what takes long just now
    began: float = dataclasses.field(default_factory=time.monotonic)
    doing_since: float = 0.0
    _recent: deque[tuple[float, int]] = dataclasses.field(default_factory=deque)

    def begin(self, total: int, step: int) -> None:
        self.total, self.step, self.began = total, step, time.monotonic()
        self._recent = deque([(self.began, step)])

    def move(self, step: int) -> None:
        self.step = step
        self._recent.append((time.monotonic(), step))
        while len(self._recent) > 2 and self._recent[-1][0] - self._recent[1][0] > WINDOW:
            self._recent.popleft()

    def rate(self) -> float:
        """Environment steps a second over the recent past; 0 as long as nobody knows."""
        if not self._recent:
            return 0.0
        (then, first), (now, last) = self._recent[0], self._recent[-1]
        return (last - first) / (now - then) if now > then else 0.0

    def fields(self) -> list[str]:
        """What there is to say, the most important first."""
        rate = self.rate()
        said = [f"{self.step:,}/{self.total:,}"]
        if self.doing:
            said.append(f"{self.doing} … {human_time(time.monotonic() - self.doing_since)}")
        if rate:
            said += [f"{rate:,.0f} steps/s", f"{human_time((self.total - self.step) / rate)} left"]
        said += self.scores()
        if self.epsilon is not None:
            said.append(f"ε {self.epsilon:.2f}")
        if self.extra:
            said.append(self.extra)
        return [*said, f"{human_time(time.monotonic() - self.began)} so far"]

    def scores(self) -> list[str]:
        """The last evaluation; a win rate only where the task has a goal."""
        if not self.evaluation:
            return []
        win = [f"win {self.evaluation['test_win_rate']:.2f}"] if self.has_goal else []
        return [*win, f"return {self.evaluation['test_return']:.2f}"]

    def text(self, width: int) -> str:
        """As many of the fields as fit, without leaving one out in between."""
        said, *more = self.fields()
        for field in more:
            if len(said) + len(GAP) + len(field) > width:
                break
            said += GAP + field
        return said

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line on a terminal of any width: the bar takes what the words leave."""
        width = options.max_width - len(ECHO)
        said = self.text(width - len(GAP) - LEAST_BAR)
        room = min(MOST_BAR, width - len(said) - len(GAP))
        line = Table.grid(padding=(0, len(GAP), 0, 0))
        line.add_row(Text(said, no_wrap=True), ProgressBar(self.total or None, min(self.step, self.total), width=room))
        yield line
