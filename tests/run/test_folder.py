"""The run folder: the one place that knows the names of its files."""

import ast
from pathlib import Path

import emu
from emu.run.folder import RunFolder, find_run_folders, is_in_use, read_meta, step_name

SOURCE = Path(emu.__file__).parent
NAMES = {"metrics.jsonl", "metrics.crc", "meta.json", "config.json", "timing.jsonl", "absolute.json", "checkpoints"}


def test_no_other_module_names_the_files_of_a_run():
    guilty = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path == SOURCE / "run" / "folder.py":
            continue
        strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        guilty += [(path.relative_to(SOURCE).as_posix(), text) for text in strings if text in NAMES]
    assert guilty == []


def test_checkpoints_are_listed_by_step_and_nothing_else_is_taken_for_one(tmp_path):
    run = RunFolder(tmp_path)
    assert run.checkpoint_steps() == []
    for name in (step_name(200), step_name(90), "damaged-000000000300", ".writing-400"):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.checkpoint_steps() == [90, 200]
    assert run.checkpoint(90) == tmp_path / "checkpoints" / "000000000090"


def test_a_folder_is_in_use_once_it_holds_more_than_a_dying_process_leaves(tmp_path):
    assert not is_in_use(tmp_path / "nowhere")
    for name in ("checkpoints", "replay"):
        (tmp_path / name).mkdir()
    for name in (".lock", "meta.json", ".config.json.part"):
        (tmp_path / name).touch()
    assert not is_in_use(tmp_path)
    (tmp_path / "checkpoints" / step_name(0)).mkdir()
    assert is_in_use(tmp_path)


def test_unreadable_provenance_is_none(tmp_path):
    for content in (b"{", b"[]", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "meta.json").write_bytes(content)
        assert read_meta(tmp_path) == {}


def test_runs_are_found_below_a_folder_whatever_it_is_called(tmp_path):
    root = tmp_path / "a[b]* 'c'"
    for name in ("one", "two/deep"):
        (root / name).mkdir(parents=True)
        RunFolder(root / name).metrics.touch()
    assert find_run_folders(root) == [root / "one", root / "two" / "deep"]
