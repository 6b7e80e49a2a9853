"""`check_env`: run it on your own environment; it plays random episodes and explains what breaks the contract."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs import check_python as host_checker
from emu.envs.protocols import Env, PythonEnv
from emu.envs.scripted import random_action
from emu.envs.spec import EnvSpec
from emu.errors import EnvError
from emu.types import Outcome

METHODS = ("reset", "step", "observe", "avail", "state")


def check_env(env: Any, episodes: int = 8, seed: int = 0) -> None:
    """Raise `EnvError` listing everything found wrong; return quietly if the environment keeps its contract.

    It takes both kinds: compiled environments (`Env`) and Python ones (`PythonEnv`).
    """
    check_shapes(env)
    problems = host_checker.play(env, episodes, seed) if isinstance(env, PythonEnv) else _play(env, episodes, seed)
    if problems:
        raise EnvError(_report(env.spec.name, problems))


def check_shapes(env: Any) -> None:
    """What can be seen without running a step: methods, the specification, shapes and types."""
    if not isinstance(getattr(env, "spec", None), EnvSpec):
        raise EnvError(f"{type(env).__name__} has no `spec` of type EnvSpec. See docs/add-your-own.md.")
    if isinstance(env, PythonEnv):
        if problems := _spec_problems(env.spec):
            raise EnvError(_report(env.spec.name, problems))
        env.require()
        return
    missing = [name for name in METHODS if not callable(getattr(env, name, None))]
    if missing:
        raise EnvError(_report(env.spec.name, [f"it has no method `{name}`" for name in missing]))
    problems = _spec_problems(env.spec)
    if not problems:
        problems = _shape_problems(env)
    if problems:
        raise EnvError(_report(env.spec.name, problems))


def _report(name: str, problems: list[str]) -> str:
    lines = "\n".join(f"  - {problem}" for problem in problems)
    return (
        f"Environment '{name}' breaks its contract:\n{lines}\n"
        "The contract is written in `emu.envs.Env` (for Python environments, `emu.envs.PythonEnv`)."
    )


def _spec_problems(spec: EnvSpec) -> list[str]:
    problems = []
    for field in ("n_agents", "n_actions", "obs_dim", "state_dim", "episode_limit"):
        if getattr(spec, field) < 1:
            problems.append(f"spec.{field} is {getattr(spec, field)}; it must be at least 1")
    if spec.action_dim and spec.n_actions != 1:
        problems.append(f"spec.n_actions is {spec.n_actions}; with continuous actions (spec.action_dim) it must be 1")
    if spec.state_is_obs and (spec.n_agents, spec.state_dim) != (1, spec.obs_dim):
        problems.append("spec.state_is_obs needs one agent and a state as large as its observation")
    if not 0 <= spec.unit_dim * spec.n_agents <= spec.state_dim:
        problems.append(
            f"spec.unit_dim is {spec.unit_dim}, but {spec.n_agents} agents x {spec.unit_dim} features do not fit into "
            f"a state of {spec.state_dim}"
        )
    if not spec.return_range[0] < spec.return_range[1]:
        problems.append(f"spec.return_range {spec.return_range} is not (smallest, largest)")
    return problems


def _shape_problems(env: Env) -> list[str]:
    """Trace every method without running it, and compare shapes and types with the specification."""
    spec, key = env.spec, jax.random.PRNGKey(0)
    try:
        state = jax.eval_shape(env.reset, key)
    except Exception as error:
        return [f"`reset(key)` failed under jax tracing: {_short(error)}"]
    expected = {
        "observe": ((spec.n_agents, spec.obs_dim), jnp.float32),
        "avail": ((spec.n_agents, spec.n_actions), jnp.bool_),
        "state": ((spec.state_dim,), jnp.float32),
    }
    problems = []
    for name, (shape, dtype) in expected.items():
        try:
            found = jax.eval_shape(getattr(env, name), state)
        except Exception as error:
            problems.append(f"`{name}(state)` failed under jax tracing: {_short(error)}")
            continue
        if not hasattr(found, "shape") or found.shape != shape or found.dtype != dtype:
            problems.append(
                f"`{name}(state)` returns {_describe(found)}; expected {jnp.dtype(dtype).name}{list(shape)}"
            )
    return problems + _step_problems(env, state, key)


def _step_problems(env: Env, state: Any, key: Any) -> list[str]:
    action = jax.ShapeDtypeStruct(*env.spec.step_fields["action"])
    try:
        following, outcome = jax.eval_shape(env.step, state, action, key)
    except Exception as error:
        return [f"`step(state, action, key)` failed under jax tracing: {_short(error)}"]
    problems = []
    if _signature(following) != _signature(state):
        problems.append(
            "`step` returns a state whose structure, shapes or types differ from those of `reset`: "
            f"{_signature(following)} instead of {_signature(state)}"
        )
    if not isinstance(outcome, Outcome):
        return [*problems, f"`step` returns {type(outcome).__name__} as outcome; expected emu.types.Outcome"]
    for name, dtype in (
        ("reward", jnp.float32),
        ("terminated", jnp.bool_),
        ("truncated", jnp.bool_),
        ("won", jnp.bool_),
    ):
        value = getattr(outcome, name)
        if getattr(value, "shape", None) != () or value.dtype != dtype:
            problems.append(f"outcome.{name} is {_describe(value)}; expected a scalar {jnp.dtype(dtype).name}")
    return problems


def _play(env: Env, episodes: int, seed: int) -> list[str]:
    """Random episodes, step by step, each problem reported once with where it first showed."""
    spec, found = env.spec, {}
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    look = jax.jit(lambda s: (env.observe(s), env.avail(s), env.state(s)))
    rng = np.random.default_rng(seed)

    def note(problem: str, where: str) -> None:
        found.setdefault(problem, where)

    for number in range(episodes):
        key = jax.random.PRNGKey(seed * 1000 + number)
        state, total, over, time = reset(key), 0.0, False, 0
        for time in range(spec.episode_limit + 1):
            where = f"episode {number}, step {time}"
            obs, avail, features = (np.asarray(x) for x in look(state))
            for name, array in (("observe", obs), ("state", features)):
                if not np.isfinite(array).all():
                    note(f"`{name}` returns NaN or infinity", where)
            if not avail.any(axis=-1).all():
                note(
                    "an agent has no available action (every agent needs one, at the end of an episode too)",
                    where,
                )
                break
            if over or time == spec.episode_limit:
                break
            action = random_action(spec, avail, rng)
            key = jax.random.fold_in(key, time)
            once, outcome = step(state, action, key)
            if not _same(once, step(state, action, key)[0]):
                note("`step` is not a function of its arguments: the same call gave two results", where)
            state, reward = once, float(outcome.reward)
            if not np.isfinite(reward):
                note("the reward is NaN or infinite", where)
            total += reward
            if bool(outcome.terminated) and bool(outcome.truncated):
                note("`terminated` and `truncated` are both true; terminated wins, report only it", where)
            over = bool(outcome.terminated) or bool(outcome.truncated)
        if not over:
            note(
                f"the episode goes on after spec.episode_limit = {spec.episode_limit} steps",
                f"episode {number}",
            )
        low, high = spec.return_range
        if np.isfinite(total) and not low - 1e-3 <= total <= high + 1e-3:
            note(
                f"a return of {total:g} lies outside spec.return_range {spec.return_range}",
                f"episode {number}",
            )
    return [f"{problem} (first: {where})" for problem, where in found.items()]


def _signature(tree: Any) -> str:
    leaves, structure = jax.tree.flatten(tree)
    return f"{structure} of {', '.join(_describe(leaf) for leaf in leaves)}"


def _same(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def _describe(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if hasattr(value, "shape") else repr(type(value).__name__)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
