"""What a run writes down."""

import json
import math
import os

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import EmuError
from emu.run.metrics import MetricsWriter, read_rows, read_timing
from emu.training.means import Means
from toys import flip_byte


def test_means_take_single_values_and_lists():
    means = Means()
    means.add({"loss": jnp.array([1.0, 3.0])})
    means.add({"loss": 5.0, "length": 2})
    assert means.take() == {"loss": 3.0, "length": 2.0}
    assert means.take() == {}


def test_means_survive_saving_in_the_middle():
    means, other = Means(), Means()
    means.add({"loss": jnp.array([0.1, 0.2, 0.3])})
    other.load(json.loads(json.dumps(means.save())))
    for each in (means, other):
        each.add({"loss": 0.7})
    assert means.take() == other.take()


def test_rows_come_back(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.row(1, {"a": 0.1})
    writer.row(2, {"a": 1 / 3, "b": 2.0})
    writer.timing(2, {"wall": 1.0})
    writer.close()
    assert read_rows(tmp_path) == [{"step": 1, "a": 0.1}, {"step": 2, "a": 1 / 3, "b": 2.0}]
    assert (tmp_path / "timing.jsonl").read_text() == '{"step": 2, "wall": 1.0}\n'


def test_resuming_cuts_back_to_what_the_checkpoint_had_seen(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.row(1, {"a": 1.0})
    keep = writer.sync()
    writer.row(2, {"a": 2.0})
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "a"')  # the process died in the middle of a line
    assert len(read_rows(tmp_path)) == 2
    writer = MetricsWriter(tmp_path, keep_bytes=keep)
    writer.row(9, {"a": 9.0})
    assert writer.sync() == (tmp_path / "metrics.jsonl").stat().st_size
    writer.close()
    assert [row["step"] for row in read_rows(tmp_path)] == [1, 9]


def test_a_file_shorter_than_the_checkpoint_says_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(EmuError, match="was cut or replaced"):
        MetricsWriter(tmp_path, keep_bytes=100)


def test_a_folder_without_metrics_is_no_run(tmp_path):
    with pytest.raises(EmuError, match="is not a run folder"):
        read_rows(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_full_disk_is_explained(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/full")
    writer = MetricsWriter(tmp_path)
    with pytest.raises(EmuError, match=r"No space left on device.*emu resume"):
        writer.row(1, {"a": 1.0})
        writer.timing(1, {"a": 1.0})
    writer.close()


# Rows that are no longer what was written


def written(folder, rows=12):
    writer = MetricsWriter(folder)
    for step in range(rows):
        writer.row(step, {"test_win_rate": step / 16, "note": 1.0})
    writer.close()
    return read_rows(folder)


def read(folder):
    warnings: list[str] = []
    return read_rows(folder, warnings.append), warnings


@settings(max_examples=80, deadline=None)
@given(place=st.floats(0, 1), bit=st.integers(0, 7))
def test_any_flipped_bit_costs_its_own_row_and_is_named(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("metrics")
    rows = written(folder)
    path = folder / "metrics.jsonl"
    content = bytearray(path.read_bytes())
    at = int(place * (len(content) - 1))
    line = content[:at].count(b"\n")
    content[at] ^= 1 << bit
    path.write_bytes(content)
    found, warnings = read(folder)
    assert found == rows[:line] + rows[line + 1 :]
    assert len(warnings) == 1 and f"line {line + 1} not as written" in warnings[0]


def test_a_win_rate_of_one_never_becomes_zero(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.row(100, {"test_win_rate": 0.0})
    writer.row(200, {"test_win_rate": 1.0})
    writer.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().replace("1.0", "0.0"))
    found, warnings = read(tmp_path)
    assert found == [{"step": 100, "test_win_rate": 0.0}] and "line 2" in warnings[0]


def test_without_a_reader_of_warnings_python_says_it(tmp_path):
    written(tmp_path)
    flip_byte(tmp_path / "metrics.jsonl", 0.0)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: line 1 not as written"):
        read_rows(tmp_path)


NO_ROWS = ["", "7", "null", "[]", '"x"', "{}", '{"step": "1"}', '{"step": 1.5}', '{"step": true}', '{"step": -1}']
NO_ROWS += [
    '{"step": 1, "a": "b"}',
    '{"step": 1, "a": [1]}',
    '{"step": 1, "a": null}',
    '{"step": 1, "a": false}',
    "{" * 9,
]


@pytest.mark.parametrize("line", NO_ROWS)
def test_a_line_that_is_no_row_of_numbers_is_named_and_the_rest_is_used(tmp_path, line):
    """Of runs without checksums, too, such as those of an earlier version."""
    good = '{"step": 1, "a": 0.5}\n'
    (tmp_path / "metrics.jsonl").write_text(good + line + "\n" + good)
    found, warnings = read(tmp_path)
    assert found == [{"step": 1, "a": 0.5}] * 2
    assert len(warnings) == 1 and "line 2 not as written" in warnings[0]


def test_values_that_are_no_longer_finite_are_values(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": NaN, "b": -Infinity}\n')
    (row,), warnings = read(tmp_path)
    assert math.isnan(row["a"]) and row["b"] == -math.inf and not warnings


@pytest.mark.parametrize("damage", ["cut", "removed", "garbage", "one line"])
def test_damaged_checksums_cost_no_row_that_they_do_not_speak_of(tmp_path, damage):
    rows = written(tmp_path)
    path = tmp_path / "metrics.crc"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "removed":
        path.unlink()
    else:
        lines = {"cut": lines[:4], "garbage": [b"\xff\x00\n"] * 5, "one line": [*lines[:5], b"?\n", *lines[6:]]}[damage]
        path.write_bytes(b"".join(lines))
    assert read(tmp_path) == (rows, [])


def test_resuming_goes_on_with_the_checksums_too(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.row(1, {"a": 1.0})
    keep = writer.sync()
    writer.row(2, {"a": 2.0})
    writer.close()
    writer = MetricsWriter(tmp_path, keep_bytes=keep)
    writer.row(3, {"a": 3.0})
    writer.close()
    assert len((tmp_path / "metrics.crc").read_text().splitlines()) == 2
    assert read(tmp_path) == ([{"step": 1, "a": 1.0}, {"step": 3, "a": 3.0}], [])
    flip_byte(tmp_path / "metrics.jsonl", 0.9)
    assert "line 2" in read(tmp_path)[1][0]


def test_rows_are_plain_json_and_nothing_else(tmp_path):
    """The checksums stand beside the file: its bytes are what they always were."""
    written(tmp_path, rows=2)
    expected = '{"step": 0, "test_win_rate": 0.0, "note": 1.0}\n{"step": 1, "test_win_rate": 0.0625, "note": 1.0}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == expected


def test_timing_that_cannot_be_read_is_left_out(tmp_path):
    lines = [
        '{"step": 1, "wall": 5.0}',
        "{",
        "7",
        '{"step": 2}',
        '{"step": 3, "wall": "x"}',
        '{"step": 4, "wall": 9.0}',
    ]
    (tmp_path / "timing.jsonl").write_text("\n".join(lines))
    assert [row["step"] for row in read_timing(tmp_path)] == [1, 4]
