"""One caller at a time: a call that comes while another is under way is refused instead of corrupting the arrays."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from emu.errors import EmuError

Method = TypeVar("Method", bound=Callable[..., Any])


class OneCaller:
    """Base of classes whose `exclusive` methods must not overlap."""

    def __init__(self) -> None:
        self._under_way = threading.Lock()


def exclusive(method: Method) -> Method:
    """Refuse a call to a `OneCaller` while another of its exclusive methods runs: kernels work without any lock."""

    @functools.wraps(method)
    def guarded(self: OneCaller, *arguments: Any, **keywords: Any) -> Any:
        if not self._under_way.acquire(blocking=False):
            raise EmuError(
                f"{type(self).__name__}.{method.__name__} was called while another call was under way. It takes one "
                "caller at a time: put a lock around the calls of several threads."
            )
        try:
            return method(self, *arguments, **keywords)
        finally:
            self._under_way.release()

    return guarded  # type: ignore[return-value]
