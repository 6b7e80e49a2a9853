"""Scripted players: teams that need no training, for baselines, films and checks of environments.

Every environment has "random". It may offer others in an attribute `scripted`, a dictionary of functions by name:

    compiled environments    (env, state, key) -> actions       pure, jitted and vmapped; for one copy
    Python environments      (env, view, generator) -> actions

A player of a compiled environment that must remember something from step to step is a `Remembering`. Actions are (N,)
int32, or (N, A) float32 in [-1, 1] where they are continuous, and always available ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from emu.envs.protocols import Env, PythonEnv
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError, did_you_mean
from emu.types import Array, PyTree


class Remembering(NamedTuple):
    """A player of a compiled environment with a memory of the episode so far."""

    start: Callable[[Any], PyTree]  # env -> the memory at the start of an episode
    act: Callable[[Any, Any, Array, PyTree], tuple[Array, PyTree]]  # env, state, key, memory -> actions, memory


Player = Callable[[Any, Any, Any], Array] | Remembering


def remembering(player: Player) -> Remembering:
    """Any player of a compiled environment as one with a memory, which may be empty."""
    if isinstance(player, Remembering):
        return player
    return Remembering(lambda env: (), lambda env, state, key, memory: (player(env, state, key), memory))


def random_action(spec: EnvSpec, avail: Array, uniform: Array) -> Array:
    """A joint action drawn from what is available, all equally likely. NumPy arrays in, NumPy out; JAX in, JAX out.

    `uniform` holds numbers in [0, 1) of the shape `random_shape(spec)`.
    """
    if spec.action_dim:
        return (2 * uniform - 1).astype(np.float32)
    return (avail * (1 + uniform)).argmax(axis=-1).astype(np.int32)


def random_shape(spec: EnvSpec) -> tuple[int, int]:
    return spec.n_agents, spec.action_dim or spec.n_actions


def _random_compiled(env: Env, state: Any, key: Array) -> Array:
    import jax  # only compiled environments need it

    return random_action(env.spec, env.avail(state), jax.random.uniform(key, random_shape(env.spec)))


def _random_python(env: PythonEnv, view: View, rng: np.random.Generator) -> np.ndarray:
    return random_action(env.spec, np.asarray(view.avail, bool), rng.random(random_shape(env.spec)))


def scripted_players(env: Env | PythonEnv) -> Mapping[str, Player]:
    """All scripted players of an environment, by name."""
    random = _random_python if isinstance(env, PythonEnv) else _random_compiled
    return {"random": random, **_offered(env)}


def _offered(env: Any) -> Mapping[str, Player]:
    return getattr(env, "scripted", {})


def scripted_player(env: Env | PythonEnv, name: str) -> Player:
    players = scripted_players(env)
    if name not in players:
        raise EnvError(f"No scripted player of '{env.spec.name}' is called '{name}'. {did_you_mean(name, players)}")
    return players[name]


def final_counts_of(env: Any) -> Callable[[Any], dict[str, Array]] | None:
    """What a summary should tell of the last state of an episode, where a compiled environment has `final_counts`."""
    return getattr(env, "final_counts", None)
