"""Plain dictionaries into typed dataclasses, strictly: an unknown key or a value of another type is refused."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from tyro.constructors import PrimitiveConstructorSpec

from emu.bounds import hints_of
from emu.errors import ConfigError, did_you_mean
from emu.files import parse_json
from emu.registry import NoSettings


def _parse_json_object(words: list[str]) -> dict[str, Any]:
    value = parse_json(words[0])
    if not isinstance(value, dict):
        raise ValueError(f"{words[0]} is not a JSON object")
    return value


# A dictionary that the command line takes as one JSON object: --env-args '{"penalty": 0.5}'
JsonObject = Annotated[
    dict[str, Any],
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="JSON",
        instance_from_str=_parse_json_object,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [json.dumps(value)],
    ),
]


def build(kind: type, data: dict[str, Any], where: str = "") -> Any:
    """A dataclass of this kind from a dictionary of its fields."""
    if not isinstance(data, dict):
        raise ConfigError(f"A configuration is a JSON object, not {data!r}.")
    hints = hints_of(kind)
    unknown = [key for key in data if key not in hints]
    if unknown:
        path = f"{where}{unknown[0]}"
        raise ConfigError(f"Unknown configuration key '{path}'. {did_you_mean(unknown[0], hints)}")
    values = {key: _convert(value, hints[key], f"{where}{key}") for key, value in data.items()}
    return kind(**values)


def settings_of(piece: type, given: Mapping[str, Any], where: str) -> Any:
    """The `Settings` of a learner, a term or a logger from a JSON object, as strictly as everything else."""
    kind: Any = getattr(piece, "Settings", NoSettings)
    if given and not dataclasses.fields(kind):
        raise ConfigError(f"'{where}' must be empty: {piece.__name__} has no settings of its own.")
    try:
        return build(kind, dict(given), f"{where}.")
    except TypeError as error:  # a setting without a default is missing
        raise ConfigError(f"'{where}' is not complete: {error}.") from error


def _convert(value: Any, hint: Any, where: str) -> Any:
    """A value of the type wanted; whether it lies within its bounds is checked when the dataclass is made."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _convert(value, typing.get_args(hint)[0], where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"'{where}' must be a group of settings, not {value!r}.")
        return build(hint, value, f"{where}.")  # type: ignore[arg-type]
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, typing.get_args(hint), where)
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"'{where}' must be a JSON object, not {value!r}.")
        return dict(value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"'{where}' must be a list, not {value!r}.")
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"'{where}' is too large for a number: it has {len(str(value))} digits.") from None
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6
    if hint in (int, float, str, bool) and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise ConfigError(f"'{where}' must be of type {hint.__name__}, not {value!r}.")
    return value


def _convert_union(value: Any, hints: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return _convert(value, hint, where)
        except ConfigError:
            continue
    raise ConfigError(f"'{where}' cannot be {value!r}.")
