"""The contract of evictors, which drop records of a window when it fires.

Theory. When the window fires, an evictor gets all records of one key and window, in the order of arrival: ``before``
the window's function, ``after`` it, or both. Records that it does not return are dropped for later firings too. A
window with an evictor therefore keeps every record, whatever its function is.
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
    """Key and time of the firing."""

    @property
    def key(self) -> Hashable:
        """Return the key whose window fires."""
        ...

    @property
    def watermark(self) -> Timestamp:
        """Return the current watermark of the step (epoch ms)."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """Return the current time of the clock (epoch ms)."""
        ...


class Evictor(ABC, Generic[T]):
    """Selects the records of a window to keep. Override ``before``, ``after`` or both, and return the records in order.

    One object serves all keys and windows, so its result may only depend on its arguments.
    """

    def before(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        """Return the records that the window's function gets."""
        return elements

    def after(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        """Return the records to keep in the window after its function got ``elements``."""
        return elements
