"""What can be wrong with what an environment says and shows, field by field: types, shapes, numbers.

Used by the checker and by worker processes; nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError, printable
from emu.types import Outcome

NUMBERS = "biuf"  # kinds of NumPy types: flags, whole numbers, unsigned ones, fractions
SIZES = ("n_agents", "n_actions", "obs_dim", "state_dim", "episode_limit")
WHOLE = (*SIZES, "unit_dim", "action_dim", "stack")
FLAGS = ("terminated", "truncated", "won")


class Fault(NamedTuple):
    """Something that breaks the contract, and what it means for the episode in which it shows."""

    text: str
    detail: str = ""  # where and how it first showed; not part of what it is
    ends_episode: bool = False  # no further step can be taken
    ends_check: bool = False  # nothing that follows would tell more: the environment itself failed


def raise_if_any(name: str, faults: list[str], more: str = "") -> None:
    """One error that lists all of them."""
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise EnvError(
            f"Environment '{printable(str(name))}' breaks its contract:\n{lines}\n"
            f"The contract is written in `emu.envs.Env` (for Python environments, `emu.envs.PythonEnv`).{more}"
        )


def spec_faults(spec: EnvSpec) -> tuple[list[str], list[str]]:
    """What is wrong with a specification: that which keeps episodes from being played, and the rest."""
    types = list(_type_faults(spec))
    sizes = [] if types else list(_size_faults(spec))
    return types + sizes, [] if types or sizes else list(_description_faults(spec))


def _type_faults(spec: EnvSpec) -> Iterator[str]:
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name in WHOLE and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"spec.{field.name} is {shown(value)}; it must be a whole number (int)"
        elif field.type == "str" and not isinstance(value, str):
            yield f"spec.{field.name} is {shown(value)}; it must be a text (str)"
        elif field.type == "bool" and not isinstance(value, bool):
            yield f"spec.{field.name} is {shown(value)}; it must be True or False"
        elif field.name in ("obs_type", "state_type") and not _is_number_type(value):
            yield f"spec.{field.name} is {shown(value)}; it must name a type of numbers, such as 'float32'"
    if not _is_pair(spec.return_range, float):
        yield f"spec.return_range is {shown(spec.return_range)}; it must be a pair of numbers"
    if spec.picture is not None and not _is_pair(spec.picture, int):
        yield f"spec.picture is {shown(spec.picture)}; it must be a height and a width, or None"


def _is_number_type(name: Any) -> bool:
    try:
        return np.dtype(name).kind in NUMBERS
    except TypeError:
        return False


def _is_pair(value: Any, kind: type) -> bool:
    wanted = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, wanted) for v in value)


def _size_faults(spec: EnvSpec) -> Iterator[str]:
    for name in (*SIZES, "stack"):
        if getattr(spec, name) < 1:
            yield f"spec.{name} is {getattr(spec, name)}; it must be at least 1"
    if spec.action_dim < 0:
        yield f"spec.action_dim is {spec.action_dim}; it must be at least 0"
    needed, there = spec.step_bytes * (spec.episode_limit + 1), memory_of_machine()
    if needed > there:
        yield (
            f"one episode of spec.episode_limit = {spec.episode_limit:,} steps takes {needed / 1e9:,.1f} GB "
            f"({spec.step_bytes:,} bytes a step); this machine has {there / 1e9:,.1f}"
        )


def memory_of_machine() -> float:
    """Bytes; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def _description_faults(spec: EnvSpec) -> Iterator[str]:
    """What does not fit together; episodes can be played all the same."""
    if spec.action_dim and spec.n_actions != 1:
        yield f"spec.n_actions is {spec.n_actions}; with continuous actions (spec.action_dim) it must be 1"
    if spec.state_is_obs and (spec.n_agents, spec.state_dim) != (1, spec.obs_dim):
        yield "spec.state_is_obs needs one agent and a state as large as its observation"
    if not 0 <= spec.unit_dim * spec.n_agents <= spec.state_dim:
        yield (
            f"spec.unit_dim is {spec.unit_dim}, but {spec.n_agents} agents x {spec.unit_dim} features do not fit into "
            f"a state of {spec.state_dim}"
        )
    if not spec.return_range[0] < spec.return_range[1]:
        yield f"spec.return_range {spec.return_range} is not (smallest, largest)"
    if spec.picture is not None and math.prod(spec.picture) != spec.obs_dim:
        yield f"spec.picture {spec.picture} does not fit spec.obs_dim = {spec.obs_dim}"


