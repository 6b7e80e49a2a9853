"""Reading what other people's environments answer: what does not fit is named by call and field."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.envs.faults import NUMBERS, shown
from emu.errors import EnvError, described


def numbers_of(value: Any, what: str) -> np.ndarray:
    """An array of numbers as float32; `what` says who gave it: "`get_obs()`"."""
    with np.errstate(over="ignore"):
        return _array_of(value, what).astype(np.float32, copy=False)  # too large a number is refused as infinite


def rows_of(value: Any, rows: int, what: str) -> np.ndarray:
    """Numbers in so many rows."""
    array = numbers_of(value, what)
    if not array.ndim or array.shape[0] != rows:
        raise EnvError(f"{what} gives an array of shape {array.shape}; a row for each of {rows} agents is needed.")
    return array.reshape(rows, -1)


def number_of(value: Any, what: str) -> float:
    """One number; an array's are added up."""
    return value if isinstance(value, float) else float(np.sum(_array_of(value, what)))


def _array_of(value: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise EnvError(f"{what} gives {shown(value)}, which is no array: {described(error)}") from error
    if array.dtype.kind not in NUMBERS:
        raise EnvError(f"{what} gives {shown(value)}; numbers are needed, not type {array.dtype}.")
    return array


def parts_of(answer: Any, what: str, *counts: int) -> Any:
    """An answer of so many parts."""
    if not isinstance(answer, tuple | list) or len(answer) not in counts:
        got = f"{len(answer)} values" if isinstance(answer, tuple | list) else shown(answer)
        raise EnvError(f"{what} returns {got}; {' or '.join(map(str, counts))} values are needed.")
    return answer


def names_of(value: Any, what: str) -> dict[Any, Any]:
    """A dictionary."""
    if not isinstance(value, dict):
        raise EnvError(f"{what} is {shown(value)}; a dictionary is needed.")
    return value
