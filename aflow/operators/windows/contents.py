"""What a key has in a window, and how records become part of it.

``Contents`` is the choice that a window step makes once: to fold records as they come, to keep them in a list, or to
keep them with their timestamps for an evictor. What it keeps is opaque to everybody else, and ``EMPTY`` if there is
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias, cast

from aflow.machines.windows.evictor import Element, Evictor, EvictorContext
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


#: In place of contents: there was no record, or they were purged. None would not do, which a fold may come to.
EMPTY: Final = Empty.EMPTY


class KeyWindow:
    """What is remembered of one key in one window."""

    __slots__ = ("cleanup", "firing", "held", "key", "memory", "timers", "window")

    def __init__(self, key: Hashable, window: TimeWindow, cleanup: Timestamp | None) -> None:
        self.key = key
        self.window = window
        #: When the window goes; None for never.
        self.cleanup = cleanup
        #: Its contents, in the form that `Contents` has chosen.
        self.held: Any = EMPTY
        #: How many results there were.
        self.firing = 0
        #: What the trigger remembers; never an empty dict.
        self.memory: dict[str, object] | None = None
        #: How many timers the trigger has set for this key and window, in both domains; the clean-up timer is not one.
        self.timers = 0

    @property
    def entries(self) -> int:
        """How many things are remembered: the contents, and each name of the trigger's memory."""
        return (self.held is not EMPTY) + len(self.memory or ())


See: TypeAlias = Callable[[Any], None]
"""Takes what the window's function is to see."""


class Contents(Protocol):
    """How the records of a key and window are kept."""

    #: What is kept: encoded contents of another kind cannot be read.
    kind: ClassVar[str]

    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        """The contents with one more record; ``held`` may be ``EMPTY`` and may be changed and returned."""
        ...

    def merge(self, held: Any, other: Any) -> Any:
        """The contents of two windows, neither of them ``EMPTY``; ``held`` may be changed and returned."""
        ...

    def fire(
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        """Show ``see`` what the contents amount to, unless that is nothing, and return those that stay.

        What is shown may be changed and given away. ``last`` if nothing stays, so that nothing need be copied.
        """
        ...

    def encode(self, held: Any) -> bytes:
        """Raises ``CodecError``."""
        ...

    def decode(self, data: bytes) -> Any:
        """Raises ``CodecError``."""
        ...


def contents_for(logic: WindowLogic) -> Contents:
    """The one that does the least: only evictors need timestamps, and only they undo a fold."""
    layout = layout_of_records(logic.apply, logic.of)
    if logic.evictor is not None:
        merging = logic.assigner.merging
        return Evicted(logic.evictor, logic.accumulation, layout, numbered=merging)
    if logic.accumulation is not None:
        return Folded(logic.accumulation, logic.of)
    return Arrived(layout) if logic.assigner.merging else Listed(layout)


class Folded:
    """One accumulator."""

    kind: ClassVar[str] = "an accumulator"

    def __init__(self, accumulation: Accumulation, of: type[Any] | None) -> None:
        self._accumulation = accumulation
        self._merge = accumulation.merge
        self._result = accumulation.result
        self._fresh = accumulation.fresh
        self._codec = accumulation.codec_for(of)

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            return self._accumulation.first(value)
        return self._accumulation.add(held, value)

    def merge(self, held: Any, other: Any) -> Any:
        assert self._merge is not None  # check_logic asks for it where windows merge
        return self._merge(held, other)

    def fire(
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        shown = held
        if not last and self._fresh is not None and self._merge is not None:
            shown = self._merge(self._fresh(), held)
        see(shown if self._result is None else self._result(shown))
        return held

    def encode(self, held: Any) -> bytes:
        return self._codec.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)


class Listed:
    """A list of the records in the order of their arrival, of windows that do not merge."""

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
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        see(held if last else held.copy())
        return held

    def encode(self, held: Any) -> bytes:
        return self._layout.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._layout.decode(data)


class Arrived:
    """The records in the order of their arrival, of windows that merge."""

    kind: ClassVar[str] = "records"

    def __init__(self, layout: Many[Any]) -> None:
        self._order = ArrivalOrder()
        self._codec = ArrivalsCodec(self._order, layout)

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        return self._order.first(value) if held is EMPTY else self._order.add(held, value)

    def merge(self, held: Any, other: Any) -> Any:
        return self._order.merge(held, other)

    def fire(
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        see(held.records if last else held.records.copy())
        return held

    def encode(self, held: Any) -> bytes:
        return self._codec.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)


class NumberedElement(Element[Any]):
    """An element for an evictor, with the number by which windows that merge keep the order of arrival."""

    # No slots: a named tuple has none to add to.

    number: int

    @staticmethod
    def of(value: Any, timestamp: Timestamp, number: int) -> NumberedElement:
        """Return a new element."""
        element = NumberedElement(value, timestamp)
        element.number = number
        return element


def in_order(elements: list[Any]) -> list[Any]:
    """Return elements in the order of arrival; one that an evictor has made comes before all others."""
    return sorted(elements, key=number_of_element)


def number_of_element(element: Any) -> int:
    """Return the number of an element; -1 for one that an evictor has made."""
    return getattr(element, "number", -1)


def _that_stay(elements: Iterable[Element[Any]] | None, method: str) -> list[Element[Any]]:
    """Return what an evictor's ``method`` gave as a list. Raises ``TypeError`` if it is None."""
    if elements is None:
        raise TypeError(
            f"{method}() of the evictor returned None: it must return the elements that stay"
        )
    return list(elements)


class Evicted:
    """A list of the records with their timestamps, of which an evictor drops some at each firing."""

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
        #: True if windows merge, so that the order of arrival must be known.
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
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        elements = _that_stay(self._evictor.before(held, window, ctx), "before")
        if not elements:
            return EMPTY
        see(self._folded([element.value for element in elements]))
        return _that_stay(self._evictor.after(elements, window, ctx), "after") or EMPTY

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
        # Without numbers in an older snapshot: in the order in which they were stored.
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
