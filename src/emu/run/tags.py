"""Where a tracker shows a value: metrics in groups, settings as one flat table.

test_win_rate -> eval/win_rate      train_return, td_loss -> train/return, train/td_loss
memory_size, embedder_loss -> memory/size, memory/embedder_loss      seconds by activity -> time/rollout
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emu.config import Config, to_dict

PREFIXES = {"test_": "eval/", "train_": "train/", "memory_": "memory/"}


def tag(name: str) -> str:
    """The name of a metric in a tracker."""
    for prefix, group in PREFIXES.items():
        if name.startswith(prefix):
            return group + name.removeprefix(prefix)
    return f"memory/{name}" if name.startswith("embedder_") else f"train/{name}"


def tagged(values: Mapping[str, float]) -> dict[str, float]:
    return {tag(name): value for name, value in values.items()}


def tagged_timing(values: Mapping[str, float]) -> dict[str, float]:
    """Seconds by activity; the time of day is every tracker's own."""
    return {f"time/{name}": value for name, value in values.items() if name != "wall"}


def flat_settings(config: Config) -> dict[str, Any]:
    """All settings by their dotted names; what is not a number, a truth value or a word is written as one."""

    def leaves(node: Any, path: str) -> dict[str, Any]:
        if isinstance(node, dict) and node:
            return {key: value for name in node for key, value in leaves(node[name], f"{path}.{name}").items()}
        return {path.removeprefix("."): node if isinstance(node, bool | int | float | str) else str(node)}

    return leaves(to_dict(config), "")
