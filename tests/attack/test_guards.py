"""The table of guards fits the code: what it takes out is there once, what it puts in compiles, its tests exist."""

import ast
import functools
from pathlib import Path

import pytest

from attack.guards import GUARDS, LOW

ROOT = Path(__file__).parents[2]
NAMES = [f"{guard.item} {guard.what}" for guard in GUARDS]


@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_a_guard_is_in_the_code_once_and_can_be_taken_out(guard):
    path = ROOT / "src" / "emu" / guard.file
    content = path.read_text("utf-8")
    assert content.count(guard.text) == 1, f"{guard.file} holds it {content.count(guard.text)} times"
    assert guard.without != guard.text
    mutated = content.replace(guard.text, guard.without)
    compile(mutated, str(path), "exec")
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(content)), "only its looks would change"


@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_the_tests_of_a_guard_exist(guard):
    assert guard.tests
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in functions_of(ROOT / file), test


@functools.cache
def functions_of(path):
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_guards_and_no_guard_comes_twice():
    assert {guard.item for guard in GUARDS} == {LOW, *range(1, 14)}
    assert len(set(NAMES)) == len({(guard.file, guard.text, guard.without) for guard in GUARDS}) == len(GUARDS)
