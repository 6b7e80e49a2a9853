"""Checkpoints: exact round trips, every kind of damage noticed, nothing lost on a full disk or a sudden end."""

import errno
import os
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emu.run.checkpoint as module
from emu.errors import CheckpointError
from emu.replay.episodes import Replay
from emu.run.checkpoint import Checkpoints, RunLock, load_best, load_tree, save_best, save_tree
from toys import CountingEnv, flip_byte, make_episode, same_episode

SPEC = CountingEnv().spec
ARRAYS = {"begun": np.arange(3), "obs": np.ones((2, 3), np.float32)}


class Pair(NamedTuple):
    first: Any
    second: Any


def some_tree(value=1.0):
    return {
        "params": {"weight": jnp.full((3, 2), value), "empty": jnp.zeros((2, 0))},
        "pair": Pair(jnp.int32(7), jnp.array([True, False])),
        "key": jax.random.PRNGKey(3),
        "nothing": (),
    }


def same_tree(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(x, y)


def filled_replay(count, capacity=5, first=0):
    replay = Replay(SPEC, capacity, 10**6)
    replay.add(make_episode(SPEC, 1 + n % 7, n) for n in range(first, first + count))
    return replay


def loaded(run, replay=None, keep=2, warnings=None):
    replay = replay or Replay(SPEC, 5, 10**6)
    warn = warnings.append if warnings is not None else pytest.fail
    return Checkpoints(run, keep).load(some_tree(0.0), replay, warn), replay


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of steps 100 and 200."""
    checkpoints, replay = Checkpoints(tmp_path, 2), filled_replay(4)
    checkpoints.save(100, some_tree(1.0), ARRAYS, {"counters": 1}, replay)
    replay.add([make_episode(SPEC, 2, 4), make_episode(SPEC, 3, 5)])
    checkpoints.save(200, some_tree(2.0), ARRAYS, {"counters": 2}, replay)
    return tmp_path


def test_trees_come_back_exactly_with_their_empty_arrays(tmp_path):
    tree = some_tree(0.1)
    save_tree(tmp_path / "tree", tree)
    same_tree(load_tree(tmp_path / "tree", some_tree(0.0)), tree)


def test_a_tree_of_another_shape_is_refused(tmp_path):
    save_tree(tmp_path / "tree", {"a": jnp.zeros(3)})
    for like in ({"a": jnp.zeros(4)}, {"b": jnp.zeros(3)}):
        with pytest.raises(CheckpointError):
            load_tree(tmp_path / "tree", like)


def test_everything_comes_back(run):
    (tree, arrays, state, folder), replay = loaded(run)
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
    checkpoints.save(1, some_tree(), ARRAYS, {}, replay)
    replay.take(3)
    replay.add([make_episode(SPEC, 3, 5, log_prob=True)])
    checkpoints.save(2, some_tree(), ARRAYS, {}, replay)
    _, restored = loaded(tmp_path)
    assert (restored.first, restored.added) == (3, 6)
    assert all(same_episode(a, b) for a, b in zip(restored.since(0), replay.since(0), strict=True))


def test_an_empty_replay_can_be_saved(tmp_path):
    Checkpoints(tmp_path, 2).save(5, some_tree(), ARRAYS, {}, Replay(SPEC, 5, 10**6))
    _, replay = loaded(tmp_path)
    assert len(replay) == replay.added == 0


def test_no_file_needs_pickle(run):
    for path in run.rglob("*.npz"):
        np.load(path, allow_pickle=False).close()
        with np.load(path, allow_pickle=False) as stored:
            assert all(array.dtype != object for array in stored.values())


def test_episodes_are_written_once(run):
    segments = {path.name: path.stat().st_mtime_ns for path in (run / "replay").iterdir()}
    assert sorted(segments) == ["episodes-000000000-000000003.npz", "episodes-000000004-000000005.npz"]
    checkpoints = Checkpoints(run, 2)
    replay = Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    replay.add([make_episode(SPEC, 1, 6)])
    checkpoints.save(300, some_tree(), ARRAYS, {}, replay)
    after = {path.name: path.stat().st_mtime_ns for path in (run / "replay").iterdir()}
    assert set(after) - set(segments) == {"episodes-000000006-000000006.npz"}
    assert all(after[name] == segments[name] for name in segments)


def test_old_checkpoints_and_segments_nobody_needs_are_removed(tmp_path):
    checkpoints, replay = Checkpoints(tmp_path, 2), Replay(SPEC, 3, 10**6)
    for step in range(1, 8):
        replay.add([make_episode(SPEC, 1, step)])
        checkpoints.save(step, some_tree(), ARRAYS, {}, replay)
    assert checkpoints.steps() == [6, 7]
    # step 6 holds episodes 3, 4, 5 (numbered from 0) and step 7 holds 4, 5, 6
    assert [path.name[9:18] for path in sorted((tmp_path / "replay").iterdir())] == [f"{n:09d}" for n in (3, 4, 5, 6)]


def test_leftovers_of_a_killed_process_are_removed(run):
    (run / "checkpoints" / ".writing-300").mkdir()
    (run / "checkpoints" / ".writing-300" / "half").write_text("x")
    (run / "replay" / "episodes-000000006-000000007.part").write_text("x")
    (run / "replay" / "episodes-000000006-000000007.npz").write_text("x")
    loaded(run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000000000100", "000000000200"]
    assert len(list((run / "replay").iterdir())) == 2


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
        (tree, _, state, _), _ = loaded(copy, warnings=warnings)
        assert len(warnings) == 1 and "000000000200" in warnings[0] and "Falling back" in warnings[0], path
        assert state["counters"] == 1
        same_tree(tree, some_tree(1.0))


def test_a_flipped_byte_in_a_segment_only_the_latest_needs_falls_back(run):
    flip_byte(run / "replay" / "episodes-000000004-000000005.npz")
    warnings: list[str] = []
    (_, _, state, _), replay = loaded(run, warnings=warnings)
    assert "episodes-000000004-000000005.npz is damaged" in warnings[0]
    assert state["counters"] == 1 and replay.added == 4


def test_after_a_fall_back_the_run_saves_again(run):
    flip_byte(run / "checkpoints" / "000000000200" / "rollout.npz")
    warnings: list[str] = []
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, warnings.append)
    replay.add([make_episode(SPEC, 2, 4), make_episode(SPEC, 3, 5)])
    checkpoints.save(200, some_tree(5.0), ARRAYS, {"counters": 5}, replay)
    (tree, _, state, _), again = loaded(run)
    assert state["counters"] == 5 and again.added == 6
    same_tree(tree, some_tree(5.0))


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "rollout.npz"])
def test_missing_and_empty_files_are_noticed(run, name):
    path = run / "checkpoints" / "000000000200" / name
    path.write_bytes(b"") if name != "state.json" else path.unlink()
    warnings: list[str] = []
    (_, _, state, _), _ = loaded(run, warnings=warnings)
    assert state["counters"] == 1 and len(warnings) == 1


def test_when_all_are_damaged_the_message_says_what_to_do(run):
    flip_byte(run / "replay" / "episodes-000000000-000000003.npz")  # both checkpoints need it
    with pytest.raises(CheckpointError, match=r"no checkpoint that can be read.*emu train"):
        loaded(run, warnings=[])


def test_damaged_checkpoints_are_kept_aside(run):
    flip_byte(run / "checkpoints" / "000000000200" / "state.json")
    loaded(run, warnings=[])
    assert (run / "checkpoints" / "damaged-000000000200").is_dir()


# A full disk


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("victim", ["_write_segment", "save_tree", "_write_json"])
def test_a_full_disk_leaves_the_earlier_checkpoint_whole(run, monkeypatch, victim):
    checkpoints, replay = Checkpoints(run, 2), Replay(SPEC, 5, 10**6)
    checkpoints.load(some_tree(), replay, pytest.fail)
    replay.add([make_episode(SPEC, 1, 6)])
    with monkeypatch.context() as patch:
        patch.setattr(module, victim, no_space)
        with pytest.raises(CheckpointError, match=r"the disk is full.*step 200 is intact.*emu resume"):
            checkpoints.save(300, some_tree(3.0), ARRAYS, {}, replay)
    assert not list((run / "checkpoints").glob(".writing*"))
    checkpoints.save(300, some_tree(3.0), ARRAYS, {"counters": 3}, replay)  # there is room again
    (tree, _, state, _), again = loaded(run)
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
    checkpoints.save(100, some_tree(1.0), ARRAYS, {"counters": 1}, replay)
    stuffing = tiny_disk / "stuffing"
    with pytest.raises(OSError), stuffing.open("wb") as file:
        while True:
            os.write(file.fileno(), b"x" * 4096)
    replay.add([make_episode(SPEC, 7, n) for n in range(3, 5)])
    with pytest.raises(CheckpointError, match=r"disk is full|No space left|step 100 is intact"):
        checkpoints.save(200, some_tree(2.0), ARRAYS, {"counters": 2}, replay)
    with pytest.raises(CheckpointError, match="Could not save the best team"):
        save_best(tiny_disk, some_tree(), 100, {})
    (_, _, state, _), _ = loaded(tiny_disk)
    assert state["counters"] == 1
    stuffing.unlink()
    checkpoints.save(200, some_tree(2.0), ARRAYS, {"counters": 2}, replay)
    (_, _, state, _), again = loaded(tiny_disk)
    assert state["counters"] == 2 and again.added == 5


# The best team


def test_the_best_team_is_replaced(tmp_path):
    for step in (1, 2, 3):
        save_best(tmp_path, some_tree(float(step)), step, {"test_return": step / 2})
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(3.0))
    assert summary == {"step": 3, "test_return": 1.5}
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["policy-3", "summary.json"]


@pytest.mark.parametrize("moment", ["save_tree", "replace_json", "rmtree"])
def test_a_process_that_dies_while_replacing_leaves_a_best_team(tmp_path, monkeypatch, moment):
    save_best(tmp_path, some_tree(1.0), 1, {})

    class Killed(BaseException):
        pass

    def die(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil if moment == "rmtree" else module, moment, die)
        save_best(tmp_path, some_tree(2.0), 2, {})
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(float(summary["step"])))
    assert summary["step"] == (2 if moment == "rmtree" else 1)
    save_best(tmp_path, some_tree(3.0), 3, {})
    tree, _ = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(3.0))
    assert len(list((tmp_path / "best").glob("policy-*"))) == 1


def test_what_a_process_killed_inside_orbax_leaves_is_no_obstacle(tmp_path):
    save_best(tmp_path, some_tree(1.0), 1, {})
    leftover = tmp_path / "best" / "policy-2.orbax-checkpoint-tmp"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    save_best(tmp_path, some_tree(2.0), 2, {})
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(2.0))
    assert summary["step"] == 2 and not leftover.exists()


def test_no_best_team_and_a_damaged_one_are_explained(tmp_path):
    with pytest.raises(CheckpointError, match="no trained team yet"):
        load_best(tmp_path, some_tree())
    save_best(tmp_path, some_tree(), 1, {})
    (tmp_path / "best" / "summary.json").write_text("{")
    with pytest.raises(CheckpointError, match="is damaged"):
        load_best(tmp_path, some_tree())


# One process per run


def test_a_second_process_is_refused(tmp_path):
    lock = RunLock(tmp_path)
    code = f"from pathlib import Path; from emu.run.checkpoint import RunLock; RunLock(Path({str(tmp_path)!r}))"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert refused.returncode != 0
    assert f"in use by another process (pid {os.getpid()})" in refused.stderr
    lock.release()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os; from pathlib import Path; from emu.run.checkpoint import RunLock; "
        f"lock = RunLock(Path({str(tmp_path)!r})); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    RunLock(tmp_path).release()
