"""The scheduler with runs that are only pretended; the table; and one real process that dies with its parent."""

import io
import json
import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from emu.cli.app import main
from emu.errors import CheckpointError, EmuError
from emu.run.lock import RunLock
from emu.study.plan import run_one
from emu.study.plan.plans import Plan, grid
from emu.study.plan.sweep import RESTARTS, Processes, default_workers, local, run_plan, share_cores
from emu.study.plan.watch import LastValues, Line, Watch, last_values

from .fakes import FakeLauncher, complete


@pytest.fixture(autouse=True)
def no_cache_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_plan(seeds=4, algos=("vdn",)):
    return Plan("toy", "Toy", "", grid(["matrix/climbing"], algos, range(seeds), {}))


def go(plan, out, launcher, console=None):
    console = console or Console(file=io.StringIO(), width=200)
    outcome = run_plan(plan, out, ["emu", "sweep"], lambda: launcher, console, pause=0.0)
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]


def names(*seeds):
    return [f"matrix/climbing vdn seed {seed}" for seed in seeds]


def test_all_runs_are_run_once_in_order_and_no_more_at_a_time_than_there_are_slots(tmp_path):
    launcher = FakeLauncher(tmp_path, slots=2)
    outcome, text = go(make_plan(5), tmp_path, launcher)
    assert (outcome.finished, outcome.found, outcome.failed, outcome.stopped) == (5, 0, [], "")
    assert [name for name, _ in launcher.started] == names(0, 1, 2, 3, 4)
    assert launcher.most == 2 and {slot for _, slot in launcher.started} == {0, 1} and launcher.closed
    assert text.count("finished") == 5


def test_finished_runs_are_never_repeated(tmp_path):
    plan = make_plan(4)
    for run in plan.runs[:3]:
        complete(tmp_path / run.folder, run.config())
    launcher = FakeLauncher(tmp_path, slots=2)
    outcome, _ = go(plan, tmp_path, launcher)
    assert (outcome.finished, outcome.found) == (1, 3)
    assert [name for name, _ in launcher.started] == names(3)
    again = FakeLauncher(tmp_path, slots=2)
    outcome, text = go(plan, tmp_path, again)
    assert (outcome.finished, outcome.found, again.started) == (0, 4, [])
    assert "all 4 runs were finished before; nothing to do" in text


def test_a_failed_run_does_not_stop_the_rest_and_is_named_with_its_last_words(tmp_path):
    plan = make_plan(4)
    log = tmp_path / plan.runs[1].log
    log.parent.mkdir(parents=True)
    log.write_text("header\nerror Training diverged at step 3\n\n")
    outcome, text = go(plan, tmp_path, FakeLauncher(tmp_path, 2, {names(1)[0]: [2]}))
    assert outcome.finished == 3
    assert [(run.seed, why) for run, why in outcome.failed] == [(1, "error Training diverged at step 3")]
    assert "failed: error Training diverged" in text


def test_a_run_killed_by_a_signal_goes_on_at_once(tmp_path):
    launcher = FakeLauncher(tmp_path, 1, {names(0)[0]: [-9, -9]})
    outcome, text = go(make_plan(2), tmp_path, launcher)
    assert outcome.finished == 2 and not outcome.failed
    assert [name for name, _ in launcher.started] == names(0, 0, 0, 1)
    assert "killed by signal 9, goes on" in text


def test_a_run_that_is_killed_again_and_again_fails(tmp_path):
    launcher = FakeLauncher(tmp_path, 2, {names(0)[0]: [-9] * 10})
    outcome, _ = go(make_plan(2), tmp_path, launcher)
    assert len(launcher.started) == 1 + RESTARTS + 1
    assert [why for _, why in outcome.failed] == ["killed by signal 9"]


def test_a_run_that_ends_well_without_its_last_test_is_a_failure(tmp_path):
    launcher = FakeLauncher(tmp_path, 1)
    launcher.start = lambda run, slot: FakeLauncher.start(FakeLauncher(tmp_path / "elsewhere", 1), run, slot)
    outcome, _ = go(make_plan(1), tmp_path, launcher)
    assert [why for _, why in outcome.failed] == ["ended before its last step"]


