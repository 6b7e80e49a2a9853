"""What a process sets up before JAX computes anything. Each case needs a fresh process: JAX's devices are made once."""

import os
import subprocess
import sys
from pathlib import Path

from emu.devices import cpu_count

PRINT = """
import jax
from emu.devices import configure_cpu_devices
configure_cpu_devices({devices})
print(jax.config.jax_compilation_cache_dir, len(jax.devices()), sep="|")
"""


def configured(devices: int = 1, **environment: str) -> tuple[str, int]:
    """Where compiled programs go and how many devices there are."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_") and name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT.format(devices=devices)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, count = done.stdout.strip().split("|")
    return folder, int(count)


def test_compiled_programs_are_kept_in_a_folder_of_this_kind_of_processor(tmp_path):
    folder, devices = configured(devices=2, XDG_CACHE_HOME=str(tmp_path))
    assert Path(folder).parent == tmp_path / "emu" and Path(folder).name.startswith("programs-")
    assert Path(folder).is_dir() and devices == 2


def test_a_place_of_ones_own_is_respected_and_devices_are_bounded(tmp_path):
    folder, devices = configured(devices=999, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))
    assert folder == str(tmp_path / "mine")
    assert devices == max(8, cpu_count())


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "emu").write_text("a file where the folder would be")
    assert configured(XDG_CACHE_HOME=str(tmp_path))[0] == "None"
