"""Checkpoints: exact round trips, every kind of damage noticed, nothing lost on a full disk or a sudden end."""

import errno
import json
import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest

from emu.errors import CheckpointError
from emu.files import replace_arrays
from emu.replay.episodes import Replay
from emu.run.best import save_best
from emu.run.checkpoint import Checkpoints, Content, _fingerprints
from toys import CountingEnv, flip_byte, make_episode, same_episode

from .trees import same_tree, some_tree

SPEC = CountingEnv().spec
ARRAYS = {"begun": np.arange(3), "obs": np.ones((2, 3), np.float32)}


def filled_replay(count, capacity=5, first=0):
    replay = Replay(SPEC, capacity, 10**6)
    replay.add(make_episode(SPEC, 1 + n % 7, n) for n in range(first, first + count))
    return replay


def loaded(run, replay=None, keep=2, warnings=None):
    replay = replay or Replay(SPEC, 5, 10**6)
    warn = warnings.append if warnings is not None else pytest.fail
    return Checkpoints(run, keep).load(some_tree(0.0), replay, warn), replay


def segments_of(run):
    """The names of the segments, without those of their parities."""
    return sorted(path.name for path in (run / "replay").glob("episodes-*.npz"))


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of steps 100 and 200."""
    checkpoints, replay = Checkpoints(tmp_path, 2), filled_replay(4)
    checkpoints.save(100, Content(some_tree(1.0), ARRAYS, {"counters": 1}), replay)
    replay.add([make_episode(SPEC, 2, 4), make_episode(SPEC, 3, 5)])
    checkpoints.save(200, Content(some_tree(2.0), ARRAYS, {"counters": 2}), replay)
    return tmp_path


def test_everything_comes_back(run):
    (tree, arrays, state, folder, _), replay = loaded(run)
    same_tree(tree, some_tree(2.0))
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert state["counters"] == 2 and folder.name == "000000000200"
    assert (replay.added, replay.first, len(replay)) == (6, 1, 5)
    for number, episode in enumerate(replay.since(0), start=1):
        assert same_episode(episode, make_episode(SPEC, {4: 2, 5: 3}.get(number, 1 + number % 7), number))


def test_log_probabilities_come_back_and_taken_episodes_do_not(tmp_path):
    replay = Replay(SPEC, 10, 10**6)
    checkpoints = Checkpoints(tmp_path, 2)
    replay.add(make_episode(SPEC, 2, n, log_prob=True) for n in range(5))
    checkpoints.save(1, Content(some_tree(), ARRAYS, {}), replay)
    replay.take(3)
    replay.add([make_episode(SPEC, 3, 5, log_prob=True)])
    checkpoints.save(2, Content(some_tree(), ARRAYS, {}), replay)
    _, restored = loaded(tmp_path)
    assert (restored.first, restored.added) == (3, 6)
    assert all(same_episode(a, b) for a, b in zip(restored.since(0), replay.since(0), strict=True))


def test_an_empty_replay_can_be_saved(tmp_path):
    Checkpoints(tmp_path, 2).save(5, Content(some_tree(), ARRAYS, {}), Replay(SPEC, 5, 10**6))
    _, replay = loaded(tmp_path)
    assert len(replay) == replay.added == 0


def test_no_file_needs_pickle(run):
    """Neither by its name nor by its content: nothing in the folder begins as a pickle, no array holds objects."""
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".npz", ".parity", ".safetensors", ".json"}
    assert len([path for path in files if path.suffix in (".npz", ".parity")]) == 6
    for path in files:
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(path.read_bytes())
        if path.suffix in (".npz", ".parity"):
            with np.load(path, allow_pickle=False) as stored:
                assert stored.files and all(stored[name].dtype != object for name in stored.files)


def test_episodes_are_written_once(run):
    segments = {path.name: path.stat().st_mtime_ns for path in (run / "replay").iterdir()}
    assert segments_of(run) == ["episodes-000000000-000000003.npz", "episodes-000000004-000000005.npz"]
    checkpoints = Checkpoints(run, 2)
    replay = Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    replay.add([make_episode(SPEC, 1, 6)])
    checkpoints.save(300, Content(some_tree(), ARRAYS, {}), replay)
    after = {path.name: path.stat().st_mtime_ns for path in (run / "replay").iterdir()}
    assert set(after) - set(segments) == {f"episodes-000000006-000000006.{end}" for end in ("npz", "parity")}
    assert all(after[name] == segments[name] for name in segments)


def test_old_checkpoints_and_segments_nobody_needs_are_removed(tmp_path):
    checkpoints, replay = Checkpoints(tmp_path, 2), Replay(SPEC, 3, 10**6)
    for step in range(1, 8):
        replay.add([make_episode(SPEC, 1, step)])
        checkpoints.save(step, Content(some_tree(), ARRAYS, {}), replay)
    assert checkpoints.steps() == [6, 7]
    # step 6 holds episodes 3, 4, 5 (numbered from 0) and step 7 holds 4, 5, 6
    assert [name[9:18] for name in segments_of(tmp_path)] == [f"{n:09d}" for n in (3, 4, 5, 6)]
    assert len(list((tmp_path / "replay").iterdir())) == 8


def test_leftovers_of_a_killed_process_are_removed(run):
    (run / "checkpoints" / ".writing-300").mkdir()
    (run / "checkpoints" / ".writing-300" / "half").write_text("x")
    for name in (".episodes-000000006-000000007.npz.part", "episodes-000000006-000000007.npz"):
        (run / "replay" / name).write_text("x")
    loaded(run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000000000100", "000000000200"]
    assert len(list((run / "replay").iterdir())) == 4


def test_other_peoples_files_are_never_removed(run):
    """A thesis was once kept in a folder called replay."""
    precious = [run / "replay" / name for name in ("thesis.tex", "episodes.npz", "episodes-1-2.npz", "a.part")]
    precious += [run / "checkpoints" / "notes.txt", run / "checkpoints" / "damaged-thesis"]
    for path in precious:
        path.write_text("precious")
    (run / "replay" / "episodes-000000008-000000009.npz").mkdir()  # our name, but no file
    checkpoints, replay = Checkpoints(run, 1), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    replay.add(make_episode(SPEC, 1, n) for n in range(6, 20))
    checkpoints.save(300, Content(some_tree(), ARRAYS, {}), replay)
    assert all(path.read_text() == "precious" for path in precious)


@pytest.mark.parametrize("name", ["replay", "checkpoints"])
def test_nothing_is_ever_removed_through_a_symbolic_link(run, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "episodes-000000006-000000007.npz").write_text("precious")
    (elsewhere / "000000000001").mkdir()
    shutil.rmtree(run / name)
    (run / name).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a symbolic link"):
        loaded(run)
    assert len(list(elsewhere.iterdir())) == 2


def files_of(run, step):
    folder = run / "checkpoints" / f"{step:012d}"
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    return [folder / name for name in names]


def test_a_flipped_byte_in_any_file_of_a_checkpoint_is_noticed(run, tmp_path_factory):
    for number, path in enumerate(files_of(run, 200)):
        copy = tmp_path_factory.mktemp("copy") / "run"
        shutil.copytree(run, copy)
        flip_byte(copy / path.relative_to(run), where=(number % 5) / 4)
        warnings: list[str] = []
        (tree, _, state, *_), _ = loaded(copy, warnings=warnings)
        assert len(warnings) == 1 and "000000000200" in warnings[0] and "Falling back" in warnings[0], path
        assert (copy / "checkpoints" / "damaged-000000000200").is_dir() and not (copy / path.relative_to(run)).exists()
        assert state["counters"] == 1
        same_tree(tree, some_tree(1.0))


OLD, NEW = "episodes-000000000-000000003.npz", "episodes-000000004-000000005.npz"


@pytest.mark.parametrize("name", [OLD, NEW])
def test_a_flipped_byte_in_a_segment_costs_nothing(run, name):
    """Both checkpoints share the older segment, yet keeping two of them means two: the parity puts it right."""
    whole = (run / "replay" / name).read_bytes()
    flip_byte(run / "replay" / name)
    (_, _, state, _, lost), replay = loaded(run)
    assert (state["counters"], lost, replay.added, len(replay)) == (2, 0, 6, 5)
    assert (run / "replay" / name).read_bytes() == whole


def ruin(path):
    """Damage that no parity puts right."""
    path.write_bytes(path.read_bytes()[:-100])


def test_a_ruined_segment_that_only_the_latest_needs_falls_back_to_the_one_before(run):
    ruin(run / "replay" / NEW)
    warnings: list[str] = []
    (_, _, state, _, lost), replay = loaded(run, warnings=warnings)
    assert f"{NEW} is damaged" in warnings[0]
    assert (state["counters"], lost, replay.added) == (1, 0, 4)
    assert Checkpoints(run, 2).steps() == [100, 200], "its own files are whole, so it is not set aside"


def test_a_ruined_segment_that_all_need_costs_its_episodes_and_nothing_else(run):
    ruin(run / "replay" / OLD)
    warnings: list[str] = []
    (tree, _, state, _, lost), replay = loaded(run, warnings=warnings)
    same_tree(tree, some_tree(2.0))
    assert (state["counters"], lost, len(replay), replay.added) == (2, 3, 2, 6)
    assert "WITHOUT 3 of 5 episodes" in warnings[-1]
    assert [same_episode(e, make_episode(SPEC, n, n + 2)) for n, e in enumerate(replay.since(0), 2)] == [True, True]


def test_after_losing_episodes_the_run_saves_and_loads_what_is_left(run):
    ruin(run / "replay" / OLD)
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, lambda _: None)
    replay.add([make_episode(SPEC, 1, 6)])
    checkpoints.save(300, Content(some_tree(3.0), ARRAYS, {"counters": 3}), replay)
    (_, _, state, _, lost), again = loaded(run)
    assert (state["counters"], lost, again.added, len(again)) == (3, 0, 7, 3)
    assert all(same_episode(a, b) for a, b in zip(again.since(0), replay.since(0), strict=True))


def test_looking_at_a_damaged_run_changes_nothing(run):
    flip_byte(run / "checkpoints" / "000000000200" / "state.json")
    flip_byte(run / "replay" / OLD)
    (run / "checkpoints" / ".writing-300").mkdir()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    Checkpoints(run, 1).load(some_tree(), Replay(SPEC, 5, 10**6), lambda _: None, read_only=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert (run / "checkpoints" / ".writing-300").is_dir()


def test_after_a_fall_back_the_run_saves_again(run):
    flip_byte(run / "checkpoints" / "000000000200" / "rollout.npz")
    warnings: list[str] = []
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, warnings.append)
    replay.add([make_episode(SPEC, 2, 4), make_episode(SPEC, 3, 5)])
    checkpoints.save(200, Content(some_tree(5.0), ARRAYS, {"counters": 5}), replay)
    (tree, _, state, *_), again = loaded(run)
    assert state["counters"] == 5 and again.added == 6
    same_tree(tree, some_tree(5.0))


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "rollout.npz"])
def test_missing_and_empty_files_are_noticed(run, name):
    path = run / "checkpoints" / "000000000200" / name
    path.write_bytes(b"") if name != "state.json" else path.unlink()
    warnings: list[str] = []
    (_, _, state, *_), _ = loaded(run, warnings=warnings)
    assert state["counters"] == 1 and len(warnings) == 1


def test_when_all_are_damaged_the_message_says_what_to_do(run):
    for step in (100, 200):
        flip_byte(run / "checkpoints" / f"{step:012d}" / "state.json")
    with pytest.raises(CheckpointError, match=r"no checkpoint that can be read.*emu train.*--restart"):
        loaded(run, warnings=[])
    assert [path.name for path in Checkpoints(run, 2).set_aside()] == ["damaged-000000000100", "damaged-000000000200"]


def test_a_tree_that_does_not_fit_leaves_every_checkpoint_where_it_is(run):
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        Checkpoints(run, 2).load({"other": np.zeros(3)}, Replay(SPEC, 5, 10**6), pytest.fail)
    assert Checkpoints(run, 2).steps() == [100, 200]


@pytest.mark.parametrize("name", ["tree.safetensors", "manifest.json", "state.json"])
def test_a_file_that_cannot_be_read_at_the_moment_leaves_every_checkpoint_where_it_is(run, monkeypatch, name):
    """Permissions, a network share that is away: `root` may read anything, so the error is made."""
    from pathlib import Path

    original = Path.open

    def denied(self, *args, **kwargs):
        if self.name == name and self.parent.name == "000000000200":
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(CheckpointError, match="Permission denied"):
        loaded(run)
    assert Checkpoints(run, 2).steps() == [100, 200]


def test_a_checkpoint_of_another_format_is_refused_with_its_number_and_left_alone(run):
    newest = run / "checkpoints" / "000000000200"
    entries = json.loads((newest / "manifest.json").read_text())["files"]
    for content, number in ((entries, 1), ({"format": 3, "files": entries}, 3)):
        (newest / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match=rf"has format {number}; this version of emu reads format 2"):
            loaded(run)
    assert Checkpoints(run, 2).steps() == [100, 200]


NAMES = ["a[b]c", "with space", "ünïcödé-日本", 'it\'s "quoted"', "*?", "a\nb", "%s {0} $HOME", "[/bold]", "x" * 250]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_checkpoints_are_read_back_whatever_the_path_is_called(tmp_path, name):
    folder = tmp_path / name / "run"
    checkpoints = Checkpoints(folder, 2)
    checkpoints.save(100, Content(some_tree(1.0), ARRAYS, {"counters": 1}), filled_replay(4))
    save_best(folder, some_tree(1.0), 100, {})
    (tree, _, state, *_), replay = loaded(folder)
    same_tree(tree, some_tree(1.0))
    assert state["counters"] == 1 and replay.added == 4


def refuse_to_save(run, monkeypatch, victim, corrupting):
    """The disk keeps something else than it was given: said at once, and the earlier checkpoint stays."""
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="step 200 is intact"):
        patch.setattr(f"emu.run.checkpoint.{victim}", corrupting)
        checkpoints.save(300, Content(some_tree(), ARRAYS, {}), replay)
    assert checkpoints.steps() == [100, 200]


@pytest.mark.parametrize("name", ["rollout.npz", "state.json", "tree.safetensors"])
def test_what_does_not_read_back_is_no_checkpoint(run, monkeypatch, name):
    def corrupting(folder):
        made = _fingerprints(folder)
        flip_byte(folder / name)
        return made

    refuse_to_save(run, monkeypatch, "_fingerprints", corrupting)


def test_unfinished_episodes_that_were_written_wrongly_are_no_checkpoint(run, monkeypatch):
    """The manifest is made of what is on the disk, so that it fits even this."""

    def corrupting(path, arrays, **options):
        replace_arrays(path, {**arrays, "begun": arrays["begun"] + 1}, **options)

    refuse_to_save(run, monkeypatch, "replace_arrays", corrupting)


def test_damaged_checkpoints_are_kept_aside(run):
    flip_byte(run / "checkpoints" / "000000000200" / "state.json")
    loaded(run, warnings=[])
    assert (run / "checkpoints" / "damaged-000000000200").is_dir()


# A full disk


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("victim", ["Segment.write", "save_tree", "replace_arrays", "replace_json"])
def test_a_full_disk_leaves_the_earlier_checkpoint_whole(run, monkeypatch, victim):
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    replay.add([make_episode(SPEC, 1, 6)])
    with monkeypatch.context() as patch:
        patch.setattr(f"emu.run.checkpoint.{victim}", no_space)
        with pytest.raises(CheckpointError, match=r"the disk is full.*step 200 is intact.*emu resume"):
            checkpoints.save(300, Content(some_tree(3.0), ARRAYS, {}), replay)
    assert not list((run / "checkpoints").glob(".writing*"))
    checkpoints.save(300, Content(some_tree(3.0), ARRAYS, {"counters": 3}), replay)  # there is room again
    (tree, _, state, *_), again = loaded(run)
    assert state["counters"] == 3 and again.added == 7
    same_tree(tree, some_tree(3.0))


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_really_full_disk(tiny_disk):
    checkpoints, replay = Checkpoints(tiny_disk, 2), filled_replay(3)
    checkpoints.save(100, Content(some_tree(1.0), ARRAYS, {"counters": 1}), replay)
    stuffing = tiny_disk / "stuffing"
    with pytest.raises(OSError), stuffing.open("wb") as file:
        while True:
            os.write(file.fileno(), b"x" * 4096)
    replay.add([make_episode(SPEC, 7, n) for n in range(3, 5)])
    with pytest.raises(CheckpointError, match=r"disk is full|No space left|step 100 is intact"):
        checkpoints.save(200, Content(some_tree(2.0), ARRAYS, {"counters": 2}), replay)
    with pytest.raises(CheckpointError, match="Could not save the best team"):
        save_best(tiny_disk, some_tree(), 100, {})
    (_, _, state, *_), _ = loaded(tiny_disk)
    assert state["counters"] == 1
    stuffing.unlink()
    checkpoints.save(200, Content(some_tree(2.0), ARRAYS, {"counters": 2}), replay)
    (_, _, state, *_), again = loaded(tiny_disk)
    assert state["counters"] == 2 and again.added == 5
