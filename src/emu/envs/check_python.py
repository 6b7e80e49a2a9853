"""The part of `check_env` that plays random episodes in a Python environment, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from emu.envs.protocols import PythonEnv
from emu.envs.scripted import random_action
from emu.envs.spec import EnvSpec, View
from emu.types import Outcome


def play(env: PythonEnv, episodes: int, seed: int) -> list[str]:
    """Random episodes, step by step; each problem once, with where it first showed."""
    found: dict[str, str] = {}
    for number in range(episodes):
        for problem, where in _episode(env, seed * 1000 + number):
            found.setdefault(problem, f"episode {number}{where}")
        if any("raised" in problem or "returns" in problem or "reward" in problem for problem in found):
            break  # nothing that follows would tell more
    if env.seedable and not found and not _same_start(env, seed):
        found["`reset` with the same seed gives two different observations"] = "episode 0"
    return [f"{problem} (first: {where})" for problem, where in found.items()]


def _same_start(env: PythonEnv, seed: int) -> bool:
    first, second = env.reset(seed), env.reset(seed)
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _episode(env: PythonEnv, seed: int) -> Iterator[tuple[str, str]]:
    spec, rng, total = env.spec, np.random.default_rng(seed), 0.0
    try:
        view = env.reset(seed)
    except Exception as error:
        yield f"`reset(seed)` raised {type(error).__name__}: {error}", ""
        return
    problems = _view_problems(view, spec)
    for time in range(spec.episode_limit):
        where = f", step {time}"
        yield from ((problem, where) for problem in problems)
        if problems:
            return
        action = random_action(spec, np.asarray(view.avail, bool), rng)
        try:
            view, outcome = env.step(action)
        except Exception as error:
            yield f"`step(action)` raised {type(error).__name__}: {error}", where
            return
        problems = _view_problems(view, spec) + _outcome_problems(outcome)
        total += float(outcome.reward) if isinstance(outcome, Outcome) else 0.0
        if not problems and (outcome.terminated or outcome.truncated):
            low, high = spec.return_range
            if not low - 1e-3 <= total <= high + 1e-3:
                yield f"a return of {total:g} lies outside spec.return_range {spec.return_range}", ""
            return
    yield from ((problem, f", step {spec.episode_limit}") for problem in problems)
    if not problems:
        yield f"the episode goes on after spec.episode_limit = {spec.episode_limit} steps", ""


def _view_problems(view: Any, spec: EnvSpec) -> list[str]:
    if not isinstance(view, View):
        return [f"`reset` or `step` returns {type(view).__name__}; expected emu.envs.View"]
    n, problems = spec.n_agents, []
    shapes = {"obs": (n, spec.obs_dim), "state": (spec.state_dim,), "avail": (n, spec.n_actions)}
    for name, shape in shapes.items():
        value = np.asarray(getattr(view, name))
        if value.shape != shape:
            problems.append(f"it returns {name} of shape {value.shape}; its specification says {shape}")
        elif not np.isfinite(value).all():
            problems.append(f"it returns NaN or infinity in {name}")
        elif name == "avail" and not value.any(-1).all():
            problems.append("an agent has no available action (every agent needs one, at the end of an episode too)")
    return problems


def _outcome_problems(outcome: Any) -> list[str]:
    if not isinstance(outcome, Outcome):
        return [f"`step` returns {type(outcome).__name__} as outcome; expected emu.types.Outcome"]
    problems = []
    if np.shape(outcome.reward) != ():
        return [f"it returns a reward of shape {np.shape(outcome.reward)}; expected one number"]
    if not np.isfinite(outcome.reward):
        problems.append("the reward is NaN or infinite")
    if outcome.terminated and outcome.truncated:
        problems.append("`terminated` and `truncated` are both true; terminated wins, report only it")
    return problems
