"""`check_env`: run it on your own environment; it lists everything that breaks the contract.

The same rules (`faults`) hold for compiled environments (`Env`) and Python ones (`PythonEnv`). First what can be seen
without a step: the specification, and (by tracing, see `tracing`) shapes and types of a compiled environment. Then
random episodes are played one step at a time, and every view and outcome is looked at.

`emu check` does this in a process of its own (`check_process`), so that an environment may do there what it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from emu.envs.faults import Fault, answer_fault, end_faults, outcome_faults, raise_if_any, spec_faults, view_faults
from emu.envs.protocols import PythonEnv
from emu.envs.scripted import random_action, random_shape
from emu.envs.spec import EnvSpec, View
from emu.envs.stepping import SingleCopy, single_copy
from emu.envs.tracing import method_faults, tracing_faults
from emu.errors import EmuError, EnvError, described

RAISED = (Exception, SystemExit)  # what an environment's own code may raise at us; Ctrl-C is ours


class Observer:
    """Learns of every fault when it is found, and of every call before it is made."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def found(self, fault: str) -> None:
        self.faults.append(fault)

    def calls(self, call: str, where: str = "") -> None:
        """Something of the environment's is about to be called."""


def check_env(env: Any, episodes: int = 8, seed: int = 0) -> None:
    """Raise `EnvError` listing everything found wrong; return quietly if the environment keeps its contract."""
    observer = Observer()
    examine(env, episodes, seed, observer)
    raise_if_any(_name(env), observer.faults)


def check_shapes(env: Any) -> None:
    """What can be seen without running a step: methods, the specification, shapes and types."""
    observer = Observer()
    _examine_shapes(env, observer)
    raise_if_any(_name(env), observer.faults)


def examine(env: Any, episodes: int, seed: int, observer: Observer) -> None:
    """Tell the observer everything that is wrong."""
    if _examine_shapes(env, observer):
        try:
            copy = single_copy(env, verify=True)
        except RAISED as error:
            observer.found(f"it cannot be compiled: {described(error)}")
            return
        _play(copy, episodes, seed, observer)


def _name(env: Any) -> str:
    return env.spec.name


def _examine_shapes(env: Any, observer: Observer) -> bool:
    """What is wrong without a step taken; whether episodes can be played all the same."""
    observer.calls("`spec`")
    try:
        spec = env.spec
    except AttributeError:
        spec = None
    except RAISED as error:
        raise EnvError(f"The `spec` of {type(env).__name__} cannot be read: {described(error)}") from error
    if not isinstance(spec, EnvSpec):
        raise EnvError(f"{type(env).__name__} has no `spec` of type EnvSpec. See docs/add-your-own.md.")
    fatal, others = spec_faults(spec)
    if isinstance(env, PythonEnv):
        if not fatal:
            fatal = _requirement_faults(env, observer)
    else:
        missing = method_faults(env)
        observer.calls("its methods, traced")
        fatal = missing + fatal + ([] if missing or fatal else tracing_faults(env))
    for fault in fatal + others:
        observer.found(fault)
    return not fatal


def _requirement_faults(env: PythonEnv, observer: Observer) -> list[str]:
    observer.calls("`require()`")
    try:
        env.require()
    except EmuError:
        raise
    except RAISED as error:
        return [f"`require()` raised {described(error)}"]
    return []


def _play(env: PythonEnv, episodes: int, seed: int, observer: Observer) -> None:
    """Random episodes; each fault once, with where it first showed."""
    known: set[str] = set()
    for number in range(episodes):
        fault = None
        for fault, where in _episode_faults(env, seed * 1000 + number, number, observer):
            if fault.text not in known:
                known.add(fault.text)
                detail = f": {fault.detail}" if fault.detail else ""
                observer.found(f"{fault.text}{detail} (first: episode {number}{where})")
        if fault is not None and fault.ends_check:
            return
    if env.seedable and not known:
        observer.calls("`reset(seed)`", "the same seed twice")
        if not _same_start(env, seed):
            observer.found("`reset` with the same seed gives two different observations (first: episode 0)")


def _episode_faults(env: PythonEnv, seed: int, number: int, observer: Observer) -> Iterator[tuple[Fault, str]]:
    """What is wrong in one random episode, and at which step."""
    spec, rng, total, over = env.spec, np.random.default_rng(seed), 0.0, False
    view: Any = None
    outcome: Any = None
    for time in range(spec.episode_limit + 1):
        call, where = ("`step(action)`", f", step {time - 1}") if time else ("`reset(seed)`", "")
        observer.calls(call, f"episode {number}{where}")
        try:
            answer = _call(env, view, rng, seed, time)
        except RAISED as error:
            yield Fault(f"{call} raised {described(error)}", ends_check=True), where
            return
        faults = [fault] if time and (fault := answer_fault(answer)) else []
        if not faults:
            view, outcome = answer if time else (answer, None)
            faults = view_faults(view, spec) + (outcome_faults(outcome, spec) if time else [])
        if isinstance(env, SingleCopy) and not env.repeatable:
            faults.append(Fault("`step` is not a function of its arguments: the same call gave two results"))
        yield from ((fault, f", step {time}") for fault in faults)
        if any(fault.ends_episode for fault in faults):
            return
        if outcome is not None:
            total, over = total + float(np.sum(outcome.reward)), bool(outcome.terminated or outcome.truncated)
        if over:
            break
    yield from ((fault, "") for fault in end_faults(spec, total, over))


def _call(env: PythonEnv, view: View, rng: np.random.Generator, seed: int, time: int) -> Any:
    """Begin the episode, or take a random step in it."""
    if not time:
        return env.reset(seed)
    spec = env.spec
    return env.step(random_action(spec, np.asarray(view.avail, bool), rng.random(random_shape(spec))))


def _same_start(env: PythonEnv, seed: int) -> bool:
    first, second = env.reset(seed), env.reset(seed)
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
