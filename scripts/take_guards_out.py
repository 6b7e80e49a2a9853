"""Take every guard out of the code, one at a time, and see its tests fail: that is what shows that they can.

    python scripts/take_guards_out.py                    # all of them: a quarter of an hour
    python scripts/take_guards_out.py --items 1 2 0      # those of some faults; 0 are the bad inputs, without a number
    python scripts/take_guards_out.py --items 6 --why    # and how each test failed

The table is `tests/attack/guards.py`. For each guard the package is copied, the guard is replaced in the copy, and its
tests run with the copy in front of the path, for themselves and for every process that they start. All of them must
fail; one that hangs or takes Python down with it has failed, too. Exits with 1 if a guard survives, that is, if nobody
would notice that it is gone, or if its replacement breaks more than the guard.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from attack.guards import GUARDS, Guard  # noqa: E402
from emu.envs.workers.guardian import PR_SET_CHILD_SUBREAPER, control, end_descendants  # noqa: E402

PATIENCE = 120.0  # seconds after which a test hangs
MEMORY = 8 << 30  # bytes that a test may take: what was taken out may have been a limit
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-rfE")
FAILS, SURVIVES, BROKEN, ANYWAY = "fails without it", "SURVIVES", "BROKEN", "FAILS ANYWAY"
MISTAKE = re.compile(r"^E +(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError)", re.MULTILINE)
WIDTH = {"what": 48, "tests": 19}  # of columns, in characters; with the others a line has 100


class Ended(NamedTuple):
    """How pytest ended; no status: it did not."""

    status: int | None
    output: str

    @property
    def verdict(self) -> str:
        """Of one test, without its guard. A status of 1 means that it failed; below 0, that Python was killed."""
        if self.status == 0:
            return SURVIVES
        failed = self.status is None or self.status < 0 or self.status == 1
        return FAILS if failed and not MISTAKE.search(self.output) else BROKEN

    @property
    def why(self) -> str:
        if self.status is None:
            return f"no end after {PATIENCE:g} seconds"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        lines = re.findall(r"^E +(.+)$", self.output, re.MULTILINE) or self.output.splitlines()[-1:]
        return lines[0] if lines else ""


class Copy:
    """A folder with the package in it, for tests to run on."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder, self.source = folder.resolve(), folder.resolve() / "src"
        shutil.copytree(package, self.source)  # with times of change, so that compiled kernels need no second compiling
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),  # what fails here is not to be tried elsewhere
        }
        words = [sys.executable, "-c", "import emu; print(emu.__file__)"]
        found = subprocess.run(words, cwd=ROOT, env=self.environment, capture_output=True, text=True).stdout.strip()
        if found != str(self.source / "emu" / "__init__.py"):
            raise SystemExit(f"The tests would run on {found or 'no package at all'}, not on the copy.")

    def without(self, guard: Guard) -> None:
        path = self.source / "emu" / guard.file
        content = path.read_text("utf-8")
        if content.count(guard.text) != 1:
            raise SystemExit(
                f"{guard.file} does not hold the guard '{guard.what}' once. Run tests/attack/test_guards.py."
            )
        path.write_text(content.replace(guard.text, guard.without), "utf-8")

    def run(self, tests: list[str], patience: float | None = PATIENCE) -> Ended:
        """Run some tests in a process of its own; nothing that they start is left."""
        words = [sys.executable, *PYTEST, "--basetemp", str(self.folder / "tmp"), *tests]
        with tempfile.TemporaryFile() as output:  # no pipe: what a test leaves running could keep it open
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=begin,
            )
            try:
                status = process.wait(patience)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                end_descendants(os.getpid())
            output.seek(0)
            return Ended(status, output.read().decode(errors="replace"))


def begin() -> None:
    """In a process of tests: its memory is bounded, as is that of those it starts, and signals mean what they mean."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for number in (signal.SIGHUP, signal.SIGINT):  # `nohup` and shells in the background have them ignored
        signal.signal(number, signal.SIG_DFL)


def failing_anyway(copy: Copy, guards: list[Guard]) -> set[str]:
    """The tests that fail with every guard in its place, and so would show nothing."""
    tests = list(dict.fromkeys(test for guard in guards for test in guard.tests))
    print(f"{len(tests)} tests with all guards in place ...", flush=True)
    ended = copy.run(tests, patience=None)
    summary = ended.output.strip().splitlines()[-1:]
    print(*summary, flush=True)
    if ended.status == 0:
        return set()
    failed = {
        test for test in tests if re.search(rf"^(FAILED|ERROR) {re.escape(test)}( |$)", ended.output, re.MULTILINE)
    }
    for test in sorted(failed) or ["none that has a name here"]:
        print(f"fails there already: {test}")
    return failed or set(tests)


def verdict_on(guard: Guard, base: Path, failed: set[str]) -> tuple[str, list[str]]:
    """What becomes of a guard's tests without it, and why."""
    if failed & set(guard.tests):
        return ANYWAY, []
    with tempfile.TemporaryDirectory(prefix="guards-", ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder), base)
        copy.without(guard)
        ended = [copy.run([test]) for test in guard.tests]
    found = {each.verdict for each in ended}
    why = [f"{each.verdict}: {each.why}" for each in ended]
    return next((verdict for verdict in (BROKEN, SURVIVES) if verdict in found), FAILS), why


def named(tests: tuple[str, ...]) -> str:
    """The files of some tests, briefly."""
    files = dict.fromkeys(Path(test.partition("::")[0]).stem.removeprefix("test_") for test in tests)
    return f"{len(tests)} in {', '.join(files)}"


def row(number: str, item: str, what: str, tests: str, verdict: str) -> str:
    cut = {"what": what, "tests": tests}
    cells = {name: text if len(text) <= WIDTH[name] else f"{text[: WIDTH[name] - 1]}…" for name, text in cut.items()}
    return f"{number:>6} {item:>4}  {cells['what']:<{WIDTH['what']}}  {cells['tests']:<{WIDTH['tests']}}  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", nargs="*", type=int, help="only the guards of these faults (0: bad inputs)")
    parser.add_argument("--why", action="store_true", help="also say how each test failed")
    options = parser.parse_args()
    guards = [guard for guard in GUARDS if options.items is None or guard.item in options.items]
    control(PR_SET_CHILD_SUBREAPER, 1)  # processes that a test leaves behind become ours, and end
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="guards-", ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder), ROOT / "src")
        failed = failing_anyway(copy, guards)
        print(row("", "item", "guard", "tests", "verdict"))
        for number, guard in enumerate(guards, 1):
            verdict, why = verdict_on(guard, copy.source, failed)
            verdicts.append(verdict)
            item = str(guard.item) if guard.item else "low"
            print(row(f"{number}/{len(guards)}", item, guard.what, named(guard.tests), verdict), flush=True)
            for line in why if options.why or verdict != FAILS else ():
                print(f"{'':13}{line[:86]}", flush=True)
    lost = len(verdicts) - verdicts.count(FAILS)
    print(
        f"{len(verdicts)} guards: without each of {verdicts.count(FAILS)} its tests fail, without {lost} they do not."
    )
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
