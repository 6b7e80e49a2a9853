"""What tracing shows of a compiled environment: its methods' shapes and types, without running a step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from emu.envs.protocols import Env
from emu.errors import described
from emu.types import Outcome

METHODS = ("reset", "step", "observe", "avail", "state")
OUTCOME_TYPES = {"reward": jnp.float32, "terminated": jnp.bool_, "truncated": jnp.bool_, "won": jnp.bool_}


def method_faults(env: Any) -> list[str]:
    return [f"it has no method `{name}`" for name in METHODS if not callable(getattr(env, name, None))]


def tracing_faults(env: Env) -> list[str]:
    """Trace every method without running it, and compare shapes and types with the specification."""
    spec, key = env.spec, jax.random.PRNGKey(0)
    try:
        state = jax.eval_shape(env.reset, key)
    except (Exception, SystemExit) as error:
        return [f"`reset(key)` failed under jax tracing: {described(error, lines=1)}"]
    expected = {
        "observe": ((spec.n_agents, spec.obs_dim), jnp.float32),
        "avail": ((spec.n_agents, spec.n_actions), jnp.bool_),
        "state": ((spec.state_dim,), jnp.float32),
    }
    faults = []
    for name, (shape, dtype) in expected.items():
        try:
            found = jax.eval_shape(getattr(env, name), state)
        except (Exception, SystemExit) as error:
            faults.append(f"`{name}(state)` failed under jax tracing: {described(error, lines=1)}")
            continue
        if not hasattr(found, "shape") or found.shape != shape or found.dtype != dtype:
            faults.append(f"`{name}(state)` returns {_describe(found)}; expected {jnp.dtype(dtype).name}{list(shape)}")
    return faults + _step_faults(env, state, key)


def _step_faults(env: Env, state: Any, key: Any) -> list[str]:
    action = jax.ShapeDtypeStruct(*env.spec.step_fields["action"])
    try:
        following, outcome = jax.eval_shape(env.step, state, action, key)
    except (Exception, SystemExit) as error:
        return [f"`step(state, action, key)` failed under jax tracing: {described(error, lines=1)}"]
    faults = []
    if _signature(following) != _signature(state):
        faults.append(
            "`step` returns a state whose structure, shapes or types differ from those of `reset`: "
            f"{_signature(following)} instead of {_signature(state)}"
        )
    if not isinstance(outcome, Outcome):
        return [*faults, f"`step` returns {type(outcome).__name__} as outcome; expected emu.types.Outcome"]
    for name, dtype in OUTCOME_TYPES.items():
        value = getattr(outcome, name)
        if getattr(value, "shape", None) != () or value.dtype != dtype:
            faults.append(f"outcome.{name} is {_describe(value)}; expected a scalar {jnp.dtype(dtype).name}")
    return faults


def _signature(tree: Any) -> str:
    leaves, structure = jax.tree.flatten(tree)
    return f"{structure} of {', '.join(_describe(leaf) for leaf in leaves)}"


def _describe(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if hasattr(value, "shape") else repr(type(value).__name__)
