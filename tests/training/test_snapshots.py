"""Snapshots of the memory: what they hold, that they are bounded, and that a run never notices them."""

import json
import shutil

import numpy as np
import pytest

from emu.errors import CheckpointError, EmuError
from emu.run.snapshots import read_snapshot, snapshot_paths
from emu.training import snapshots
from emu.training.loop import Trainer
from emu.training.reporting import take_snapshot
from emu.training.saving import restore
from emu.training.session import resume, train
from emu.training.snapshots import snapshot_of
from toys import flip_byte, silent, tiny_config


def config(**changes):
    return tiny_config("emu_qmix", **{"memory.snapshot_interval": 120, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots") / "run"
    train(config(), folder, silent())
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in snapshot_paths(folder)}


def steps_of(folder):
    return [int(path.stem) for path in snapshot_paths(folder)]


def test_a_snapshot_is_taken_every_interval_and_at_the_end(run):
    steps = steps_of(run)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert steps[-1] == last
    assert [s // 120 for s in steps[:-1]] == sorted({s // 120 for s in steps[:-1]})
    assert set(range(1, last // 120 + 1)) == {s // 120 for s in steps}


def test_it_holds_entries_and_a_path_that_belong_together(run):
    shot = read_snapshot(snapshot_paths(run)[-1])
    n, (m, e) = min(shot.size, snapshots.MAX_MEMORIES), (shot.memories, shot.episode)
    assert {len(column) for column in m} == {n} and len({len(column) for column in e}) == 1
    assert m.state.dtype == np.float16 and m.key.shape[1] == e.key.shape[1] == 4
    assert (m.visits >= 1).all() and (m.desirable_visits <= m.visits).all()
    assert (m.desirable_visits[~m.desirable] == 0).all()
    assert e.time[0] == 0 and e.total[0] == 0
    assert not (e.desirable & ~e.found).any() and (e.best_return[~e.found] == 0).all()


def test_every_entry_is_found_at_its_own_state(run):
    """The sampled states lead back to their keys: what is stored is one entry a row."""
    trainer = Trainer(config(devices=1), run, silent())
    restore(trainer)
    assert trainer.memory
    memory = trainer.memory.memory
    rows = np.arange(0, len(memory), 7)
    recall, keys = memory.peek(memory.states(rows), memory.export(rows)["t"])
    assert recall.found.all()
    np.testing.assert_allclose(keys, memory.export()["key"][rows], atol=1e-5)


def test_peeking_leaves_no_trace_but_recall_does(run):
    trainer = Trainer(config(devices=1), run, silent())
    restore(trainer)
    assert trainer.memory
    memory = trainer.memory.memory
    before, links = dict(memory.counters), memory._store.links.copy()
    states, times = memory.states(slice(0, 5)), memory.export()["t"][:5]
    peeked, _ = memory.peek(states, times)
    assert memory.counters == before and (memory._store.links[: len(memory)] == links[: len(memory)]).all()
    recalled = memory.recall(states, times)
    assert memory.counters != before
    for a, b in zip(peeked, recalled, strict=True):
        np.testing.assert_array_equal(a, b)


def test_metrics_are_the_same_with_and_without(run, tmp_path):
    train(config(**{"memory.snapshot_interval": 0}), tmp_path / "run", silent())
    assert not (tmp_path / "run" / "snapshots").exists()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_crashed_and_resumed_it_writes_the_same_snapshots(run, tmp_path, monkeypatch):
    class Crash(BaseException):
        pass

    def dying(self):
        if self.counters.step > 300:
            raise Crash
        return original(self)

    original, folder = Trainer.learn, tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "learn", dying)
        with pytest.raises(Crash):
            train(config(), folder, silent())
    assert 0 < len(snapshot_paths(folder)) < len(snapshot_paths(run))
    snapshot_paths(folder)[-1].write_bytes(b"of a future that never came")
    resume(folder, progress=silent())
    assert content(folder) == content(run)


def test_a_finished_run_without_snapshots_gets_one_from_its_checkpoint(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "snapshots")
    path = snapshot_of(folder)
    late, early = read_snapshot(path), read_snapshot(snapshot_paths(run)[-1])
    assert (late.step, late.size) == (early.step, early.size)
    for a, b in zip(late.memories, early.memories, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(late.episode.state, early.episode.state)


def test_taking_a_snapshot_leaves_a_damaged_run_as_it_is(run, tmp_path):
    """`emu report` only looks: nothing is set aside, repaired or removed."""

    def files(folder):
        found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        return {path.relative_to(folder): path.read_bytes() for path in found if path.parent.name != "snapshots"}

    folder = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("snapshots"))
    flip_byte(max((folder / "checkpoints").iterdir()) / "state.json")
    flip_byte(min((folder / "replay").glob("*.npz")))
    before = files(folder)
    assert snapshot_of(folder).exists()
    assert files(folder) == before


def test_without_a_checkpoint_or_a_memory_it_is_explained(run, tmp_path):
    shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(CheckpointError, match="no checkpoint"):
        snapshot_of(tmp_path / "bare")
    train(tiny_config("qmix", steps=200), tmp_path / "plain", silent())
    assert not snapshot_paths(tmp_path / "plain")
    with pytest.raises(EmuError, match="keeps none"):
        snapshot_of(tmp_path / "plain")


def test_its_size_is_bounded_by_memories_bytes_and_places(run, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_PLACES", 3)
    trainer = Trainer(config(devices=1), shutil.copytree(run, tmp_path / "run"), silent())
    restore(trainer)
    state_dim = trainer.env.spec.state_dim
    monkeypatch.setattr(snapshots, "MAX_STATE_BYTES", 2 * state_dim * 11)
    shot = read_snapshot(take_snapshot(trainer))
    assert len(shot.memories.key) == 11
    length = len(read_snapshot(snapshot_paths(run)[-1]).episode.time) - 1
    assert shot.episode.time.tolist() == [0, round(length / 2), length]
    monkeypatch.setattr(snapshots, "MAX_MEMORIES", 5)
    assert len(read_snapshot(take_snapshot(trainer)).memories.key) == 5


def test_a_damaged_snapshot_is_explained(run, tmp_path):
    path = shutil.copy(snapshot_paths(run)[0], tmp_path / "000000000120.npz")
    flip_byte(path, 0.3)
    with pytest.raises(EmuError, match="damaged"):
        read_snapshot(path)
