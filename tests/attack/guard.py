"""One guard: something in the code without which a fault would come back, and the tests that then fail."""

from __future__ import annotations

import dataclasses

LOW = 0  # the item of bad inputs, which have no number of their own


@dataclasses.dataclass(frozen=True)
class Guard:
    """Taken out by `scripts/take_guards_out.py`; kept in step with the code by `test_guards`."""

    item: int  # which of the faults it keeps away, 1 to 13; LOW: a bad input
    what: str
    file: str  # within src/emu
    text: str  # occurs there once
    without: str  # what stands there when the guard is gone
    tests: tuple[str, ...]  # as pytest names them; each must fail without the guard
