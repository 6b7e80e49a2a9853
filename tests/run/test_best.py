"""The best team of a run: the old one or the new, never none; rebuilt from a checkpoint when it is lost."""

import json
import shutil

import pytest

import emu.run.best as module
from emu.errors import CheckpointError
from emu.run.best import best_copy, best_is_whole, load_best, rebuild_best, save_best
from toys import flip_byte

from .trees import same_tree, some_tree


def test_the_best_team_is_replaced(tmp_path):
    for step in (1, 2, 3):
        save_best(tmp_path, some_tree(float(step)), step, {"test_return": step / 2})
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(3.0))
    assert summary == {"step": 3, "test_return": 1.5}
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["policy-3.safetensors", "summary.json"]


class Killed(BaseException):
    """What kill -9 looks like from inside."""


@pytest.mark.parametrize(("moment", "expected"), [("save_tree", 1), ("replace_json", 1), ("OURS", 2)])
def test_a_process_that_dies_while_replacing_leaves_a_best_team(tmp_path, monkeypatch, moment, expected):
    save_best(tmp_path, some_tree(1.0), 1, {})
    original = getattr(module, moment)

    class Dying:
        """Dies when it is called or, as the pattern of our names, when the old files are about to be removed."""

        calls = 0

        def __call__(self, *args, **kwargs):
            raise Killed

        def fullmatch(self, text):
            self.calls += 1
            if self.calls > 2:  # the first two look for a fresh name
                raise Killed
            return original.fullmatch(text)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, moment, Dying())
        save_best(tmp_path, some_tree(2.0), 2, {})
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(float(summary["step"])))
    assert summary["step"] == expected
    save_best(tmp_path, some_tree(3.0), 3, {})
    same_tree(load_best(tmp_path, some_tree(0.0))[0], some_tree(3.0))
    assert len(list((tmp_path / "best").glob("policy-*"))) == 1


def test_half_written_files_are_no_obstacle_and_other_peoples_files_stay(tmp_path):
    save_best(tmp_path, some_tree(1.0), 1, {})
    best = tmp_path / "best"
    for name in ("policy-2.safetensors", ".policy-3.safetensors.part", "thesis.tex", "policy-mine.safetensors"):
        (best / name).write_text("x")
    save_best(tmp_path, some_tree(2.0), 2, {})
    same_tree(load_best(tmp_path, some_tree(0.0))[0], some_tree(2.0))
    left = {path.name for path in best.iterdir()}
    assert left == {"policy-4.safetensors", "summary.json", "thesis.tex", "policy-mine.safetensors"}


def test_nothing_is_ever_removed_through_a_symbolic_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "policy-1.safetensors").write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a symbolic link"):
        save_best(run, some_tree(), 1, {})
    assert [path.read_text() for path in elsewhere.iterdir()] == ["precious"]


def test_no_best_team_is_explained(tmp_path):
    with pytest.raises(CheckpointError, match="no trained team yet"):
        load_best(tmp_path, some_tree())


SUMMARIES = [
    "{",
    "[]",
    "{}",
    '{"step": 1}',
    '{"step": 1, "folder": "policy-1"}',
    '{"step": 1, "file": "../../secret", "bytes": 1, "crc": 1}',
    '{"step": "1", "file": "policy-1.safetensors", "bytes": 1, "crc": 1}',
    '{"step": 1, "file": "policy-9.safetensors", "bytes": 1, "crc": 1}',
    '{"step": 1, "file": 7, "bytes": [], "crc": {}}',
]


@pytest.mark.parametrize("content", SUMMARIES)
def test_a_damaged_summary_is_refused(tmp_path, content):
    save_best(tmp_path, some_tree(), 1, {})
    (tmp_path / "best" / "summary.json").write_text(content)
    assert not best_is_whole(tmp_path)
    with pytest.raises(CheckpointError, match=r"is damaged.*emu resume"):
        load_best(tmp_path, some_tree())


def test_one_flipped_byte_of_the_parameters_is_noticed(tmp_path):
    save_best(tmp_path, some_tree(), 1, {})
    flip_byte(tmp_path / "best" / "policy-1.safetensors", 0.99)
    with pytest.raises(CheckpointError, match="not what was written"):
        load_best(tmp_path, some_tree())


def test_a_lost_best_team_is_rebuilt_from_the_copy_in_a_checkpoint(tmp_path):
    save_best(tmp_path, some_tree(5.0), 50, {"test_return": 0.25})
    files, summary = best_copy(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    for name, source in files.items():
        shutil.copyfile(source, checkpoint / name)
    shutil.rmtree(tmp_path / "best")
    assert best_copy(tmp_path) == ({}, {})
    assert rebuild_best(tmp_path, checkpoint, json.loads(json.dumps(summary)))
    tree, summary = load_best(tmp_path, some_tree(0.0))
    same_tree(tree, some_tree(5.0))
    assert summary == {"step": 50, "test_return": 0.25}
    assert not rebuild_best(tmp_path, tmp_path, summary), "there is no copy here"
