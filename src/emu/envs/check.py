"""`check_env`: run it on your own environment; it lists everything that breaks the contract.

The same rules hold for compiled environments (`Env`) and Python ones (`PythonEnv`). First what can be seen without a
step: the specification, and (by tracing, see `tracing`) shapes and types of a compiled environment. Then random
episodes are played one step at a time, and every view and outcome is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from emu.envs.protocols import PythonEnv
from emu.envs.scripted import random_action, random_shape
from emu.envs.spec import EnvSpec, View
from emu.envs.stepping import SingleCopy, episode_steps, single_copy
from emu.envs.tracing import method_faults, tracing_faults
from emu.errors import EnvError
from emu.types import Outcome

TOLERANCE = 1e-3  # of returns, beyond spec.return_range


class Fault(NamedTuple):
    """Something that breaks the contract, and what it means for the episode in which it shows."""

    text: str
    ends_episode: bool = False  # no further step can be taken
    ends_check: bool = False  # nothing that follows would tell more: the environment itself failed


def check_env(env: Any, episodes: int = 8, seed: int = 0) -> None:
    """Raise `EnvError` listing everything found wrong; return quietly if the environment keeps its contract."""
    faults, playable = _static_faults(env)
    if playable:
        faults += _playing_faults(single_copy(env, verify=True), episodes, seed)
    _raise_if_any(env, faults)


def check_shapes(env: Any) -> None:
    """What can be seen without running a step: methods, the specification, shapes and types."""
    _raise_if_any(env, _static_faults(env)[0])


def _static_faults(env: Any) -> tuple[list[str], bool]:
    """What is wrong, and whether episodes can be played all the same."""
    if not isinstance(getattr(env, "spec", None), EnvSpec):
        raise EnvError(f"{type(env).__name__} has no `spec` of type EnvSpec. See docs/add-your-own.md.")
    sizes, descriptions = _size_faults(env.spec), _description_faults(env.spec)
    if isinstance(env, PythonEnv):
        if not sizes:
            env.require()
        return sizes + descriptions, not sizes
    missing = method_faults(env)
    traced = [] if missing or sizes else tracing_faults(env)
    return missing + sizes + descriptions + traced, not (missing or sizes or traced)


def _raise_if_any(env: Any, faults: list[str]) -> None:
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise EnvError(
            f"Environment '{env.spec.name}' breaks its contract:\n{lines}\n"
            "The contract is written in `emu.envs.Env` (for Python environments, `emu.envs.PythonEnv`)."
        )


def _size_faults(spec: EnvSpec) -> list[str]:
    sizes = ("n_agents", "n_actions", "obs_dim", "state_dim", "episode_limit")
    return [f"spec.{name} is {getattr(spec, name)}; it must be at least 1" for name in sizes if getattr(spec, name) < 1]


def _description_faults(spec: EnvSpec) -> list[str]:
    """What a specification says that does not fit together; episodes can be played all the same."""
    faults = []
    if spec.action_dim and spec.n_actions != 1:
        faults.append(f"spec.n_actions is {spec.n_actions}; with continuous actions (spec.action_dim) it must be 1")
    if spec.state_is_obs and (spec.n_agents, spec.state_dim) != (1, spec.obs_dim):
        faults.append("spec.state_is_obs needs one agent and a state as large as its observation")
    if not 0 <= spec.unit_dim * spec.n_agents <= spec.state_dim:
        faults.append(
            f"spec.unit_dim is {spec.unit_dim}, but {spec.n_agents} agents x {spec.unit_dim} features do not fit into "
            f"a state of {spec.state_dim}"
        )
    if not spec.return_range[0] < spec.return_range[1]:
        faults.append(f"spec.return_range {spec.return_range} is not (smallest, largest)")
    return faults


def _playing_faults(env: PythonEnv, episodes: int, seed: int) -> list[str]:
    """Random episodes; each fault once, with where it first showed."""
    found: dict[str, str] = {}
    for number in range(episodes):
        fault = None
        for fault, where in _episode_faults(env, seed * 1000 + number):
            found.setdefault(fault.text, f"episode {number}{where}")
        if fault is not None and fault.ends_check:
            break
    if env.seedable and not found and not _same_start(env, seed):
        found["`reset` with the same seed gives two different observations"] = "episode 0"
    return [f"{text} (first: {where})" for text, where in found.items()]


def _episode_faults(env: PythonEnv, seed: int) -> Iterator[tuple[Fault, str]]:
    """What is wrong in one random episode, and at which step."""
    spec, rng, total, over = env.spec, np.random.default_rng(seed), 0.0, False

    def act(view: View) -> np.ndarray:
        return random_action(spec, np.asarray(view.avail, bool), rng.random(random_shape(spec)))

    steps = episode_steps(env, act, seed)
    for time in range(spec.episode_limit + 1):
        try:
            view, outcome = next(steps)
        except Exception as error:
            call, where = ("`step(action)`", f", step {time - 1}") if time else ("`reset(seed)`", "")
            yield Fault(f"{call} raised {type(error).__name__}: {error}", ends_check=True), where
            return
        faults = _view_faults(view, spec) + (_outcome_faults(outcome) if time else [])
        if isinstance(env, SingleCopy) and not env.repeatable:
            faults.append(Fault("`step` is not a function of its arguments: the same call gave two results"))
        yield from ((fault, f", step {time}") for fault in faults)
        if any(fault.ends_episode for fault in faults):
            return
        if outcome is not None:
            total, over = total + float(outcome.reward), bool(outcome.terminated or outcome.truncated)
        if over:
            break
    yield from ((fault, "") for fault in _end_faults(spec, total, over))


def _view_faults(view: Any, spec: EnvSpec) -> list[Fault]:
    if not isinstance(view, View):
        return [Fault(f"`reset` or `step` returns {type(view).__name__}; expected emu.envs.View", ends_episode=True)]
    faults = []
    for name, value in view._asdict().items():
        value, shape = np.asarray(value), spec.step_fields[name][0]
        if value.shape != shape:
            text = f"it returns {name} of shape {value.shape}; its specification says {shape}"
            faults.append(Fault(text, ends_episode=True))
        elif not np.isfinite(value).all():
            faults.append(Fault(f"NaN or infinity in {name}"))
        elif name == "avail" and not value.any(-1).all():
            text = "an agent has no available action (every agent needs one, at the end of an episode too)"
            faults.append(Fault(text, ends_episode=True))
    return faults


def _outcome_faults(outcome: Any) -> list[Fault]:
    if not isinstance(outcome, Outcome):
        text = f"`step` returns {type(outcome).__name__} as outcome; expected emu.types.Outcome"
        return [Fault(text, ends_episode=True)]
    if np.shape(outcome.reward) != ():
        text = f"it returns a reward of shape {np.shape(outcome.reward)}; expected one number"
        return [Fault(text, ends_episode=True)]
    faults = []
    if not np.isfinite(outcome.reward):
        faults.append(Fault("the reward is NaN or infinite"))
    if outcome.terminated and outcome.truncated:
        faults.append(Fault("`terminated` and `truncated` are both true; terminated wins, report only it"))
    return faults


def _end_faults(spec: EnvSpec, total: float, over: bool) -> list[Fault]:
    """What only a whole episode shows."""
    faults, (low, high) = [], spec.return_range
    if not over:
        faults.append(Fault(f"the episode goes on after spec.episode_limit = {spec.episode_limit} steps"))
    if np.isfinite(total) and low < high and not low - TOLERANCE <= total <= high + TOLERANCE:
        faults.append(Fault(f"a return of {total:g} lies outside spec.return_range {spec.return_range}"))
    return faults


def _same_start(env: PythonEnv, seed: int) -> bool:
    first, second = env.reset(seed), env.reset(seed)
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
