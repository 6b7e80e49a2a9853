"""What a person sees."""

import io

import pytest
from rich.console import Console

from emu.training import progress as console
from emu.training.progress import Progress, human_bytes, human_time


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (24_400_000, "24.4 MB"), (4e12, "4.0 TB")])
def test_bytes_are_readable(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61, "1:01"), (3725, "1:02:05")])
def test_times_are_readable(seconds, text):
    assert human_time(seconds) == text


def test_speed_forgets_what_lies_further_back(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    progress = Progress(quiet=True)
    with progress.watching(total=100_000, done=0):
        clock[0] = 60.0  # a minute of compiling
        for step in range(100, 40_001, 100):
            clock[0] += 0.1
            progress.update(step, epsilon=0.5, episodes=1)
        assert progress.rate() == pytest.approx(1_000)


def test_a_log_file_gets_a_plain_line_per_test():
    text = io.StringIO()
    progress = Progress(Console(file=text, width=100))
    with progress.watching(total=1_000, done=0):
        progress.update(500, epsilon=0.5, episodes=3)
        progress.tested(500, {"test_win_rate": 0.25, "test_return": 1.5})
    assert "500/1,000" in text.getvalue() and "win 0.25  return 1.50" in text.getvalue()
    assert "\x1b" not in text.getvalue()


def test_a_terminal_gets_a_live_line():
    text = io.StringIO()
    progress = Progress(Console(file=text, width=120, force_terminal=True))
    with progress.watching(total=1_000, done=0):
        progress.tested(0, {"test_win_rate": 0.25, "test_return": 1.5})
        progress.update(500, epsilon=0.5, episodes=3, extra="memory 17")
    for word in ("500/1000", "ε 0.50", "win 0.25", "memory 17"):
        assert word in text.getvalue()


def test_warnings_are_not_read_as_markup():
    text = io.StringIO()
    Progress(Console(file=text, width=100)).warn("[bold]path[/] stays as it is")
    assert "[bold]path[/] stays as it is" in text.getvalue()
