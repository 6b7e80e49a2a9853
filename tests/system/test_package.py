"""The built wheel, installed into an empty folder: it trains without the repository, and its memory without JAX."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]

# Everything that is not NumPy, numba (with its compiler) or Python itself cannot be imported.
MEMORY_ALONE = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {"emu", "numpy", "numba", "llvmlite"} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Only())

from types import SimpleNamespace
import numpy as np
from emu.memory import EpisodicMemory, episodic_incentive

memory = EpisodicMemory(state_dim=3, radius=0.1)
states = np.eye(3, dtype=np.float32)
memory.update([SimpleNamespace(state=states, reward=np.array([0.0, 1.0]), won=True)])
recall = memory.recall(states[1:2], np.array([1]))
print(bool(recall.found[0]), episodic_incentive(recall, np.zeros(1), np.zeros(1, bool), 0.5))
"""

# What somebody writes on the first day: train, load, evaluate, act in a loop of one's own, draw the curve.
FIRST_SCRIPT = """
import emu, jax, matplotlib, numpy as np
matplotlib.use("Agg")
import matplotlib.pyplot as plt

short = {"eval.interval": 150, "eval.episodes": 2, "learner.batch_size": 4, "agent.hidden": 8, "devices": 1}
run = emu.train("emu_vdn", "gridworld/tiny", steps=300, seed=1, quiet=True, **short)
team, env = emu.load(run, which="best"), emu.make_env("gridworld/tiny")
team.reset()
state, steps, over = env.reset(jax.random.PRNGKey(0)), 0, False
while not over:
    actions = team.act(np.asarray(env.observe(state)), np.asarray(env.avail(state)))
    state, outcome = env.step(state, actions, jax.random.PRNGKey(steps))
    steps, over = steps + 1, bool(outcome.terminated | outcome.truncated)
tested = ~np.isnan(run.metrics()["test_return"])
plt.plot(run.metrics()["step"][tested], run.metrics()["test_return"][tested])
plt.savefig("curve.png")
print(emu.__file__, type(actions).__module__, actions.shape, steps, emu.evaluate(team, episodes=4)["episodes"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no build folder is left in the repository."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("src", "packaging"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    done = subprocess.run([*PIP, "wheel", "--no-deps", "-w", built, source], capture_output=True, text=True)
    if done.returncode and "setuptools" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no package index to get setuptools from")
    assert done.returncode == 0, done.stderr
    return next(built.glob("emu_marl-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that holds the package and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "install", "--no-deps", "--no-compile", "--target", folder, wheel], check=True)
    return folder


def python(installed, where, *words):
    """Python in an empty folder, with the installed package before any other."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "NO_COLOR": "1"}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_installed_package_trains_and_reports_away_from_the_repository(installed, tmp_path):
    used = python(installed, tmp_path, "-c", "import emu; print(emu.__file__)").strip()
    assert Path(used).is_relative_to(installed)
    short = "--steps 300 --eval.interval 150 --eval.episodes 2 --learner.batch-size 4 --agent.hidden 8 --devices 1"
    python(installed, tmp_path, "-m", "emu", *f"train --algo emu_vdn --env gridworld/tiny {short} --quiet".split())
    run = tmp_path / "runs" / "gridworld-tiny" / "emu_vdn-seed0"
    assert "test_return" in (run / "metrics.jsonl").read_text()
    python(installed, tmp_path, "-m", "emu", "report", run)
    assert "<script" in (run / "report.html").read_text()  # the report's template is in the wheel


@pytest.mark.slow
def test_a_script_of_fifteen_lines_trains_loads_acts_and_plots(installed, tmp_path):
    used, kind, shape = python(installed, tmp_path, "-c", FIRST_SCRIPT).split(maxsplit=2)
    assert Path(used).is_relative_to(installed)
    agents, steps, episodes = re.fullmatch(r"\((\d+),\) (\d+) (\d+)", shape.strip()).groups()
    assert (kind, agents, episodes) == ("numpy", "2", "4") and 1 <= int(steps) <= 12
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_memory_needs_only_numpy_and_numba(installed, tmp_path):
    found, incentive = python(installed, tmp_path, "-c", MEMORY_ALONE).split()
    assert found == "True"
    assert incentive == "[0.5]"  # gamma 0.5 times the return 1 known from there, in a state valued 0


def test_the_wheel_describes_itself_without_links_into_the_repository(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path, "zip")
    metadata = email.message_from_string(next(tmp_path.glob("*.dist-info/METADATA")).read_text())
    text = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown" and "emu train" in text
    assert re.findall(r"\]\((?!https?:)", text) == []
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
