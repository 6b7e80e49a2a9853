"""What a person sees."""

import io
import json
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

import emu
from emu.training import live
from emu.training.live import human_bytes, human_time
from emu.training.progress import Progress
from toys import tiny_config


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (24_400_000, "24.4 MB"), (4e12, "4.0 TB")])
def test_bytes_are_readable(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61, "1:01"), (3725, "1:02:05")])
def test_times_are_readable(seconds, text):
    assert human_time(seconds) == text


def test_speed_forgets_what_lies_further_back(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: clock[0])
    progress = Progress(quiet=True)
    with progress.watching(total=100_000, done=0):
        clock[0] = 60.0  # a minute of compiling
        for step in range(100, 40_001, 100):
            clock[0] += 0.1
            progress.update(step, epsilon=0.5, episodes=1)
        assert progress.rate() == pytest.approx(1_000)


def test_a_log_file_gets_a_plain_line_per_evaluation():
    text = io.StringIO()
    progress = Progress(Console(file=text, width=100))
    with progress.watching(total=1_000, done=0):
        progress.update(500, epsilon=0.5, episodes=3)
        progress.tested(500, {"test_win_rate": 0.25, "test_return": 1.5})
    assert "500/1,000" in text.getvalue() and "win 0.25  return 1.50" in text.getvalue()
    assert "\x1b" not in text.getvalue() and text.getvalue().count("\n") == 1


def test_a_log_file_hears_from_a_run_that_says_nothing_for_long(monkeypatch):
    text = io.StringIO()
    progress = Progress(Console(file=text, width=100))
    now = [100.0]
    monkeypatch.setattr("emu.training.progress.time.monotonic", lambda: now[0])
    with progress.watching(total=1_000, done=0):
        progress.begin("learner")
        progress.speak_if_silent()
        assert text.getvalue() == ""
        now[0] += 31.0
        progress.speak_if_silent()
        progress.speak_if_silent()
    assert text.getvalue().startswith("step 0/1,000  compiling the learner … 0:31") and text.getvalue().count("\n") == 1


def test_the_silence_is_broken_while_the_loop_waits(monkeypatch):
    monkeypatch.setattr("emu.training.progress.SILENCE", 0.0)
    monkeypatch.setattr("emu.training.progress.LOOK", 0.001)
    text = io.StringIO()
    progress = Progress(Console(file=text, width=100))
    with progress.watching(total=1_000, done=0):
        while not text.getvalue():  # ends with the first line, however long that takes
            time.sleep(0.001)
    assert text.getvalue().startswith("step 0/1,000")


STATUS = {
    "has_goal": True,
    "epsilon": 0.5,
    "extra": "memory 1,000,000",
    "evaluation": {"test_win_rate": 0.25, "test_return": 12.5},
}


def status(monkeypatch, **changes):
    """A long run at 1,234 steps a second."""
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    made = live.Status(**{**STATUS, **changes})
    made.begin(2_050_000, 1_000_000)
    now[0] = 10.0
    made.move(1_012_340)
    return made


@pytest.mark.parametrize(
    ("width", "fields"),
    [
        (60, "1,012,340/2,050,000  1,234 steps/s  14:00 left"),
        (80, "1,012,340/2,050,000  1,234 steps/s  14:00 left  win 0.25  return 12.50"),
        (100, "1,012,340/2,050,000  1,234 steps/s  14:00 left  win 0.25  return 12.50  ε 0.50"),
        (
            140,
            "1,012,340/2,050,000  1,234 steps/s  14:00 left  win 0.25  return 12.50  ε 0.50  memory 1,000,000  "
            "0:10 so far",
        ),
    ],
)
def test_the_live_line_never_breaks_and_leaves_room_for_what_ctrl_c_echoes(monkeypatch, width, fields):
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=True, no_color=True, color_system=None).print(status(monkeypatch))
    (line,) = text.getvalue().splitlines()
    assert line.startswith(f"{fields}  ━")
    assert len(line.rstrip()) <= width - len("^C")  # which the terminal writes behind it


def test_a_task_without_a_goal_shows_its_return_in_place_of_the_win_rate(monkeypatch):
    assert "left  return 12.50" in status(monkeypatch, has_goal=False).text(80)


def test_nothing_is_said_of_evaluations_that_have_not_been(monkeypatch):
    text = status(monkeypatch, evaluation={}).text(200)
    assert "win" not in text and "return" not in text and "nan" not in text


def test_what_is_done_for_the_first_time_is_being_compiled():
    progress = Progress(quiet=True)
    progress.begin("rollout")
    assert "compiling the rollout" in progress.status.text(200)
    progress.end("rollout")
    progress.begin("rollout")
    assert "compiling" not in progress.status.text(200)
    progress.begin("checkpoint")
    assert "…" not in progress.status.text(200)


def test_a_terminal_gets_a_live_line():
    text = io.StringIO()
    progress = Progress(Console(file=text, width=120, force_terminal=True))
    with progress.watching(total=1_000, done=0):
        progress.tested(0, {"test_win_rate": 0.25, "test_return": 1.5})
        progress.update(500, epsilon=0.5, episodes=3, extra="memory 17")
    for word in ("500/1,000", "ε 0.50", "win 0.25", "memory 17"):
        assert word in text.getvalue()


def test_a_resumed_run_shows_the_last_evaluation_before_its_checkpoint(tmp_path):
    rows = [
        {"step": 0, "test_win_rate": 0.0, "test_return": 0.1},
        {"step": 100, "test_win_rate": 0.5, "test_return": 0.2},
        {"step": 150, "train_return": 0.3},
        {"step": 200, "test_win_rate": 1.0, "test_return": 0.4},  # beyond the checkpoint: will be computed again
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    devices = SimpleNamespace(ravel=lambda: SimpleNamespace(tolist=lambda: [SimpleNamespace(platform="cpu")]))
    trainer = SimpleNamespace(
        env=SimpleNamespace(spec=emu.make_env("matrix/climbing").spec),
        counters=SimpleNamespace(step=160),
        folder=tmp_path,
        replay=SimpleNamespace(most_bytes=1),
        learner=SimpleNamespace(shards=SimpleNamespace(mesh=SimpleNamespace(devices=devices))),
    )
    progress = Progress(quiet=True)
    progress.header(tiny_config(), trainer)
    assert "return 0.20" in progress.status.text(200)


def test_a_closed_pipe_is_noticed_and_ends_nothing():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    progress = Progress(Console(file=Closed(), width=100))
    progress.warn("nobody reads this")
    progress.warn("nor this")
    assert progress.closed_by == "SIGPIPE" and progress.console.quiet


def test_quiet_says_nothing(capfd):
    progress = Progress(quiet=True)
    progress.starting("qmix on gridworld")
    with progress.watching(total=1_000, done=0):
        progress.tested(500, {"test_win_rate": 0.25, "test_return": 1.5})
        progress.warn("careful")
    assert capfd.readouterr() == ("", "")


def test_warnings_are_not_read_as_markup():
    text = io.StringIO()
    Progress(Console(file=text, width=100)).warn("[bold]path[/] stays as it is")
    assert "[bold]path[/] stays as it is" in text.getvalue()
