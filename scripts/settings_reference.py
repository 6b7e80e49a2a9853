"""The settings of a run as Markdown tables, read from the dataclasses of `emu.config` and the comments beside them."""

from __future__ import annotations

import dataclasses
import inspect
import io
import tokenize
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from emu.config import Config


def reference(kind: type = Config, group: str = "") -> str:
    """A heading and a table for every group of settings, in the order in which they are declared."""
    return "\n\n".join(section(kind, group) for kind, group in groups(kind, group))


def groups(kind: type, group: str = "") -> Iterator[tuple[type, str]]:
    """The dataclass itself, then those that are its fields, each with the prefix of its settings."""
    yield kind, group
    for name, hint in hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield from groups(typing.cast(type, hint), f"{group}{name}.")


def section(kind: type, group: str) -> str:
    notes, own = comments(kind), hints(kind)
    rows = []
    for field in dataclasses.fields(kind):
        hint, meaning = own[field.name], cell(notes.get(field.name, ""))
        if not dataclasses.is_dataclass(hint):
            rows.append(f"| `{group}{field.name}` | {shown_type(hint)} | {shown_default(field)} | {meaning} |")
    title = f"`{group.rstrip('.')}`" if group else "The run"
    lead = [f"## {title}", "", inspect.getdoc(kind) or "", ""]
    return "\n".join([*lead, "| setting | type | default | meaning |", "|---|---|---|---|", *rows])


def hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields, bounds included."""
    found = typing.get_type_hints(kind, include_extras=True)
    return {field.name: found[field.name] for field in dataclasses.fields(kind)}


def comments(kind: type) -> dict[str, str]:
    """What stands behind each field, on its line; inherited fields keep their comments."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(parent):
            continue
        line: list[tokenize.TokenInfo] = []
        for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(parent)).readline):
            if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                line = []
            elif token.type == tokenize.COMMENT:
                if len(line) > 1 and line[1].string == ":":
                    found[line[0].string] = token.string.lstrip("# ")
            elif token.type != tokenize.NL:
                line.append(token)
    return found


def shown_type(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        bounds = [shown_bound(bound) for bound in arguments[1:]]
        return ", ".join([shown_type(arguments[0]), *(bound for bound in bounds if bound)])
    if origin is Literal:
        return " ".join(f"`{choice}`" for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(shown_type(argument) for argument in arguments)
    if hint is type(None):
        return "none"
    return {"dict": "JSON"}.get(name := getattr(hint, "__name__", str(hint)), name)


def shown_bound(bound: Any) -> str:
    """`at least 1`, `in [0, 1]`: the bound's own words, as an error would say them, without the verb."""
    words = str(bound) if type(bound).__str__ is not object.__str__ and type(bound).__module__.startswith("emu") else ""
    return cell(words.removeprefix("be ").removeprefix("lie "))


def shown_default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory()}`"
    if field.default is dataclasses.MISSING:
        return "–"
    if isinstance(field.default, int) and not isinstance(field.default, bool):
        return f"{field.default:,}"
    return "none" if field.default is None else f"`{field.default}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(reference())
