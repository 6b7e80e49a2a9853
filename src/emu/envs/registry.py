"""Environments by name: registered ones, those behind an adapter ("gymnasium:CartPole-v1"), and `module:Name`.

What `module:Name` stands for must *be* an environment, which is asked before anything of it is called:

    a class      derives from `PythonEnv`, or has the five methods of `Env`
    a function   says so in its return annotation: `def arena(size: int = 5) -> Arena: ...`

Anything else ("os:system") is refused and nothing of it is run.
"""

from __future__ import annotations

import inspect
import math
import numbers
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from emu.envs.protocols import Env, PythonEnv, Recipe
from emu.envs.started import noting_processes
from emu.errors import EmuError, EnvError, described, did_you_mean
from emu.registry import Entry, imported, refuse

METHODS = ("reset", "step", "observe", "avail", "state")  # of a compiled environment

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


def registered_adapters() -> dict[str, Entry]:
    """All adapters, by the prefix that chooses them."""
    return dict(sorted(_adapters.items()))


def make(name: str, /, **args: Any) -> Any:
    """Build an environment (`Env` or `PythonEnv`) by its registered name, e.g. `make("gridworld", penalty=0.5)`.

    A prefix chooses an adapter: "gymnasium:CartPole-v1". A name such as "my_module:Arena" needs no registration: it
    is imported, also from the current folder.
    """
    prefix, _, target = name.partition(":")
    if target and prefix in _adapters and name not in _registry:
        return _with_recipe(_adapters[prefix].target, (target,), args)
    entry = _registry.get(name)
    if entry is None and ":" in name:
        entry = Entry(name)
    if entry is None:
        raise EnvError(f"No environment is called '{name}'. {did_you_mean(name, _registry)} `emu envs` lists them all.")
    factory = _factory(entry.target)
    accepted = _parameters(factory)
    if accepted is not None and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for key in args:
            if key not in accepted:
                raise EnvError(f"Environment '{name}' has no argument '{key}'. {did_you_mean(key, accepted)}")
    _require_types(name, factory, args)
    return _with_recipe(entry.target, (), {**entry.defaults, **args})


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """What it takes, where it says so."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return None


def _require_types(name: str, factory: Callable[..., Any], args: dict[str, Any]) -> None:
    """Refuse arguments of another type than the environment says: they come from JSON, and would fail anywhere."""
    try:
        hints = typing.get_type_hints(factory.__init__ if isinstance(factory, type) else factory)
    except (NameError, TypeError, AttributeError):  # annotations that cannot be looked up say nothing
        return
    for key, value in args.items():
        if key in hints and not _fits(value, hints[key]):
            wanted = getattr(hints[key], "__name__", str(hints[key]))
            raise EnvError(f"Argument '{key}' of environment '{name}' must be of type {wanted}, not {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; types that are not plain are the environment's own business."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if hint is type(None):
        return value is None
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint in (int, float):
        number = numbers.Integral if hint is int else numbers.Real
        return (
            isinstance(value, number)
            and not isinstance(value, bool)
            and (not isinstance(value, float) or math.isfinite(value))
        )
    return True


def make_from(recipe: Recipe) -> PythonEnv:
    """The same environment once more, in a worker process."""
    return _factory(recipe.factory)(*recipe.positional, **recipe.named)


def _with_recipe(target: str | Callable[..., Any], positional: tuple[str, ...], named: dict[str, Any]) -> Any:
    """Build; a Python environment also learns how its copies are built in other processes."""
    factory = _factory(target)
    try:
        with noting_processes():
            env = factory(*positional, **named)
    except EmuError:
        raise
    except (Exception, SystemExit) as error:
        name = ":".join((_name_of(target), *positional))
        raise EnvError(f"'{name}' cannot be made from {named or 'no arguments'}: {described(error)}") from error
    if isinstance(env, PythonEnv):
        env.recipe = Recipe(_name_of(target), positional, named)
    return env


def _name_of(target: str | Callable[..., Any]) -> str:
    return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"


def _factory(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """What makes the environment, known to make one."""
    if not isinstance(target, str):
        return target
    found = imported(target, "environment", EnvError)
    if not (is_environment(found) or makes_environment(found)):
        wanted = (
            "a class derived from `emu.envs.PythonEnv`, a class with the methods "
            f"{', '.join(METHODS)}, or a function whose return annotation is such a class"
        )
        refuse(target, "environment", wanted, found, EnvError)
    return found


def is_environment(found: Any) -> bool:
    """Whether this is a class of environments, to judge by its ancestors and methods."""
    if not isinstance(found, type):
        return False
    return issubclass(found, PythonEnv) or all(callable(getattr(found, name, None)) for name in METHODS)


def makes_environment(found: Any) -> bool:
    """Whether this is a function that is annotated to return an environment (or one of several)."""
    if not inspect.isfunction(found):
        return False
    try:
        returned = typing.get_type_hints(found).get("return")
    except (NameError, TypeError, AttributeError):  # an annotation that cannot be looked up says nothing
        return False
    several = typing.get_origin(returned) in (typing.Union, types.UnionType)
    kinds = typing.get_args(returned) if several else (returned,)
    return all(is_environment(kind) for kind in kinds)


def require_foreign_environment(target: str, found: Any, methods: tuple[str, ...]) -> None:
    """For adapters, before they call what they have imported: a class with these methods, or a package's own function.

    Other people's functions are seldom annotated, so only those of Python's standard library are refused: none of
    them makes an environment, and many do harm.
    """
    if isinstance(found, type):
        fits = all(callable(getattr(found, name, None)) for name in methods)
    else:
        package = str(getattr(found, "__module__", "") or "").partition(".")[0]
        fits = inspect.isfunction(found) and package not in sys.stdlib_module_names
    if not fits:
        quoted = ", ".join(f"`{name}`" for name in methods)
        wanted = f"a class with the methods {quoted}, or a package's function that makes such an object"
        refuse(target, "environment", wanted, found, EnvError)
