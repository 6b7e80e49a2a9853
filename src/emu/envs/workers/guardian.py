"""The process between the supervisor and a worker: whatever the worker starts ends with it, however either ends.

    python -I -S guardian.py LIFELINE ALSO COMMAND...

runs the command in a session of its own and ends with its status. Everything the command started, `setsid` or not, is
ended when the command ends, or when the other end of the lifeline (a pipe) closes because the supervisor lets go or is
gone; this process stands outside of the command's groups, so stopping those does not stop it. ALSO lists processes of
the supervisor (`pid:start,...`) that must not outlive it; they are ended only when the supervisor goes first.

On Linux orphans are adopted (PR_SET_CHILD_SUBREAPER) and found through /proc. Elsewhere only the command's process
group is ended. This file imports nothing but the standard library, and is started as a file, not as a module, so that
it costs little time and memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 5.0  # seconds in which killed processes must be gone
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def main(lifeline: int, also: str, command: list[str]) -> None:
    os.set_inheritable(lifeline, False)
    control(PR_SET_CHILD_SUBREAPER, 1)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *ENDING):
        signal.signal(number, lambda *_: None)  # the wake-up is enough
    worker = start(command)
    close_all_but(lifeline, woken, waker)
    status = watch(worker, lifeline, woken)
    end_group(worker)
    end_descendants(os.getpid())
    if status is None:
        end_others(also)
    end_like(status)


def start(command: list[str]) -> int:
    """The command as a child that leads a session of its own and is killed with this process."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGCHLD, *ENDING):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() == parent:
            os.execv(command[0], command)
    finally:
        os._exit(127)


def watch(worker: int, lifeline: int, woken: int) -> int | None:
    """The worker's status when it ends; None: the supervisor let go, or this process was told to end."""
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if woken in ready and set(os.read(woken, 4096)) & set(ENDING):
            return None
        status = reap(worker)
        if status is not None:
            return status
        if lifeline in ready:
            return None


def reap(worker: int) -> int | None:
    """Bury all children that have ended, adopted ones too; the worker's status if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == worker:
                found = status
    return found


def end_like(status: int | None) -> None:
    """End as the worker did."""
    if status is not None and os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(0 if status is None else os.waitstatus_to_exitcode(status))


def control(option: int, value: int) -> bool:
    """Linux's `prctl`; False where there is none."""
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0
    return False


def end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_descendants(root: int) -> None:
    """Kill all descendants of a process, also stopped ones and those that they start meanwhile.

    One empty look does not prove that none is left: orphans change their parents while we look.
    """
    deadline, empty = time.monotonic() + PATIENCE, 0
    while empty < 2 and time.monotonic() < deadline:
        left = descendants(root)
        empty = 0 if left else empty + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            reap(-1)
        time.sleep(0.01)


def end_others(also: str) -> None:
    """Kill processes named as `pid:start`, and their descendants; a number that was given anew is left alone."""
    for entry in filter(None, also.split(",")):
        pid, begun = (int(word) for word in entry.split(":"))
        if begun_at(pid) == begun:
            end_descendants(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Living processes below this one, nearest first; none where there is no /proc.

    The dead count as parents as long as they are listed: their children may have been looked at a moment earlier.
    """
    children: dict[int, list[int]] = {}
    dead = set()
    for name in _numbers_in("/proc"):
        if fields := _stat(name):
            children.setdefault(int(fields[1]), []).append(int(name))
            if fields[0] in "ZX":
                dead.add(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return [pid for pid in found[1:] if pid not in dead]


def begun_at(pid: int) -> int | None:
    """When a process began, in ticks; together with its number that names it for good."""
    fields = _stat(str(pid))
    return int(fields[19]) if fields else None


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, or a terminal."""
    return _stat(str(pid))[:1] in (["T"], ["t"])


def _numbers_in(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def _stat(pid: str) -> list[str]:
    """The fields behind the name: state, parent, ..."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def close_all_but(*kept: int) -> None:
    """All inherited descriptors are the worker's; only standard error stays."""
    ends = [*sorted(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
    for before, after in zip([2, *ends], ends, strict=False):
        os.closerange(before + 1, after)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
