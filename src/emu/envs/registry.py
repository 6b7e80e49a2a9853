"""Environments by name: what is registered, what adapters lead to other people's, and `make`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from emu.envs.protocols import Env, PythonEnv, Recipe
from emu.errors import EnvError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered environment: where its factory lives (imported on demand) and what it is."""

    factory: str | Callable[..., Env | PythonEnv]  # "package.module:function" or the callable itself
    summary: str
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_registry: dict[str, Entry] = {}
_adapters: dict[str, Entry] = {}


def register(name: str, factory: str | Callable[..., Env | PythonEnv], summary: str, **defaults: Any) -> None:
    """Make `make(name, **args)` call `factory(**defaults, **args)`. A name registered again is replaced."""
    _registry[name] = Entry(factory, summary, defaults)


def register_adapter(prefix: str, factory: str, summary: str) -> None:
    """Make `make("prefix:target", **args)` call `factory(target, **args)`: a way into other people's environments."""
    _adapters[prefix] = Entry(factory, summary)


def registered() -> dict[str, Entry]:
    """All registered environments, by name."""
    return dict(sorted(_registry.items()))


def adapters() -> dict[str, Entry]:
    """All adapters, by the prefix that chooses them."""
    return dict(sorted(_adapters.items()))


def make(name: str, **args: Any) -> Any:
    """Build an environment (`Env` or `PythonEnv`) by its registered name, e.g. `make("gridworld", penalty=0.5)`.

    A prefix chooses an adapter: "gymnasium:CartPole-v1". A name such as "my_module:Factory" needs no registration: it
    is imported, also from the current folder.
    """
    prefix, _, target = name.partition(":")
    if target and prefix in _adapters and name not in _registry:
        return _with_recipe(_adapters[prefix].factory, (target,), args)
    entry = _registry.get(name)
    if entry is None and ":" in name:
        entry = Entry(name, "")
    if entry is None:
        raise EnvError(f"No environment is called '{name}'. {did_you_mean(name, _registry)} `emu envs` lists them all.")
    factory = _resolve(entry.factory)
    accepted = inspect.signature(factory).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for key in args:
            if key not in accepted:
                raise EnvError(f"Environment '{name}' has no argument '{key}'. {did_you_mean(key, accepted)}")
    return _with_recipe(entry.factory, (), {**entry.defaults, **args})


def _with_recipe(factory: str | Callable[..., Any], positional: tuple[str, ...], named: dict[str, Any]) -> Any:
    """Build; a Python environment also learns how its copies are built in other processes."""
    env = _resolve(factory)(*positional, **named)
    if isinstance(env, PythonEnv):
        path = factory if isinstance(factory, str) else f"{factory.__module__}:{factory.__qualname__}"
        env.recipe = Recipe(path, positional, named)
    return env


def make_from(recipe: Recipe) -> PythonEnv:
    """Another copy of an environment that `make` built, in whatever process."""
    return _resolve(recipe.factory)(*recipe.positional, **recipe.named)


def _resolve(factory: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(factory, str):
        return factory
    name, _, attribute = factory.partition(":")
    here = os.getcwd()
    try:
        if here not in sys.path:
            sys.path.append(here)
        module = importlib.import_module(name)
    except ImportError as error:
        raise EnvError(f"Environment '{factory}' cannot be imported: {error}.") from error
    if not callable(getattr(module, attribute, None)):
        known = [word for word in vars(module) if not word.startswith("_")]
        raise EnvError(f"Module '{name}' has no '{attribute}'. {did_you_mean(attribute, known)}")
    return getattr(module, attribute)
