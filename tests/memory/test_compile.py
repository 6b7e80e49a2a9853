"""Kernels compile where nothing can be written, and are renewed when any file they come from changes."""

from __future__ import annotations

from typing import Any

import pytest

from emu.memory import _compile, _grid


def test_a_read_only_installation_compiles_without_keeping_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = _compile.njit

    def nowhere_to_write(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(_compile, "njit", nowhere_to_write)
    assert _compile.entry_point(lambda x: x + 1)(2) == 3


def test_kept_code_is_stamped_with_every_file_of_the_folder() -> None:
    stamp = _compile._stamp()
    assert {"_tree.py", "_grid.py", "_rules.py"} <= {name for name, _, _ in stamp}
    assert _grid.query_batch._cache._cache_file._source_stamp == stamp  # type: ignore[attr-defined]
