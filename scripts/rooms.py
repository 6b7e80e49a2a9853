"""The rooms of the package and who imports whom, read from the code: counts, and a graph in Mermaid's language.

docs/architecture.md shows the graph; a test compares the two. `python scripts/rooms.py --write` renews the page.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "emu"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
LONG = 40  # lines of a function


def room_of(module: str) -> str:
    """`emu.study.plan.sweep` lies in `study`; a file beside the rooms is its own."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "emu"


def imports(tree: ast.AST) -> set[str]:
    """Modules of this package that a file imports, wherever in it; imports for types alone do not count."""
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "emu":
            found |= {f"emu.{name.name}" for name in node.names} if node.module == "emu" else {node.module}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.startswith("emu.")}
    return found


def graph() -> dict[str, set[str]]:
    """For every room, the rooms that it imports."""
    edges: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        here = room_of(".".join(("emu", *path.relative_to(SOURCE).with_suffix("").parts)))
        there = {room_of(module) for module in imports(ast.parse(path.read_text()))}
        edges[here] |= {room for room in there if (SOURCE / room).exists() or (SOURCE / f"{room}.py").exists()} - {here}
    return dict(edges)


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same graph without the edges that others imply, so that a reader sees the order."""

    def reachable(start: str) -> set[str]:
        found: set[str] = set()
        for room in edges.get(start, ()):
            found |= {room} | reachable(room)
        return found

    return {
        room: {to for to in targets if not any(to in reachable(other) for other in targets - {to})}
        for room, targets in edges.items()
    }


def mermaid(edges: dict[str, set[str]]) -> str:
    lines = [f"  {room} --> {to}" for room, targets in sorted(edges.items()) for to in sorted(targets)]
    return "\n".join(["graph TD", *lines])


def counts() -> str:
    """Files per room, the largest file, and functions that do not fit on a screen."""
    files, lengths, long = Counter[str](), {}, []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        files[name.parts[0] if len(name.parts) > 1 else "(top)"] += 1
        text = path.read_text()
        lengths[str(name)] = len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LONG:
                long.append(f"{name}:{node.name}")
    largest = max(lengths, key=lambda name: lengths[name])
    rooms = ", ".join(f"{room} {count}" for room, count in sorted(files.items()))
    return (
        f"files: {rooms}\nlargest: {largest} ({lengths[largest]} lines)\nfunctions over {LONG} lines: {long or 'none'}"
    )


def write(drawn: str) -> None:
    """Put the graph where the page has a place for it."""
    begin, end = "<!-- rooms:begin -->\n", "<!-- rooms:end -->"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(f"{before}{begin}```mermaid\n{drawn}\n```\n{end}{rest.split(end)[1]}")


def main() -> int:
    drawn = mermaid(reduced({room: to for room, to in graph().items() if room != "__main__"}))
    print(counts(), drawn, sep="\n\n")
    if "--write" in sys.argv:
        write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
