"""Bounds that stand on the fields of an options dataclass, and the one checker that enforces them.

    class LearnerConfig(Options, group="learner"):
        gamma: Annotated[float, Within(0, 1)] = 0.99

An object with an impossible value is never made: the error names the option, its bounds and the value given.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from typing import Annotated, Any, ClassVar, Literal

from emu.errors import ConfigError, EmuError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Within:
    """low <= value <= high; an open end excludes the bound itself."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"be at most {_shown(self.high)}"
        if math.isinf(self.high):
            return f"be greater than {self.low:g}" if self.open_low else f"be at least {self.low:g}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"lie in {left}{_shown(self.low)}, {_shown(self.high)}{right}"


Positive = Annotated[float, Within(0, open_low=True)]
NotNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
_Countable = Within(high=2**31 - 1)  # what the compiled programs count with
Count = Annotated[int, Within(1), _Countable]  # of things that there must be
CountOrNone = Annotated[int, Within(0), _Countable]  # of things that there may be none of


MOST_EPISODES = 10_000_000  # that anybody may ask for at once: the values of each are kept until all are played


def require_playable(episodes: int, seed: int, dashes: str = "") -> None:
    """So many episodes with this seed can be played; `dashes` stand before the names of a command's options."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise EmuError(f"{dashes}episodes must lie between 1 and {MOST_EPISODES:,}, not {episodes}.")
    if not 0 <= seed < 2**32:
        raise EmuError(f"{dashes}seed must lie between 0 and {2**32 - 1}, not {seed}.")


class Options:
    """Base of the options dataclasses: checks the bounds on the fields, then the rules between fields."""

    group: ClassVar[str] = ""  # where the options stand in a configuration: names them in messages

    def __init_subclass__(cls, group: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.group = group

    def __post_init__(self) -> None:
        check_fields(self, f"{self.group}." if self.group else "")
        self.check_rules()

    def check_rules(self) -> None:
        """Rules that concern more than one field."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def check_fields(options: Any, where: str = "") -> None:
    """Refuse a number outside its bounds or not finite, and a word that is not among the choices."""
    for name, hint in hints_of(type(options)).items():
        _check_value(getattr(options, name), hint, f"{where}{name}")


@functools.cache  # slow, and a study makes hundreds of configurations
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields, bounds included."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _check_value(value: Any, hint: Any, path: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is not None:
            for option in arguments:
                if option is not type(None):
                    _check_value(value, option, path)
    elif origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{path} cannot be {value!r}. {did_you_mean(str(value), map(str, arguments))}")
    elif origin is Annotated:
        _check_value(value, arguments[0], path)
        for bound in arguments[1:]:
            if isinstance(bound, Within) and not bound.holds(value):
                raise ConfigError(f"{path} must {bound}, not {value}.")
    elif hint in (int, float):
        number = isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
        check(number, f"{path} must be of type {hint.__name__}, not {value!r}.")
        check(hint is int or math.isfinite(value), f"{path} must be a finite number, not {value}.")


def _shown(bound: float) -> str:
    return f"{int(bound)}" if float(bound).is_integer() else f"{bound:g}"
