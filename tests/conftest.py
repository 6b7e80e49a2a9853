"""Tests run on two CPU devices, so that every one of them also tests that work is shared out right.

Compiled programs are kept in one folder for the whole session, later sessions and the processes that tests start: most
of the time goes into compiling, and most tests compile the same few programs.
"""

import gc
import os
import signal
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax  # noqa: E402
import pytest  # noqa: E402

from emu.devices import configure_cpu_devices  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: what the tests start would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

configure_cpu_devices(2)
jax.devices()  # from here on no test can change their number


MOST_MAPPINGS = 20_000  # Linux allows a process 65,530 pieces of memory; a compiler that gets no more crashes


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs():
    """Every compiled program takes several mappings, and one process runs thousands of tests: some are given back."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