def test_a_process_that_cannot_be_started_is_a_failure(tmp_path):
    launcher = FakeLauncher(tmp_path, 1)

    def refuse(run, slot):
        raise OSError("no more processes")

    launcher.start = refuse
    outcome, _ = go(make_plan(2), tmp_path, launcher)
    assert [why for _, why in outcome.failed] == ["could not be started: no more processes"] * 2


def test_nothing_starts_when_one_folder_belongs_to_another_run(tmp_path):
    plan = make_plan(3)
    complete(tmp_path / plan.runs[2].folder, plan.runs[1].config())
    launcher = FakeLauncher(tmp_path, 2)
    with pytest.raises(EmuError, match=r"seed2 holds a run with other settings \(seed 1 instead of 2\)"):
        go(plan, tmp_path, launcher)
    assert not launcher.started and not (tmp_path / "study.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_runs_under_way_save_and_leaves_the_rest(tmp_path, number):
    launcher = FakeLauncher(tmp_path, 2, looks=10**9)
    before = signal.getsignal(number)
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    outcome, text = go(make_plan(4), tmp_path, launcher)
    assert outcome.stopped == number.name and outcome.finished == 0 and not outcome.failed
    assert [handle.stopped for handle in launcher.handles] == [True, True]
    assert not any(handle.killed for handle in launcher.handles) and len(launcher.started) == 2
    assert "Stopping" in text and signal.getsignal(number) == before


def test_a_second_sweep_in_the_same_folder_is_refused(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(CheckpointError, match="in use by another process"):
        go(make_plan(1), tmp_path, FakeLauncher(tmp_path, 1))
    lock.release()


# Cores


@given(st.lists(st.integers(0, 200), min_size=1, unique=True), st.integers(1, 40))
def test_cores_are_all_used_and_not_shared_while_there_are_enough(cores, workers):
    shares = share_cores(cores, workers)
    assert len(shares) == workers and all(shares)
    if workers <= len(cores):
        assert sorted(core for share in shares for core in share) == sorted(cores)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    else:
        assert all(len(share) == 1 for share in shares)


def test_as_many_runs_at_a_time_as_cores_allow(monkeypatch):
    monkeypatch.setattr("emu.study.plan.sweep.available_cores", lambda: [0, 1, 2, 3, 4])
    assert default_workers(make_plan(1).runs) == 5
    assert default_workers(grid(["gridworld"], ["vdn"], [0], {"devices": [2]})) == 2
    assert default_workers(grid(["gridworld"], ["vdn"], [0], {"devices": [8]})) == 1


def test_a_negative_number_of_workers_is_refused(tmp_path):
    with pytest.raises(EmuError, match="--workers"):
        local(tmp_path, [], -1, [])


# The table


def test_the_end_of_the_metrics_tells_step_and_last_test(tmp_path):
    assert last_values(tmp_path) == LastValues()
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 5, "test_win_rate": 0.5, "test_return": 3.0}\n{"step": 9, "td_loss": 1}\n{"step": 11, "td'
    )
    assert last_values(tmp_path) == LastValues(9, 0.5, 3.0)
    path.write_text('{"step": 2, "td_loss": 1}\n')
    assert last_values(tmp_path, LastValues(9, 0.5, 3.0)) == LastValues(2, 0.5, 3.0)


def test_speed_and_time_left_follow_the_steps(tmp_path):
    run = make_plan(1).runs[0]
    complete(tmp_path / run.folder, run.config(), step=1_000)
    line = Line(run, tmp_path, 20_000, "running")
    line.update(100.0)
    complete(tmp_path / run.folder, run.config(), step=2_000)
    line.update(110.0)
    assert line.rate() == 100.0 and line.left() == 18_000
    complete(tmp_path / run.folder, run.config(), step=500)  # killed, and back at an earlier checkpoint
    line.update(120.0)
    assert line.rate() == 0.0 and line.left() == 19_500


def test_on_a_terminal_a_table_shows_every_run_and_the_most_urgent_ones_when_there_is_no_room(tmp_path):
    runs = make_plan(30).runs
    lines = [Line(run, tmp_path, 20_000, "waiting") for run in runs]
    lines[7].state, lines[29].state, lines[8].state = "running", "failed", "finished"
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=60)
    watch = Watch(lines, "Toy", console)
    assert watch.table().row_count == 30
    console.height = 10
    shown = watch._shown()
    assert len(shown) == 5 and lines[7] in shown and lines[29] in shown and lines[8] not in shown
    with watch:
        watch.event(lines[0], "finished")
        watch.update()
    assert "30 runs: 1 failed, 2 finished, 1 running, 26 waiting" in console.file.getvalue()  # type: ignore[attr-defined]


