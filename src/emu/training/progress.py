"""What a person sees while a run goes on: a header, then a live line; in a pipe or a log file, plain lines.

A plain line comes with every evaluation, and whenever `SILENCE` seconds have passed without one. The first time that
the loop does something it is being compiled, which the line says.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from emu.run.folder import EVALUATION
from emu.run.metrics import read_rows
from emu.training.live import Status, human_bytes

if TYPE_CHECKING:
    from emu.config import Config
    from emu.training.loop import Trainer

SILENCE = 30.0  # seconds after which a log file hears that the run goes on
LOOK = 1.0  # seconds between two looks whether it is time
WIDE = 1_000  # columns of a log file: everything is said
COMPILED = {  # what is compiled when it is done for the first time
    "rollout": "compiling the rollout",
    "learner": "compiling the learner",
    "evaluation": "compiling the evaluation",
    "memory": "preparing the memory",
}


class Progress:
    """Reports one run on standard error. `quiet` says nothing at all."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, emoji=False, quiet=quiet)
        self.closed_by: str | None = None  # the signal that stands for an output that nobody reads any more
        self.status = Status()
        self._done_before: set[str] = set()
        self._live = False
        self._said_at = 0.0  # when the last plain line was printed

    def starting(self, what: str) -> None:
        """Something to see at once: loading JAX takes seconds."""
        self._print(f"[dim]{escape(what)}: loading JAX …[/]")

    def header(self, config: Config, trainer: Trainer) -> None:
        """What is about to run, how much memory it may take, and how it did before it was resumed."""
        spec = trainer.env.spec
        self.status.has_goal = spec.has_goal
        if trainer.counters.step:
            rows = (row for row in read_rows(trainer.folder) if row["step"] <= trainer.counters.step)
            self.status.evaluation = next((row for row in reversed(list(rows)) if EVALUATION in row), {})
        table = Table.grid(padding=(0, 2))
        what = f"[bold]{escape(config.algo)}[/] on [bold]{escape(config.env)}[/], seed {config.seed}"
        table.add_row("algorithm", what)
        if own := _own_pieces(config):
            table.add_row("with", escape(own))
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
        """While the loop runs, its state is shown."""
        self.status.begin(total, done)
        self._said_at = time.monotonic()
        if self.console.quiet:
            yield
        elif self.console.is_terminal:
            with Live(self.status, console=self.console, refresh_per_second=4), self._live_line():
                yield
        else:
            with self._breaking_silence():
                yield

    @contextlib.contextmanager
    def _live_line(self) -> Iterator[None]:
        self._live = True
        try:
            yield
        finally:
            self._live = False

    @contextlib.contextmanager
    def _breaking_silence(self) -> Iterator[None]:
        """A thread that speaks when nothing was said for long, also while the loop waits for a compiler."""
        over = threading.Event()

        def speak() -> None:
            while not over.wait(LOOK):
                self.speak_if_silent()

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def speak_if_silent(self) -> None:
        if time.monotonic() - self._said_at >= SILENCE:
            self._line()

    def begin(self, activity: str) -> None:
        """The loop begins to do something; the first time, it is compiled."""
        if activity in COMPILED and activity not in self._done_before:
            self.status.doing, self.status.doing_since = COMPILED[activity], time.monotonic()

    def end(self, activity: str) -> None:
        self._done_before.add(activity)
        self.status.doing = ""

    def update(self, step: int, epsilon: float, episodes: int, extra: str = "") -> None:
        self.status.epsilon, self.status.extra = epsilon, extra
        self.status.move(step)

    def tested(self, step: int, summary: dict[str, Any]) -> None:
        self.status.evaluation, self.status.step, self.status.doing = summary, step, ""
        if not self._live:
            self._line()

    def rate(self) -> float:
        """Environment steps a second over the recent past."""
        return self.status.rate()

    def warn(self, message: str) -> None:
        self._print(f"[yellow]warning[/] {escape(message)}")

    def _line(self) -> None:
        self._said_at = time.monotonic()
        self._print(f"step {escape(self.status.text(WIDE))}")

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


def _own_pieces(config: Config) -> str:
    """What the name of the algorithm does not say: pieces from outside, and arguments of the environment."""
    pieces = [f"learner {config.learner.kind}"] if ":" in config.learner.kind else []
    pieces += [f"term {name}" for name in config.terms]
    pieces += [f"{name} {value}" for name, value in config.env_args.items()]
    return ", ".join(pieces)