def answer_fault(answer: Any) -> Fault | None:
    """`step` returns two things."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return None
    what = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
    return Fault(f"`step` returns {what}; expected a pair (View, Outcome)", ends_episode=True)


def view_faults(view: Any, spec: EnvSpec) -> list[Fault]:
    """What is wrong with what is seen."""
    if not isinstance(view, View):
        text = f"`reset` or `step` returns {type(view).__name__}; expected emu.envs.View"
        return [Fault(text, ends_episode=True)]
    return [fault for name, value in view._asdict().items() for fault in _field_faults(name, value, spec)]


def _field_faults(name: str, value: Any, spec: EnvSpec) -> Iterator[Fault]:
    shape, kind = spec.step_fields[name]
    try:
        value = np.asarray(value)
    except Exception as error:
        yield Fault(f"{name} is no array", f"{type(error).__name__}: {error}", ends_episode=True)
        return
    if value.dtype.kind not in NUMBERS:
        text = f"{name} is of type {value.dtype}; expected {np.dtype(kind).name}"
        yield Fault(text, f"it holds {shown(value.flat[0])}" if value.size else "", ends_episode=True)
    elif value.shape != shape:
        yield Fault(f"it returns {name} of shape {value.shape}; its specification says {shape}", ends_episode=True)
    elif not np.isfinite(value).all():
        yield Fault(f"NaN or infinity in {name}", _first(value, ~np.isfinite(value)))
    elif (outside := _unfit(value, np.dtype(kind))).any():
        yield Fault(f"{name} holds a number that {np.dtype(kind).name} cannot", _first(value, outside))
    elif name == "avail" and not value.any(-1).all():
        text = "an agent has no available action (every agent needs one, at the end of an episode too)"
        yield Fault(text, f"agent {int(np.flatnonzero(~value.any(-1))[0])}", ends_episode=True)


def _unfit(value: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Where numbers would change when they are kept as `kind`, but for a float's rounding."""
    if value.dtype == kind:
        return np.zeros(value.shape, bool)
    if kind.kind == "b":
        return (value != 0) & (value != 1)
    if kind.kind == "f":
        return np.abs(value.astype(np.float64)) > float(np.finfo(kind).max)
    limits = np.iinfo(kind)
    return (value < limits.min) | (value > limits.max) | (value != np.trunc(value))


def _first(value: np.ndarray, wrong: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{value[place]} at {list(place)}, type {value.dtype}"


def outcome_faults(outcome: Any, spec: EnvSpec) -> list[Fault]:
    """What is wrong with how a step turned out."""
    faults = outcome_type_faults(outcome, spec)
    if not faults:
        reward = np.asarray(outcome.reward, np.float64)
        if not np.isfinite(reward).all():
            detail = f"{reward.tolist()}, type {type(outcome.reward).__name__}"
            faults.append(Fault("the reward is NaN or infinite", detail))
        elif (largest := np.abs(reward).max()) > float(np.finfo(np.float32).max):
            faults.append(Fault("the reward is a number that float32 cannot hold", f"{largest:g}"))
        if outcome.terminated and outcome.truncated:
            faults.append(Fault("`terminated` and `truncated` are both true; terminated wins, report only it"))
    return faults


def outcome_type_faults(outcome: Any, spec: EnvSpec) -> list[Fault]:
    """Only what is wrong with its types; cheap, so that workers can ask after every step."""
    if not isinstance(outcome, Outcome):
        text = f"`step` returns {type(outcome).__name__} as outcome; expected emu.types.Outcome"
        return [Fault(text, ends_episode=True)]
    fault = _own_rewards_fault(outcome.reward, spec) if spec.own_rewards else _reward_fault(outcome.reward)
    faults = [Fault(fault, ends_episode=True)] if fault else []
    for name in FLAGS:
        value = getattr(outcome, name)
        if not isinstance(value, bool | np.bool_) and not _is_flag(value):
            faults.append(Fault(f"`{name}` is {shown(value)}; expected True or False", ends_episode=True))
    return faults


def _reward_fault(reward: Any) -> str:
    """Why this is no reward of a team."""
    if not isinstance(reward, float | int | np.number):
        if np.shape(reward) != ():
            return f"it returns a reward of shape {np.shape(reward)}; expected one number"
        if getattr(getattr(reward, "dtype", None), "kind", "O") not in NUMBERS:
            return f"the reward is {shown(reward)}; expected one number"
    elif isinstance(reward, complex | np.complexfloating):
        return f"the reward is {shown(reward)}; expected one real number"
    return ""


def _own_rewards_fault(reward: Any, spec: EnvSpec) -> str:
    """Why these are no rewards of the agents' own."""
    if isinstance(reward, np.ndarray) and reward.shape == (spec.n_agents,) and reward.dtype.kind in NUMBERS:
        return ""
    return f"the reward is {shown(reward)}; expected an array of {spec.n_agents} numbers, one for each agent"


def _is_flag(value: Any) -> bool:
    """Also 0 and 1, and arrays without dimensions."""
    if isinstance(value, int | float | np.number | np.ndarray) and np.shape(value) == ():
        return np.asarray(value).dtype.kind in NUMBERS and value in (0, 1)
    return False


def end_faults(spec: EnvSpec, total: float, over: bool, tolerance: float = 1e-3) -> list[Fault]:
    """What only a whole episode shows."""
    faults, (low, high) = [], spec.return_range
    if not over:
        faults.append(Fault(f"the episode goes on after spec.episode_limit = {spec.episode_limit} steps"))
    if math.isfinite(total) and low < high and not low - tolerance <= total <= high + tolerance:
        faults.append(Fault(f"a return lies outside spec.return_range {spec.return_range}", f"{total:g}"))
    return faults


def shown(value: Any) -> str:
    """A value of any kind, briefly: `2.0 (float)`."""
    try:
        text = repr(value)
    except Exception:
        text = "something that cannot be shown"
    text = text if len(text) <= 60 else f"{text[:60]}..."
    return f"{printable(text)} ({type(value).__name__})"