# Processes


def test_a_run_dies_with_whoever_started_it(tmp_path):
    """The kernel closes a dead parent's end of the pipe; so does this test."""
    launcher = Processes(tmp_path, 1, ["emu"])
    handle = launcher.start(make_plan(1).runs[0], 0)
    process = handle._process
    assert process.poll() is None
    process.stdin.close()  # type: ignore[union-attr]
    assert process.wait(60) == run_one.ORPHANED


def test_a_process_waits_for_another_one_to_leave_the_folder(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(CheckpointError):
        run_one.wait_for_folder(tmp_path, patience=0.0)
    threading.Timer(0.3, lock.release).start()
    run_one.wait_for_folder(tmp_path, patience=30.0)
    run_one.wait_for_folder(tmp_path / "nothing", patience=0.0)


# The command


def test_the_command_trains_and_does_not_repeat_itself(tmp_path, capfd):
    words = ["sweep", "--algos", "vdn", "--envs", "matrix/coordination", "--seeds", "0-1", "--workers", "1"]
    words += ["--set", "steps=64", "agent.hidden=8", "learner.batch_size=4", "replay.episodes=32"]
    words += ["learner.length_buckets=1", "rollout.envs=4", "--out", str(tmp_path / "s")]
    assert main(words) == 0
    folders = [tmp_path / "s" / "runs" / "matrix-coordination" / "vdn" / f"seed{seed}" for seed in (0, 1)]
    before = [(folder / "metrics.jsonl").stat().st_mtime_ns for folder in folders]
    meta = json.loads((folders[0] / "meta.json").read_text())
    assert meta["command"][:2] == ["emu", "sweep"] and meta["devices"] == ["cpu:0"]
    assert main(words) == 0
    assert [(folder / "metrics.jsonl").stat().st_mtime_ns for folder in folders] == before
    text = capfd.readouterr()
    assert "2 runs finished, 0 were finished before, 0 failed" in text.out
    assert "0 runs finished, 2 were finished before, 0 failed" in text.out


def test_a_failed_run_is_named_with_its_log_and_the_status_says_so(tmp_path, capfd):
    folder = tmp_path / "runs" / "matrix-coordination" / "vdn" / "seed0"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("not a run")
    assert main(["sweep", "--algos", "vdn", "--envs", "matrix/coordination", "--out", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert f"failed matrix/coordination vdn seed 0: error {folder} already exists" in out
    assert str(tmp_path / "logs" / "matrix-coordination" / "vdn" / "seed0.log") in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algos", "vdnn", "--envs", "gridworld"], "No algorithm is called 'vdnn'"),
        (["--algos", "vdn", "--envs", "gridwrld"], "No environment is called 'gridwrld'"),
        (["--algos", "vdn", "--envs", "gridworld", "--seeds", "x"], "is not a list of seeds"),
        (["--algos", "vdn", "--envs", "gridworld", "--set", "learner.gama=1"], "Unknown configuration key"),
        (["--algos", "vdn", "--envs", "gridworld", "--workers", "2", "--cluster", "auto"], "--workers is for this"),
    ],
)
def test_bad_input_is_explained(words, message, tmp_path, capsys):
    assert main(["sweep", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
