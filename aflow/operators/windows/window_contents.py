"""Contents of a key in a window, and how records become part of them.

A window step uses one kind of ``WindowContents``: it folds records when they arrive, keeps them in a list, or keeps
them with their timestamps for an evictor. Other parts do not interpret the contents; without records they are
``EMPTY``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias, cast

from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation, layout_of_records
from aflow.operators.windows.arrival_order import ArrivalOrder, ArrivalsCodec
from aflow.operators.windows.logic import WindowLogic
from aflow.state.layouts import Many


class Empty(Enum):
    """The type of ``EMPTY``."""

    EMPTY = "no contents"


#: Marks absent contents: no record arrived, or they were purged. ``None`` cannot mark absence: it is a valid
#: accumulator.
EMPTY: Final = Empty.EMPTY


class KeyWindow:
    """Contents, timers and trigger memory of one key in one window."""

    __slots__ = ("cleanup", "firing", "held", "key", "memory", "timers", "window")

    def __init__(self, key: Hashable, window: TimeWindow, cleanup: Timestamp | None) -> None:
        self.key = key
        self.window = window
        #: The time of its clean-up; None for never.
        self.cleanup = cleanup
        #: The contents, as the step's `WindowContents` represents them.
        self.held: Any = EMPTY
        #: The number of firings.
        self.firing = 0
        #: The trigger's memory; never an empty dict.
        self.memory: dict[str, object] | None = None
        #: The number of timers of the trigger in both time domains, without the clean-up timer.
        self.timers = 0

    @property
    def entries(self) -> int:
        """Count the contents, and each name in the trigger's memory."""
        return (self.held is not EMPTY) + len(self.memory or ())


OnContents: TypeAlias = Callable[[Any], None]
"""Callback with the value for the window's function."""


class WindowContents(Protocol):
    """Representation of the records of a key in a window."""

    #: Name of the representation: contents of another kind cannot be decoded.
    kind: ClassVar[str]

    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        """Return the contents with one more record; ``held`` may be ``EMPTY`` and may be changed and returned."""
        ...

    def merge(self, held: Any, other: Any) -> Any:
        """Return the contents of two windows, neither ``EMPTY``; ``held`` may be changed and returned."""
        ...

    def fire(
        self,
        held: Any,
        window: TimeWindow,
        on_contents: OnContents,
        ctx: EvictorContext,
        *,
        last: bool,
    ) -> Any:
        """Call ``on_contents`` with the value of the contents, unless they are empty, and return the remaining
        contents.

        The callback may change and keep the value. ``last`` is True if the contents are dropped next, so that no copy
        is needed.
        """
        ...

    def encode(self, held: Any) -> bytes:
        """Return the contents as bytes. Raises ``CodecError``."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the contents that ``encode`` stored. Raises ``CodecError``."""
        ...


def contents_for(logic: WindowLogic) -> WindowContents:
    """Return the cheapest representation. Only an evictor needs timestamps, and only an evictor prevents folding."""
    layout = layout_of_records(logic.apply, logic.of)
    if logic.evictor is not None:
        merging = logic.assigner.merging
        return EvictedContents(logic.evictor, logic.accumulation, layout, numbered=merging)
    if logic.accumulation is not None:
        return AccumulatorContents(logic.accumulation, logic.of)
    return ArrivalContents(layout) if logic.assigner.merging else ListContents(layout)


class AccumulatorContents:
    """One accumulator."""

    kind: ClassVar[str] = "an accumulator"

    def __init__(self, accumulation: Accumulation, of: type[Any] | None) -> None:
        self._accumulation = accumulation
        self._result = accumulation.result
        self._codec = accumulation.codec_for(of)

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            return self._accumulation.first(value)
        return self._accumulation.add(held, value)

    def merge(self, held: Any, other: Any) -> Any:
        return self._accumulation.merged(held, other)

    def fire(
        self,
        held: Any,
        window: TimeWindow,
        on_contents: OnContents,
        ctx: EvictorContext,
        *,
        last: bool,
    ) -> Any:
        shown = held if last else self._accumulation.copy(held)
        on_contents(shown if self._result is None else self._result(shown))
        return held

    def encode(self, held: Any) -> bytes:
        return self._codec.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)


