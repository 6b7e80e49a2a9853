"""For the generated reference: the comment behind a field, `obs: Array  # (B, T+1, N, O)`, is its description."""

from __future__ import annotations

import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.docstring or not attr.parent or not attr.parent.is_class or not isinstance(attr.filepath, Path):
            return
        comment = comments(attr.filepath).get(attr.endlineno or 0)
        if comment:
            attr.docstring = griffe.Docstring(comment, lineno=attr.lineno, parent=attr)


@cache
def comments(path: Path) -> dict[int, str]:
    """Comments that stand behind code, by line."""
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    behind = [token for token in tokens if token.line[: token.start[1]].strip()]
    return {token.start[0]: token.string.lstrip("# ") for token in behind}
