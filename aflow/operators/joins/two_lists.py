"""What a window of two inputs holds for a key: the records of each, as two lists.

Records are not marked with the input that they come from: assigners, triggers and evictors see them as they are, and
side outputs get them so. Instead the step says, before a batch, whose it is. Only where an evictor sees the records of
both inputs together, in the order of their arrival, must each know its own.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, cast

from aflow.machines.windows.evictor import Evictor, EvictorContext
from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.windows.arrivals import ArrivalOrder, Arrivals, ArrivalsCodec
from aflow.operators.windows.contents import EMPTY, Contents, NumberedElement, See, in_order
from aflow.state.layouts import Many


class Input(Enum):
    """Of which input a record is; the value is its place among the two lists."""

    LEFT = 0
    RIGHT = 1


class TwoListContents(Contents):
    """What both kinds have in common. ``see`` gets a pair: left records and right ones, as lists of its own."""

    #: Whose records are added.
    adding = Input.LEFT


class TwoLists(TwoListContents):
    """The records of each input in the order of arrival."""

    kind: ClassVar[str] = "records of two inputs"

    def __init__(self, left: Codec[Any], right: Codec[Any]) -> None:
        self._order = ArrivalOrder()
        self._codecs = tuple(ArrivalsCodec(self._order, Many(codec)) for codec in (left, right))

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            held = (Arrivals(), Arrivals())
        self._order.add(held[self.adding.value], value)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        for mine, others in zip(held, other, strict=True):
            self._order.merge(mine, others)
        return held

    def fire(
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        lefts, rights = held
        see((lefts.records.copy(), rights.records.copy()))
        return held

    def encode(self, held: Any) -> bytes:
        parts = zip(self._codecs, held, strict=True)
        return PLAIN.encode([codec.encode(some) for codec, some in parts])

    def decode(self, data: bytes) -> Any:
        parts = zip(self._codecs, _parts(data, 2), strict=True)
        return tuple(codec.decode(part) for codec, part in parts)


class SidedElement(NumberedElement):
    """A record of a window for an evictor, which knows its input."""

    # No slots: a named tuple has none to add to. One is made for each record, where there is an evictor.

    input: Input

    @staticmethod
    def of_input(value: Any, timestamp: Timestamp, number: int, which: Input) -> SidedElement:
        """Return a new element."""
        element = SidedElement(value, timestamp)
        element.number = number
        element.input = which
        return element


class EvictedLists(TwoListContents):
    """The elements of both inputs in the order of arrival, of which an evictor drops some at each firing."""

    kind: ClassVar[str] = "records of two inputs with timestamps"

    def __init__(self, evictor: Evictor[Any], left: Codec[Any], right: Codec[Any]) -> None:
        self._evictor = evictor
        self._codecs: tuple[Codec[Any], Codec[Any]] = left, right
        self._order = ArrivalOrder()

    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        element = SidedElement.of_input(value, timestamp, self._order.number(), self.adding)
        if held is EMPTY:
            return [element]
        held.append(element)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        return in_order(held + other)

    def fire(
        self, held: Any, window: TimeWindow, see: See, ctx: EvictorContext, *, last: bool
    ) -> Any:
        elements = self._known(self._evictor.before(held, window, ctx))
        if not elements:
            return EMPTY
        lists: tuple[list[Any], list[Any]] = ([], [])
        for element in elements:
            lists[element.input.value].append(element.value)
        see(lists)
        return self._known(self._evictor.after(elements, window, ctx)) or EMPTY

    def encode(self, held: Any) -> bytes:
        elements: list[SidedElement] = held
        inputs = [element.input.value for element in elements]
        values = [self._codecs[element.input.value].encode(element.value) for element in elements]
        timestamps = [element.timestamp for element in elements]
        numbers = [element.number for element in elements]
        return PLAIN.encode([inputs, values, timestamps, numbers])

    def decode(self, data: bytes) -> Any:
        inputs, values, timestamps, *more = _parts(data, 3, 4)
        # Without numbers in an older snapshot: in the order in which they were stored.
        numbers = map(self._order.restored, more[0] if more else range(len(values)))
        return [
            SidedElement.of_input(self._codecs[which.value].decode(value), at, number, which)
            for which, value, at, number in zip(
                map(Input, inputs), values, timestamps, numbers, strict=True
            )
        ]

    def _known(self, elements: Any) -> list[SidedElement]:
        """What an evictor gave back. Raises ``TypeError`` for elements of its own making: of which input are they?"""
        for element in elements:
            if not isinstance(element, SidedElement):
                raise TypeError(
                    f"{type(self._evictor).__name__} returned an element that it was not given; return those that stay"
                )
        return list(elements)


def _parts(data: bytes, *counts: int) -> Any:
    parts: object = PLAIN.decode(data)
    if not isinstance(parts, list):
        raise CodecError(f"{len(data)} stored bytes are not the records of two inputs")
    found = cast("list[list[Any]]", parts)
    if len(found) not in counts:
        raise CodecError(f"{len(found)} stored lists are not the records of two inputs")
    return found
