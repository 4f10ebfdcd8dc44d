"""Which records of a window are dropped when it fires.

Theory. An evictor looks at all records of one key and window, in the order of their arrival, when the window fires:
``before`` the window's function sees them, ``after`` it has, or both. What it does not return is gone for good, also
from later firings. A window with an evictor therefore keeps every record, whatever its function is.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow

T = TypeVar("T")


class Element(NamedTuple, Generic[T]):
    """A record in a window. ``timestamp`` in epoch ms: of the record, or of the clock in windows of processing time."""

    value: T
    timestamp: Timestamp


class Evictor(ABC, Generic[T]):
    """Decides which records of a window stay; return them in order, from ``before``, ``after`` or both."""

    def before(self, elements: Sequence[Element[T]], window: TimeWindow) -> Sequence[Element[T]]:
        """The records that the window's function shall see."""
        return elements

    def after(self, elements: Sequence[Element[T]], window: TimeWindow) -> Sequence[Element[T]]:
        """The records that stay in the window after its function has seen ``elements``."""
        return elements
