"""Which devices a run uses, and how work is shared among them.

On a CPU every core is made a device of its own: XLA runs the small products of a recurrent network on one thread, so
two devices with half of the batch each are nearly twice as fast. The same code uses several GPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from emu.errors import ConfigError
from emu.files import cache_folder
from emu.types import PyTree

DATA = "data"  # the mesh axis over which batches and environments are divided
MAX_CPU_DEVICES = 8  # beyond this, a batch of 32 episodes is too thin to divide
PROGRAMS_BYTES = 10**9  # of compiled programs kept on disk; the least recently used make room


def cpu_count() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def configure_cpu_devices(requested: int = 0) -> None:
    """One CPU device per core (or as many as asked for), if JAX has not computed anything yet; else nothing changes.

    A device then keeps to one thread: threads within its small products would only compete with the other devices.
    """
    keep_freed_memory()
    keep_compiled_programs()
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    with contextlib.suppress(RuntimeError):  # JAX's answer once its devices are made
        automatic, most = min(cpu_count(), MAX_CPU_DEVICES), max(cpu_count(), MAX_CPU_DEVICES)
        jax.config.update("jax_num_cpu_devices", min(requested, most) or automatic)


def keep_freed_memory() -> None:
    """Ask glibc to hold on to what is freed; elsewhere nothing changes. To be called before JAX starts its threads.

    XLA's CPU client takes its scratch memory (tens of megabytes) anew for every call. By default such a block goes
    back to the kernel at once and comes again page by page, zeroed: a third of an update on two devices. And a thread
    other than the first has arenas of 64 MB at most, so a larger block is always mapped afresh: half of an update of
    3s5z's size. One arena for all threads has no such limit.
    """
    trim_threshold, top_pad, mmap_threshold, arena_max = -1, -2, -3, -8  # from malloc.h
    options = ((trim_threshold, 2**31 - 1), (top_pad, 2**26), (mmap_threshold, 2**31 - 1), (arena_max, 1))
    with contextlib.suppress(OSError, AttributeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options:
            mallopt(option, value)


def keep_compiled_programs() -> None:
    """Keep compiled programs on disk, so that a second start takes seconds; JAX_COMPILATION_CACHE_DIR says where else.

    Programs fit the processor they were compiled for, so each kind of processor that shares a home has its own folder.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder() / f"programs-{_processor()}"
    with contextlib.suppress(OSError):  # nowhere to write: every process compiles for itself
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_max_size", PROGRAMS_BYTES)
            jax.config.update("jax_compilation_cache_dir", str(folder))


def _processor() -> str:
    """A short name of what this processor can do."""
    try:
        abilities = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        abilities = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {abilities}".encode()).hexdigest()[:12]


def sum_over_devices(tree: PyTree) -> PyTree:
    """Inside `shard_map`: the sum of every float leaf over the data axis, in one exchange instead of one per leaf."""
    flat, unflatten = ravel_pytree(tree)
    return unflatten(jax.lax.psum(flat, DATA))


@dataclasses.dataclass(frozen=True)
class Shards:
    """A mesh of devices along the data axis."""

    mesh: Mesh

    @property
    def size(self) -> int:
        return self.mesh.size

    def put(self, tree: PyTree, axis: int = 0) -> PyTree:
        """Send host arrays to the devices, divided along `axis`."""
        return jax.device_put(tree, self.along(axis))

    def along(self, axis: int) -> NamedSharding:
        """Arrays divided along `axis`."""
        return NamedSharding(self.mesh, P(*[None] * axis, DATA))

    def replicate(self, tree: PyTree) -> PyTree:
        """A full copy on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, P()))

    def compiled_update(self, updates: Callable[..., Any]) -> Callable[..., Any]:
        """A learner's `updates(state, batches, recall, step)` as one program; (U, B, ...) batches are divided along B.

        The state, which every device has whole, is given away: its memory is used again for the new one.
        """
        divided = P(None, DATA)
        program = jax.shard_map(
            updates, mesh=self.mesh, in_specs=(P(), divided, divided, P()), out_specs=(P(), P()), check_vma=False
        )
        return jax.jit(program, donate_argnums=0)


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run."""

    devices: tuple[Any, ...]  # of jax.Device

    @classmethod
    def of(cls, requested: int = 0) -> Devices:
        found = jax.devices()
        if requested > len(found):
            raise ConfigError(
                f"{requested} devices were asked for, but JAX sees {len(found)} ({found[0].platform}). "
                "Lower `devices`, or leave it at 0 to use them all."
            )
        return cls(tuple(found[: requested or len(found)]))

    def sharding_for(self, items: int) -> Shards:
        """The largest number of devices that divides `items` evenly."""
        count = max(n for n in range(1, len(self.devices) + 1) if items % n == 0)
        return Shards(Mesh(np.array(self.devices[:count]), (DATA,)))
