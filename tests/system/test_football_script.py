"""What `make football` says where it has nothing to do or cannot go on. What it calls is replaced by small programs."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "football.sh"


@pytest.fixture
def run(tmp_path):
    """A function that runs the script among stand-ins: name -> shell line."""

    def go(python="exit 1", **programs):
        for name, line in {"python": python, **programs}.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{line}\n")
            path.chmod(0o755)
        surroundings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        return subprocess.run(
            [str(SCRIPT), str(tmp_path / "python")], env=surroundings, capture_output=True, text=True, timeout=30
        )

    return go


def test_a_second_call_has_nothing_to_do(run):
    done = run(python="exit 0")
    assert done.returncode == 0 and "nothing to do" in done.stdout


def test_without_root_it_names_exactly_the_packages_that_are_missing(run):
    query = 'case "$*" in *cmake*|*sdl2-dev*) echo not-installed;; *) echo installed;; esac'
    done = run(id="echo 1000", dpkg_query=query)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].strip() == "sudo apt-get install --no-install-recommends cmake libsdl2-dev"


def test_a_missing_interpreter_is_named(tmp_path):
    done = subprocess.run([str(SCRIPT), str(tmp_path / "nowhere")], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "nowhere" in done.stderr and "make install" in done.stderr
