"""`emu check`: the check in a process of its own, so that an environment may exit, hang, crash, fork or flood there.

    python -m emu.envs.check_process REPORT        what runs there; REPORT is an inherited file descriptor

It writes a line of JSON before every call of the environment's, for every fault, and at the end; faulthandler writes
the stack to the same descriptor when the process crashes or is asked (SIGUSR1, when a call takes too long). Whatever
does not reach the last line is described by its last call. Everything that the process started ends with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

from emu.envs.faults import raise_if_any
from emu.envs.workers.guarded import GRACE, Guarded, cause_of
from emu.envs.workers.guardian import is_stopped
from emu.errors import EnvError, described, origin_of, printable

POLL = 0.25  # seconds between two looks at the memory
TAIL = 2_000  # characters of what it printed that are shown
CLOSED = 74  # exit status: the report cannot be written any more
CRASHES: dict[int, str] = {
    signal.SIGSEGV: ", a crash in compiled code",
    signal.SIGABRT: ", an abort in compiled code",
    signal.SIGKILL: ", perhaps by the system for want of memory",
}
STACK_LINE = re.compile(r'  File "(.+)", line (\d+) in (.+)')


class Limits(NamedTuple):
    """What an environment may take while it is checked."""

    call: float = 120.0  # seconds for one call
    total: float = 600.0  # seconds for all of it
    memory: float | None = None  # bytes; by default three quarters of what is free


class Verdict(NamedTuple):
    """How a check ended."""

    name: str  # the environment's own name where it was learned
    faults: list[str]
    notes: list[str]  # nothing wrong, but worth knowing
    refused: str = ""  # the environment could not be made: a message of ours


def check_in_process(name: str, args: dict[str, Any], episodes: int, limits: Limits | None = None) -> Verdict:
    """Check an environment by name, whatever it does."""
    return Watch(name, limits or Limits()).run({"name": name, "args": args, "episodes": episodes, "path": _path()})


def raise_verdict(verdict: Verdict) -> None:
    """Everything that was found, as one error."""
    more = "".join(f"\n{note}" for note in verdict.notes)
    if verdict.refused:
        found = "".join(f"\n  - {fault}" for fault in verdict.faults)
        raise EnvError(verdict.refused + (f"\nBefore that:{found}" if found else "") + more)
    raise_if_any(verdict.name, verdict.faults, more)


class Watch:
    """The side of the check that stays alive."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name, self.limits = name, limits
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.refused, self.done, self.pid = "", False, 0
        self.call, self.where = "its import", ""
        self.printed = {"stdout": 0, "stderr": 0}
        self.tails = {"stdout": b"", "stderr": b""}
        self.stack = ""
        self.half_a_line = b""

    def run(self, task: dict[str, Any]) -> Verdict:
        ours, theirs = os.pipe()
        words = ["-m", "emu.envs.check_process", str(theirs)]
        pipe = subprocess.PIPE
        try:
            self.guarded = Guarded(words, (theirs,), stdin=pipe, stdout=pipe, stderr=pipe)
        finally:
            os.close(theirs)
        process = self.guarded.process
        try:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(task).encode())
                process.stdin.close()
            self._listen({ours: "report", process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"})
            self._note_what_is_left()
        finally:
            self.guarded.end()
            os.close(ours)
            for output in filter(None, (process.stdout, process.stderr)):
                output.close()
        return Verdict(self.name, self.faults, self.notes, self.refused)

    def _listen(self, pipes: dict[int, str]) -> None:
        """Until the last line, the process's end, or a limit."""
        begun = heard = looked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for descriptor, name in pipes.items():
                selector.register(descriptor, selectors.EVENT_READ, name)
            while not self.done:
                for key, _ in selector.select(POLL):
                    piece = os.read(key.fd, 65_536)
                    if not piece:
                        selector.unregister(key.fd)
                    elif key.data == "report":
                        heard = time.monotonic()
                    self._take(key.data, piece)
                now = time.monotonic()
                if self.done:
                    return
                if not selector.get_map() or self.guarded.process.poll() is not None:
                    return self._ended(selector)
                if now - looked > POLL and (looked := now) and self._takes_too_much():
                    return
                if now - heard > self.limits.call or now - begun > self.limits.total:
                    return self._hangs(now - heard > self.limits.call, selector)

    def _take(self, source: str, piece: bytes) -> None:
        if source != "report":
            self.printed[source] += len(piece)
            self.tails[source] = (self.tails[source] + piece)[-TAIL:]
            return
        *lines, self.half_a_line = (self.half_a_line + piece).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
                self._hear(message["kind"], message)
            except (ValueError, KeyError, TypeError):
                self.stack = (self.stack + line.decode(errors="replace") + "\n")[-20_000:]  # faulthandler, or garbage

    def _hear(self, kind: str, message: dict[str, Any]) -> None:
        self.pid = self.pid or message["pid"]
        if message["pid"] != self.pid:
            fault = f"{self.call} came back twice: the environment forks (os.fork) and lets the copy go on{self._at()}"
            if fault not in self.faults:
                self.faults.append(fault)
        elif kind == "call":
            self.call, self.where = message["call"], message["where"]
        elif kind == "fault":
            self.faults.append(message["text"])
        elif kind == "name":
            self.name = message["text"]
        elif kind == "refused":
            self.refused, self.done = message["text"], True
        elif kind == "done":
            self.done = True

    def _at(self) -> str:
        place = origin_of([(file, int(line), function) for file, line, function in self._frames()])
        words = [word for word in (self.where, place) if word]
        return f" ({'; '.join(words)})" if words else ""

    def _frames(self) -> list[tuple[str, str, str]]:
        """The stack that faulthandler showed, the innermost last; of the thread that was at work."""
        threads = re.split(r"^(?:Current thread|Thread) .*$", self.stack, flags=re.MULTILINE)
        chosen = next((part for part in threads if "check_process.py" in part), "")
        return STACK_LINE.findall(chosen)[::-1]

    def _ended(self, selector: selectors.BaseSelector) -> None:
        self._drain(selector)
        if self.done:
            return
        status = self.guarded.wait(GRACE)
        if status == CLOSED:
            how = "closed files that are not the environment's"
        elif status is None or status >= 0:
            how = f"ended by itself ({cause_of(status)})"
        else:
            how = f"was {cause_of(status)}{CRASHES.get(-status, '')}"
        self.faults.append(f"{self.call}: the process {how}{self._at()}")
        self._tell_tail()

    def _hangs(self, one_call: bool, selector: selectors.BaseSelector) -> None:
        (pid, *_) = *self.guarded.descendants(), 0
        stopped = " (its process is stopped)" if is_stopped(pid) else ""
        if pid:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(POLL)
        self._drain(selector)
        if one_call:
            late = f"did not come back within {self.limits.call:g} seconds"
            self.faults.append(f"{self.call} {late}{stopped}{self._at()}")
        else:
            self.faults.append(
                f"the check was not done after {self.limits.total / 60:g} minutes: {self.call}{self._at()}"
            )
        self._tell_tail()

    def _takes_too_much(self) -> bool:
        limit = self.limits.memory or _free_memory() * 0.75
        self.limits = self.limits._replace(memory=limit)
        taken = sum(map(_resident, self.guarded.descendants()))
        if taken > limit:
            self.faults.append(f"{self.call} took more than {limit / 1e9:.1f} GB of memory{self._at()}")
        return taken > limit

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """What is there already."""
        deadline = time.monotonic() + 1.0
        while selector.get_map() and (ready := selector.select(0)) and time.monotonic() < deadline:
            for key, _ in ready:
                piece = os.read(key.fd, 65_536)
                if not piece:
                    selector.unregister(key.fd)
                self._take(key.data, piece)

    def _tell_tail(self) -> None:
        text = printable(self.tails["stderr"].decode(errors="replace")).strip()
        if text:
            self.notes.append("The end of what it wrote to its standard error:\n" + text)

    def _note_what_is_left(self) -> None:
        if self.printed["stdout"]:
            count = self.printed["stdout"]
            self.notes.append(f"It printed {count:,} bytes; in training what environments print is discarded.")
        left = [pid for pid in self.guarded.descendants()[1:] if _command(pid)]
        if left and self.done:
            names = ", ".join(sorted({_command(pid) for pid in left}))
            self.notes.append(
                f"It left {len(left)} process{'es' * (len(left) > 1)} running after `close()` ({names}), ended now; "
                "in training they end with their worker."
            )


def _path() -> list[str]:
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


def _free_memory() -> float:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return float("inf")


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            return printable(file.read().strip())
    except OSError:
        return ""


def main(report: int) -> None:
    """The side that plays."""
    pipe = os.fdopen(report, "w", buffering=1, errors="replace")
    os.set_inheritable(report, False)
    faulthandler.enable(pipe, all_threads=True)
    faulthandler.register(signal.SIGUSR1, pipe, all_threads=True)
    task = json.load(sys.stdin)
    sys.path[:] = task["path"]

    def tell(kind: str, **values: str) -> None:
        try:
            pipe.write(json.dumps({"kind": kind, "pid": os.getpid(), **values}) + "\n")
        except (OSError, ValueError):
            os._exit(CLOSED)

    tell("call", call="its import", where="")
    from emu.envs import make
    from emu.envs.check import Observer, examine

    class Teller(Observer):
        def found(self, fault: str) -> None:
            tell("fault", text=fault)

        def calls(self, call: str, where: str = "") -> None:
            tell("call", call=call, where=where)

    observer = Teller()
    try:
        observer.calls("its constructor")
        env = make(task["name"], **task["args"])
        observer.calls("`spec`")
        tell("name", text=str(getattr(getattr(env, "spec", None), "name", task["name"])))
        examine(env, task["episodes"], 0, observer)
        observer.calls("`close()`")
        _close(env, observer)
    except EnvError as error:
        tell("refused", text=str(error))
    except BaseException as error:
        tell("refused", text=f"'{task['name']}' could not be checked: {described(error)}")
    tell("done")


def _close(env: Any, observer: Any) -> None:
    if callable(getattr(env, "close", None)):
        try:
            env.close()
        except (Exception, SystemExit) as error:
            observer.found(f"`close()` raised {described(error)}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
    while True:
        time.sleep(60)  # until the other side has looked at what is left running, and ends all of it
