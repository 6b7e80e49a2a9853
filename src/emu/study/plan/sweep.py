"""Many runs, some of them at a time: whatever is finished is left alone, whatever was begun goes on where it was.

`Pool` schedules; a `Launcher` says what starting a run means: here a process of its own that keeps to its cores, in
`cluster.py` a task of Ray. A run that dies by a signal (a kill, the kernel's out-of-memory killer) is started again
from its checkpoint a few times; one that fails is named at the end and stops nobody else.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console

from emu.config import to_dict
from emu.errors import EmuError
from emu.files import writing
from emu.run.lock import RunLock
from emu.study.plan import run_one
from emu.study.plan.plans import Plan, Planned, check_plan, is_finished, write_study
from emu.study.plan.watch import Line, Watch

RESTARTS = 3  # times that a run killed by a signal is started again within one sweep
GRACE = 120.0  # seconds that runs get to save when the sweep is stopped
PAUSE = 0.5  # seconds between two looks at the runs


class Ended(NamedTuple):
    """How a run's process ended."""

    status: int  # exit status; negative: the signal that killed it
    note: str = ""  # what is known beyond its log


class Handle(Protocol):
    """A run under way."""

    def poll(self) -> Ended | None:
        """How it ended, or None while it goes on."""
        ...

    def stop(self) -> None:
        """Ask it to save and end."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class Launcher(Protocol):
    """How runs are started."""

    slots: int  # runs at a time

    def start(self, run: Planned, slot: int) -> Handle: ...

    def close(self) -> None: ...


class Outcome(NamedTuple):
    """How a sweep ended."""

    finished: int  # runs finished now
    found: int  # runs that were finished before
    failed: list[tuple[Planned, str]]  # and why
    stopped: str = ""  # the signal that ended it early


class StopRequest(BaseException):
    """SIGINT or SIGTERM, raised in the main thread."""


class Entry:
    """A run on its way through the pool."""

    def __init__(self, run: Planned, line: Line) -> None:
        self.run, self.line, self.restarts = run, line, 0
        self.config = run.config()


class Pool:
    """The scheduler."""

    def __init__(self, entries: Sequence[Entry], launcher: Launcher, watch: Watch, out: Path) -> None:
        self.launcher, self.watch, self.out = launcher, watch, out
        self.waiting = deque(entry for entry in entries if entry.line.state == "waiting")
        self.running: dict[int, tuple[Entry, Handle]] = {}  # by slot
        self.failed: list[tuple[Planned, str]] = []
        self.finished = 0

    def run(self, pause: float = PAUSE, grace: float = GRACE) -> str:
        """Until all runs are through; the name of the signal that stopped it, or nothing."""
        try:
            with stop_requests():
                while self.waiting or self.running:
                    self.fill()
                    self.watch.update()
                    time.sleep(pause)
                    self.reap()
        except StopRequest as request:
            self.stop(grace)
            return str(request)
        finally:
            for _, handle in self.running.values():
                handle.kill()
        return ""

    def fill(self) -> None:
        for slot in range(self.launcher.slots):
            if slot not in self.running and self.waiting:
                entry = self.waiting.popleft()
                entry.line.forget_speed()
                try:
                    handle = self.launcher.start(entry.run, slot)
                except OSError as error:
                    self._fail(entry, f"could not be started: {error}")
                    continue
                self.running[slot] = (entry, handle)
                self.watch.event(entry.line, "running")

    def reap(self) -> None:
        """Take note of the runs that have ended."""
        for slot, (entry, handle) in list(self.running.items()):
            ended = handle.poll()
            if ended is not None:
                del self.running[slot]
                self._ended(entry, *ended)

    def _ended(self, entry: Entry, status: int, note: str) -> None:
        if status == 0 and is_finished(self.out / entry.run.folder, entry.config):
            self.finished += 1
            self.watch.event(entry.line, "finished")
        elif status < 0 and entry.restarts < RESTARTS:
            entry.restarts += 1
            self.waiting.appendleft(entry)
            self.watch.event(entry.line, "waiting", f"killed by signal {-status}, goes on")
        else:
            self._fail(entry, note or reason(self.out / entry.run.log, status))

    def _fail(self, entry: Entry, why: str) -> None:
        self.failed.append((entry.run, why))
        self.watch.event(entry.line, "failed", why)

    def stop(self, grace: float) -> None:
        """Let the runs under way save; a second request, or too long a wait, ends them."""
        self.watch.say("Stopping: the runs under way save first. Once more to end them at once.")
        for _, handle in self.running.values():
            handle.stop()
        until = time.monotonic() + grace
        with contextlib.suppress(StopRequest), stop_requests():
            while self.running and time.monotonic() < until:
                for slot, (entry, handle) in list(self.running.items()):
                    if handle.poll() is not None:
                        del self.running[slot]
                        self.watch.event(entry.line, "stopped")
                time.sleep(0.1)


@contextlib.contextmanager
def stop_requests() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `StopRequest`; outside the main thread the caller handles signals."""

    def ask(number: int, _: Any) -> None:
        raise StopRequest(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def reason(log: Path, status: int) -> str:
    """Why a run ended, in the words of its log."""
    try:
        lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    if status == 0:
        return "ended before its last step"
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return lines[-1] if status > 0 and lines else how


# Processes on this machine


class Process:
    """A run in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> Ended | None:
        status = self._process.poll()
        return None if status is None else Ended(status)

    def stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Processes:
    """Runs side by side on this machine, each on cores of its own."""

    def __init__(self, out: Path, workers: int, command: list[str]) -> None:
        self.slots, self.out, self.command = workers, out, command
        self.cores = share_cores(available_cores(), workers)

    def start(self, run: Planned, slot: int) -> Process:
        return Process(run_one.start(job_of(run, self.out, self.cores[slot], self.command), self.out / run.log))

    def close(self) -> None:
        pass


def job_of(run: Planned, out: Path, cores: list[int], command: list[str]) -> run_one.Job:
    return run_one.Job(str((out / run.folder).absolute()), to_dict(run.config()), cores, command)


def available_cores() -> list[int]:
    """The cores this process may use; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_cores(cores: list[int], workers: int) -> list[list[int]]:
    """Cores for each worker: all used, none shared, as long as there are enough."""
    if workers > len(cores):
        return [[cores[k % len(cores)]] if cores else [] for k in range(workers)]
    return [cores[k::workers] for k in range(workers)]


def default_workers(runs: Sequence[Planned]) -> int:
    """As many runs at a time as there are cores for their devices."""
    devices = max((run.overrides.get("devices") or 1 for run in runs), default=1)
    return max(1, (len(available_cores()) or os.cpu_count() or 1) // devices)


# A whole sweep


def run_plan(
    plan: Plan,
    out: Path,
    command: list[str],
    make_launcher: Callable[[], Launcher],
    console: Console | None = None,
    pause: float = PAUSE,
) -> Outcome:
    """Run what is not finished. Nothing starts unless every folder is new or belongs to its run."""
    with writing(out, "Choose another folder with --out."):
        out.mkdir(parents=True, exist_ok=True)
    lock = RunLock(out)
    try:
        standings = check_plan(plan, out)
        write_study(plan, out, shlex.join(command))
        entries = [_entry(run, out, standings[run.folder] == "finished") for run in plan.runs]
        found = sum(entry.line.state == "found" for entry in entries)
        title = plan.title + (f" ({plan.scale} scale)" if plan.scale else "")
        watch = Watch([entry.line for entry in entries], title, console)
        if found == len(entries):
            watch.say(f"{title}: all {found} runs were finished before; nothing to do.")
            return Outcome(0, found, [])
        launcher = make_launcher()
        try:
            pool = Pool(entries, launcher, watch, out)
            with watch:
                stopped = pool.run(pause)
            return Outcome(pool.finished, found, pool.failed, stopped)
        finally:
            launcher.close()
    finally:
        lock.release()


def _entry(run: Planned, out: Path, finished: bool) -> Entry:
    return Entry(run, Line(run, out, run.config().steps, "found" if finished else "waiting"))


def local(out: Path, runs: Sequence[Planned], workers: int, command: list[str]) -> Callable[[], Launcher]:
    """Runs on this machine."""
    if workers < 0:
        raise EmuError(f"--workers must be at least 1, not {workers}.")
    return lambda: Processes(out, min(workers or default_workers(runs), len(runs)), command)
