"""Reading runs is quick: tables, plots and reports never load JAX."""

import json
import subprocess
import sys

import pytest

from emu.config import to_dict
from toys import tiny_config

PROGRAM = """
import json, sys
import emu.cli
at_start = sorted(sys.modules)
assert emu.cli.main(json.loads(sys.argv[1])) == 0
print("MODULES", json.dumps([at_start, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run as it is read: its settings and its metrics."""
    folder = tmp_path_factory.mktemp("light") / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_dict(tiny_config())))
    (folder / "meta.json").write_text(json.dumps({"env": {"name": "gridworld", "version": "1"}}))
    evaluation = {"test_win_rate": 0.5, "test_return": 1.0, "test_length": 3.0}
    rows = [{"step": step, **evaluation} for step in (0, 100, 200)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    "words",
    [["table", "RUN"], ["plot", "RUN", "--out", "OUT.png"], ["export", "RUN", "OUT.json"], ["report", "RUN"]],
    ids=lambda words: words[0],
)
def test_a_command_that_only_reads_does_not_load_jax(run, tmp_path, words):
    places = {"RUN": str(run), "OUT.png": str(tmp_path / "a.png"), "OUT.json": str(tmp_path / "a.json")}
    words = [places.get(word, word) for word in words]
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("MODULES "))
    at_start, after = map(set, json.loads(line.removeprefix("MODULES ")))
    assert "emu.run.folder" in after, "the command did read a run"
    heavy = {"jax", "jaxlib", "flax", "optax"}
    assert not heavy & after
    assert not (heavy | {"numba", "matplotlib", "numpy"}) & at_start
