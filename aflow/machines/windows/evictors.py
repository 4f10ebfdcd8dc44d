"""Evictors, which drop records of a window when it fires.

Theory. When the window fires, an evictor gets all records of one key and window, in the order of arrival: ``before``
the window's function, ``after`` it, or both. Records that it does not return are dropped for later firings too. A
window with an evictor therefore keeps every record, whatever its function is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp, positive_millis
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


@dataclass(frozen=True)
class _OnceEvictor(Evictor[T]):
    """Base of evictors that drop records before the window's function, or with ``after_function`` after it."""

    after_function: bool = field(default=False, kw_only=True)

    @abstractmethod
    def _kept(self, elements: Sequence[Element[T]]) -> Sequence[Element[T]]:
        """Return the elements to keep; there is at least one."""

    def before(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        return elements if self.after_function or not elements else self._kept(elements)

    def after(
        self, elements: Sequence[Element[T]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[T]]:
        return self._kept(elements) if self.after_function and elements else elements


@dataclass(frozen=True)
class Count(_OnceEvictor[Any]):
    """Keep the last ``size`` records, in order of arrival. Raises ``FlowDefinitionError`` unless size ≥ 1."""

    size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise FlowDefinitionError(
                f"evictors.Count keeps a number of records from 1 on, not {shown(self.size)}"
            )

    def _kept(self, elements: Sequence[Element[Any]]) -> Sequence[Element[Any]]:
        return elements[-self.size :]


@dataclass(frozen=True)
class Time(_OnceEvictor[Any]):
    """Keep the records that are less than ``size`` older than the newest one, in any order of arrival.

    Raises ``FlowDefinitionError`` unless size > 0.
    """

    size: timedelta
    _millis: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_millis", positive_millis(self.size, what="evictors.Time size"))

    def _kept(self, elements: Sequence[Element[Any]]) -> Sequence[Element[Any]]:
        cutoff = max(element.timestamp for element in elements) - self._millis
        return [element for element in elements if element.timestamp > cutoff]


@dataclass(frozen=True)
class Delta(_OnceEvictor[T], Generic[T]):
    """Keep the records for which ``delta(value, newest)`` is below ``threshold``; ``newest`` is the last to arrive."""

    threshold: float
    delta: Callable[[T, T], float]

    def __post_init__(self) -> None:
        check_delta(self.threshold, self.delta, "evictors.Delta")

    def _kept(self, elements: Sequence[Element[T]]) -> Sequence[Element[T]]:
        newest = elements[-1].value
        delta, threshold = self.delta, self.threshold
        return [element for element in elements if delta(element.value, newest) < threshold]


def check_delta(threshold: object, delta: object, what: str) -> None:
    """Raise ``FlowDefinitionError`` unless ``threshold`` is a number and ``delta`` a function."""
    # NaN is the only number unequal to itself; no number would be above or below it.
    if (
        not isinstance(threshold, int | float)
        or isinstance(threshold, bool)
        or threshold != threshold
    ):
        raise FlowDefinitionError(f"threshold of {what} is a number, not {shown(threshold)}")
    if not callable(delta):
        raise FlowDefinitionError(
            f"delta of {what} is a function of two values, not {shown(delta)}"
        )
