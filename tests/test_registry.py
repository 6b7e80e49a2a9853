"""Names into classes: what is found, what is refused, and with which words."""

from __future__ import annotations

import pytest

from emu import envs
from emu.envs.protocols import Env, PythonEnv
from emu.envs.registry import makes_environment
from emu.errors import ConfigError, EnvError
from emu.registry import Registry, imported


class Animal:
    pass


class Dog(Animal):
    pass


class Nested:
    class Cat(Animal):
        pass


def animals() -> Registry[Animal]:
    registry: Registry[Animal] = Registry("animal", f"{__name__}:Animal", "zoo.animal")
    registry.register("dog", f"{__name__}:Dog", "barks")
    return registry


def test_a_class_is_found_by_its_name_or_by_where_it_lives():
    assert animals().find("dog") is Dog
    assert animals().find(f"{__name__}:Dog") is Dog
    assert animals().find(f"{__name__}:Nested.Cat") is Nested.Cat
    assert animals().names() == ["dog"] and animals().summary("dog") == "barks"


def test_a_name_registered_again_is_replaced():
    registry = animals()
    registry.register("dog", Nested.Cat)
    assert registry.find("dog") is Nested.Cat


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dogg", r"No animal is called 'dogg' \(zoo\.animal\)\. Did you mean 'dog'\?"),
        ("builtins:dict", r"is no animal: a class derived from `\S+Animal` is needed, but it is the class `dict`"),
        ("os:getcwd", r"is no animal: .* but it is a builtin_function_or_method\. Nothing of it was called"),
        ("no_such_module:Dog", r"cannot be imported: No module named"),
        (":Dog", r"write `module:Name`"),
        ("os:", r"write `module:Name`"),
        ("..:x", "names no"),
        (f"{__name__}:Dogg", r"has no 'Dogg'\. Did you mean 'Dog'"),
    ],
)
def test_what_is_no_such_thing_is_refused_with_a_reason(name, message):
    with pytest.raises(ConfigError, match=message):
        animals().find(name)


def test_the_error_is_of_the_kind_asked_for():
    with pytest.raises(EnvError):
        imported("no_such_module:x", "environment", EnvError)


def test_a_function_makes_environments_only_if_it_says_so():
    from emu.envs.gridworld import GridWorld

    def annotated() -> GridWorld: ...
    def either() -> GridWorld | PythonEnv: ...
    def protocol() -> Env: ...
    def silent(): ...
    def something() -> object: ...
    def optional() -> GridWorld | None: ...
    def unknown() -> NoSuchThing: ...  # type: ignore[name-defined]  # noqa: F821

    annotated.__annotations__ = {"return": GridWorld}  # not as text: local names cannot be looked up
    either.__annotations__ = {"return": GridWorld | PythonEnv}
    optional.__annotations__ = {"return": GridWorld | None}
    assert all(makes_environment(f) for f in (annotated, either, protocol))
    assert not any(makes_environment(f) for f in (silent, something, optional, unknown, len, GridWorld))


def test_registered_factories_are_known_to_make_environments():
    from emu.envs.registry import _factory

    for entry in [*envs.registered().values(), *envs.registered_adapters().values()]:
        if isinstance(entry.target, str) and "Atari" not in entry.target:
            assert callable(_factory(entry.target))