class ListContents:
    """A list of the records in the order of arrival, for windows that do not merge."""

    kind: ClassVar[str] = "records"

    def __init__(self, layout: Many[Any]) -> None:
        self._layout = layout

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            return [value]
        held.append(value)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        held.extend(other)
        return held

    def fire(
        self,
        held: Any,
        window: TimeWindow,
        on_contents: OnContents,
        ctx: EvictorContext,
        *,
        last: bool,
    ) -> Any:
        on_contents(held if last else held.copy())
        return held

    def encode(self, held: Any) -> bytes:
        return self._layout.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._layout.decode(data)


class ArrivalContents:
    """The records in the order of arrival, for windows that merge."""

    kind: ClassVar[str] = "records"

    def __init__(self, layout: Many[Any]) -> None:
        self._order = ArrivalOrder()
        self._codec = ArrivalsCodec(self._order, layout)

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        return self._order.first(value) if held is EMPTY else self._order.add(held, value)

    def merge(self, held: Any, other: Any) -> Any:
        return self._order.merge(held, other)

    def fire(
        self,
        held: Any,
        window: TimeWindow,
        on_contents: OnContents,
        ctx: EvictorContext,
        *,
        last: bool,
    ) -> Any:
        on_contents(held.records if last else held.records.copy())
        return held

    def encode(self, held: Any) -> bytes:
        return self._codec.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)


class NumberedElement(Element[Any]):
    """An element for an evictor, with the number by which merging windows keep the order of arrival."""

    # No slots: a subclass of tuple cannot have any.

    number: int

    @staticmethod
    def of(value: Any, timestamp: Timestamp, number: int) -> NumberedElement:
        """Return a new element."""
        element = NumberedElement(value, timestamp)
        element.number = number
        return element


def in_order(elements: list[Any]) -> list[Any]:
    """Return elements in the order of arrival; an element made by an evictor precedes all others."""
    return sorted(elements, key=number_of_element)


def number_of_element(element: Any) -> int:
    """Return the number of an element; -1 for one made by an evictor."""
    return getattr(element, "number", -1)


def _kept_elements(elements: Iterable[Element[Any]] | None, method: str) -> list[Element[Any]]:
    """Return the elements that an evictor's ``method`` returned. Raises ``TypeError`` for None."""
    if elements is None:
        raise TypeError(
            f"{method}() of the evictor returned None: it must return the elements to keep"
        )
    return list(elements)


class EvictedContents:
    """A list of the records with their timestamps, from which an evictor drops some at each firing."""

    kind: ClassVar[str] = "records with timestamps"

    def __init__(
        self,
        evictor: Evictor[Any],
        accumulation: Accumulation | None,
        layout: Many[Any],
        *,
        numbered: bool = False,
    ) -> None:
        self._evictor = evictor
        self._accumulation = accumulation
        self._layout = layout
        self._order = ArrivalOrder()
        #: True if windows merge: then elements are numbered.
        self._numbered = numbered

    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        element: Element[Any] = (
            NumberedElement.of(value, timestamp, self._order.number())
            if self._numbered
            else Element(value, timestamp)
        )
        if held is EMPTY:
            return [element]
        held.append(element)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        return in_order(held + other)

    def fire(
        self,
        held: Any,
        window: TimeWindow,
        on_contents: OnContents,
        ctx: EvictorContext,
        *,
        last: bool,
    ) -> Any:
        elements = _kept_elements(self._evictor.before(held, window, ctx), "before")
        if not elements:
            return EMPTY
        on_contents(self._folded([element.value for element in elements]))
        return _kept_elements(self._evictor.after(elements, window, ctx), "after") or EMPTY

    def encode(self, held: Any) -> bytes:
        values = self._layout.encode([element.value for element in held])
        stored = [values, [element.timestamp for element in held]]
        if self._numbered:
            stored.append([number_of_element(element) for element in held])
        return PLAIN.encode(stored)

    def decode(self, data: bytes) -> Any:
        stored, timestamps, *more = cast("tuple[bytes, list[int], list[int]]", PLAIN.decode(data))
        values = self._layout.decode(stored)
        if not self._numbered:
            return list(map(Element, values, timestamps))
        # An older snapshot has no numbers: keep the stored order.
        numbers = map(self._order.restored, more[0] if more else range(len(values)))
        return list(map(NumberedElement.of, values, timestamps, numbers))

    def _folded(self, values: list[Any]) -> Any:
        if self._accumulation is None:
            return values
        first, *rest = values
        held = self._accumulation.first(first)
        for value in rest:
            held = self._accumulation.add(held, value)
        return held if self._accumulation.result is None else self._accumulation.result(held)
