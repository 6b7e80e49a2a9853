"""Arrays as text inside a page: little-endian bytes in base64, decoded by template/data.js."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

TEXT_PER_BYTE = 4 / 3
STEPS = 65_535  # of a quantised number between its lowest and its highest

_NAMES = {"<f4": "f4", "|u1": "u1", "<u2": "u2", "<u4": "u4"}


def packed(array: np.ndarray) -> dict[str, Any]:
    """An array as it is; its type must be one of float32, uint8, uint16, uint32."""
    array = np.ascontiguousarray(array)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"type": _NAMES[little.dtype.str], "data": base64.b64encode(little.tobytes()).decode()}


def quantised(array: np.ndarray) -> dict[str, Any]:
    """Finite numbers in two bytes each: exact at both ends, off by at most 1/131070 of the range between."""
    values = np.asarray(array, np.float64)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    scale = STEPS / (high - low) if high > low else 0.0
    steps = ((values - low) * scale).round().astype(np.uint16)
    return {**packed(steps), "type": "q2", "low": low, "high": high}


def unpacked(record: dict[str, Any]) -> np.ndarray:
    """What the page will read; for tests."""
    data = base64.b64decode(record["data"])
    if record["type"] != "q2":
        return np.frombuffer(data, f"<{record['type']}")
    return record["low"] + np.frombuffer(data, "<u2") * ((record["high"] - record["low"]) / STEPS)
