"""Runs as tasks of a Ray cluster: `emu study ... --cluster auto` or an address.

A task starts the same process as a sweep on one machine (`run_one.py`) and waits for it. When a node is lost, Ray
starts its tasks again elsewhere; each finds the run's folder and goes on from the last checkpoint, with the metrics of
a run that nobody disturbed. The study's folder must be seen by every node (a shared file system), which is checked
first.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emu.envs.workers import ray as host_ray
from emu.errors import EmuError
from emu.study.plan import run_one
from emu.study.plan.plans import Planned
from emu.study.plan.sweep import GRACE, Ended, Launcher, job_of

LOST_NODES = 20  # times that Ray starts a task again after losing its node or its process


def load_ray() -> Any:
    return host_ray.load_ray("--cluster")


def train_here(job: dict[str, Any], log: str) -> int:
    """On a node: one run's process from start to end; its exit status. It dies with this task, however that ends."""
    process = run_one.start(run_one.Job(**job), Path(log))
    try:
        while (status := process.poll()) is None:
            time.sleep(0.5)
        return status
    finally:
        if process.poll() is None:  # cancelled: the run saves first
            process.terminate()
            with contextlib.suppress(Exception):
                process.wait(GRACE)
            process.kill()


def sees(path: str) -> bool:
    return Path(path).exists()


class Task:
    """A run that Ray looks after."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def poll(self) -> Ended | None:
        ready, _ = self._ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            return Ended(self._ray.get(self._reference))
        except self._ray.exceptions.RayError as error:
            return Ended(1, f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")

    def stop(self) -> None:
        self._ray.cancel(self._reference, force=False)

    def kill(self) -> None:
        self._ray.cancel(self._reference, force=True)


class Tasks:
    """All runs are handed over at once; Ray starts them as cores become free."""

    def __init__(self, address: str, out: Path, runs: Sequence[Planned], command: list[str]) -> None:
        self.ray = load_ray()
        self.slots, self.out, self.command = len(runs), out.absolute(), command
        with host_ray.connecting(address):
            self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        try:
            self._check_folder()
        except BaseException:
            self.close()
            raise
        # A process per task: nothing of one run is left for the next.
        options = {"max_calls": 1, "max_retries": LOST_NODES, "scheduling_strategy": "SPREAD"}
        self._train = self.ray.remote(**options)(train_here)

    def _check_folder(self) -> None:
        """Every node must see what is written here."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        token = self.out / f".shared-{uuid.uuid4().hex}"
        token.touch()
        try:
            nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in self.ray.nodes() if node["Alive"]}
            look = self.ray.remote(num_cpus=0, max_calls=1)(sees)
            asked = {
                address: look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                    str(token)
                )
                for node, address in nodes.items()
            }
            blind = sorted(address for address, answer in asked.items() if not self.ray.get(answer))
        finally:
            token.unlink(missing_ok=True)
        if blind:
            raise EmuError(
                f"{self.out} is not seen by {', '.join(blind)}. A study on a cluster needs a folder that all of its "
                "nodes share (NFS or alike): choose one with --out."
            )

    def start(self, run: Planned, slot: int) -> Task:
        job = job_of(run, self.out, [], self.command)
        task = self._train.options(num_cpus=run.config().devices or 1, name=run.name)
        return Task(self.ray, task.remote(job._asdict(), str(self.out / run.log)))

    def close(self) -> None:
        self.ray.shutdown()


def cluster(address: str, out: Path, runs: Sequence[Planned], command: list[str]) -> Callable[[], Launcher]:
    """Runs on a cluster."""
    return lambda: Tasks(address, out, runs, command)
