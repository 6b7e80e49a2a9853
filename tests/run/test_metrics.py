"""What a run writes down."""

import json
import os

import jax.numpy as jnp
import pytest

from emu.errors import EmuError
from emu.run.metrics import MetricsWriter, read_rows
from emu.training.means import Means


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
