"""Which records of a window are dropped when it fires.

Theory. An evictor looks at all records of one key and window, in the order of their arrival, when the window fires:
``before`` the window's function sees them, ``after`` it has, or both. What it does not return is gone for good, also
from later firings. A window with an evictor therefore keeps every record, whatever its function is.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow

T = TypeVar("T")


class Element(NamedTuple, Generic[T]):
    """A record in a window. ``timestamp`` in epoch ms: of the record, or of the clock in windows of processing time."""

    value: T
    timestamp: Timestamp


class EvictorContext(Protocol):
    """The firing that an evictor is asked about, besides its records and its window."""

    @property
    def key(self) -> Hashable:
        """The key whose window fires."""
        ...

    @property
    def watermark(self) -> Timestamp:
        """The current event time of the step (epoch ms)."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """The current time of the clock (epoch ms)."""
        ...


class Evictor(ABC, Generic[T]):
    """Decides which records of a window stay. Override ``before``, ``after`` or both, and return the records in order.

    One object serves all keys and windows, so what it returns may only depend on its arguments.
    """

    def before(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        """Return the records that the window's function gets."""
        return elements

    def after(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        """Return the records that stay in the window after its function got ``elements``."""
        return elements
