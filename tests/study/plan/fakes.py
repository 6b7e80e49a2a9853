"""Runs that are only pretended: folders as a run leaves them, and a launcher that starts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from emu.config import Config
from emu.run.folder import write_config
from emu.study.plan.plans import Planned
from emu.study.plan.sweep import Ended


def complete(folder: Path, config: Config, step: int | None = None, win: float = 1.0) -> None:
    """What is committed of a run that came to its end, or to `step`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config)
    last = config.steps if step is None else step
    rows = [{"step": 0, "test_win_rate": 0.0, "test_return": 0.0}, {"step": last - 1, "td_loss": 0.5}]
    rows.append({"step": last, "test_win_rate": win, "test_return": 8.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class FakeHandle:
    """Ends after some looks at it, in a given way."""

    def __init__(self, looks: int, ended: Ended, at_the_end: Callable[[], None]) -> None:
        self.looks, self.ended, self.at_the_end = looks, ended, at_the_end
        self.stopped = self.killed = False

    def poll(self) -> Ended | None:
        self.looks -= 1
        if self.stopped or self.killed:
            return Ended(143)
        if self.looks > 0:
            return None
        if self.ended.status == 0:
            self.at_the_end()
        return self.ended

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.killed = True


class FakeLauncher:
    """Ends each run as its script says (0 where nothing is left), and writes down who ran when and where."""

    def __init__(self, out: Path, slots: int, script: dict[str, list[int]] | None = None, looks: int = 2) -> None:
        self.out, self.slots, self.script, self.looks = out, slots, script or {}, looks
        self.started: list[tuple[str, int]] = []
        self.handles: list[FakeHandle] = []
        self.most = 0
        self.closed = False

    def start(self, run: Planned, slot: int) -> FakeHandle:
        self.started.append((run.name, slot))
        endings = self.script.get(run.name, [])
        status = endings.pop(0) if endings else 0
        handle = FakeHandle(self.looks, Ended(status), lambda: complete(self.out / run.folder, run.config()))
        self.handles = [h for h in self.handles if h.looks > 0] + [handle]
        self.most = max(self.most, len(self.handles))
        return handle

    def close(self) -> None:
        self.closed = True
