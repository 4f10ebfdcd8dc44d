"""Contents of a key in a window, and how records become part of them.

A window step uses one kind of ``WindowContents``: it folds records when they arrive (into a list, if it keeps them), or
keeps them with their timestamps for an evictor. Other parts do not interpret the contents; without records they are
``EMPTY``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation, layout_of_records, listing
from aflow.operators.base import RAISED
from aflow.operators.windows.arrival_order import ArrivalOrder, arrivals
from aflow.operators.windows.logic import WindowLogic
from aflow.state.defensive_copies import defensive_copy
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


class WindowContents(ABC):
    """Representation of the records of a key in a window."""

    #: Name of the representation: contents of another kind cannot be decoded.
    kind: str
    #: The input of the records that are added, for a step with two inputs.
    side = 0

    @abstractmethod
    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        """Return the contents with one more record; ``held`` may be ``EMPTY`` and may be changed and returned."""

    @abstractmethod
    def merge(self, held: Any, other: Any) -> Any:
        """Return the contents of two windows, neither ``EMPTY``; ``held`` may be changed and returned."""

    @abstractmethod
    def fire(
        self, one: KeyWindow, on_contents: OnContents, ctx: EvictorContext, *, last: bool
    ) -> None:
        """Call ``on_contents`` with the value of the contents of ``one``, unless an evictor dropped all.

        The callback may change and keep the value. ``last`` is True if the contents are dropped next, so that no copy
        is needed.
        """

    @abstractmethod
    def seen(self, held: Any) -> Any:
        """Return what a reader of the state gets for contents. It shares nothing mutable with ``held``."""

    @abstractmethod
    def encode(self, held: Any) -> bytes:
        """Return the contents as bytes. Raises ``CodecError``."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return the contents that ``encode`` stored. Raises ``CodecError``."""


def contents_for(logic: WindowLogic) -> WindowContents:
    """Return the cheapest representation. Only an evictor needs timestamps, and only an evictor prevents folding."""
    if logic.evictor is not None:
        layout = layout_of_records(logic.apply, logic.of)
        return EvictedContents(
            logic.evictor, [layout], _folding(logic.accumulation), "records with timestamps"
        )
    if logic.accumulation is not None:
        return AccumulatorContents(logic.accumulation, logic.of, "an accumulator")
    return AccumulatorContents(keeping(logic), None, "records")


def keeping(logic: WindowLogic) -> Accumulation:
    """Return the accumulation that keeps the records of a window in a list."""
    layout = layout_of_records(logic.apply, logic.of)
    return arrivals(layout) if logic.assigner.merging else listing(layout)


def _folding(accumulation: Accumulation | None) -> Callable[[list[WindowElement]], Any]:
    """Return the function from the elements of a window to the value for its function."""

    def fold(elements: list[WindowElement]) -> Any:
        values = [element.value for element in elements]
        if accumulation is None:
            return values
        held = accumulation.first(values[0])
        for value in values[1:]:
            held = accumulation.add(held, value)
        return held if accumulation.result is None else accumulation.result(held)

    return fold


class FailedResult(Exception):
    """The function from an accumulator to its result raised ``cause`` for ``contents``."""

    def __init__(self, cause: BaseException, contents: object) -> None:
        super().__init__()
        self.cause = cause
        self.contents = contents


class AccumulatorContents(WindowContents):
    """One accumulator, which may be a list of the records."""

    def __init__(self, accumulation: Accumulation, of: type[Any] | None, kind: str) -> None:
        self.kind = kind
        self._accumulation = accumulation
        self._codec = accumulation.codec_for(of)

    def add(self, held: Any, value: Any, _timestamp: Timestamp, /) -> Any:
        if held is EMPTY:
            return self._accumulation.first(value)
        return self._accumulation.add(held, value)

    def merge(self, held: Any, other: Any) -> Any:
        return self._accumulation.merged(held, other)

    def fire(
        self, one: KeyWindow, on_contents: OnContents, ctx: EvictorContext, *, last: bool
    ) -> None:
        shown = one.held if last else self._accumulation.copy(one.held)
        result = self._accumulation.result
        if result is None:
            on_contents(shown)
            return
        try:
            value = result(shown)
        except RAISED as exc:
            raise FailedResult(exc, self._accumulation.shown(shown)) from exc
        on_contents(value)

    def seen(self, held: Any) -> Any:
        return self._accumulation.seen(held)

    def encode(self, held: Any) -> bytes:
        return self._codec.encode(held)

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)


class WindowElement(Element[Any]):
    """An element for an evictor, with its input, and the number by which merging windows keep the order of arrival."""

    # No slots: a subclass of tuple cannot have any.

    number: int
    side: int

    @staticmethod
    def of(value: Any, timestamp: Timestamp, number: int, side: int) -> WindowElement:
        """Return a new element."""
        element = WindowElement(value, timestamp)
        element.number = number
        element.side = side
        return element


class EvictedContents(WindowContents):
    """The elements of one or two inputs in the order of arrival, from which an evictor drops some at each firing.

    ``layouts`` has the codec of the records of each input.
    """

    def __init__(
        self,
        evictor: Evictor[Any],
        layouts: Sequence[Many[Any]],
        fold: Callable[[list[WindowElement]], Any],
        kind: str,
    ) -> None:
        self.kind = kind
        self._evictor = evictor
        self._layouts = layouts
        self._fold = fold
        self._order = ArrivalOrder()

    def add(self, held: Any, value: Any, timestamp: Timestamp, /) -> Any:
        element = WindowElement.of(value, timestamp, self._order.number(), self.side)
        if held is EMPTY:
            return [element]
        held.append(element)
        return held

    def merge(self, held: Any, other: Any) -> Any:
        return sorted(held + other, key=lambda element: element.number)

    def fire(
        self, one: KeyWindow, on_contents: OnContents, ctx: EvictorContext, *, last: bool
    ) -> None:
        elements = self._kept(self._evictor.before(one.held, one.window, ctx), "before")
        if elements:
            try:
                value = self._fold(elements)
            except RAISED as exc:
                raise FailedResult(exc, [element.value for element in elements]) from exc
            on_contents(value)
            elements = self._kept(self._evictor.after(elements, one.window, ctx), "after")
        one.held = elements or EMPTY

    def seen(self, held: Any) -> Any:
        """Return the records since the last eviction: a list, or one for each of several inputs."""
        sides = [
            [defensive_copy(element.value) for element in held if element.side == side]
            for side in range(len(self._layouts))
        ]
        return sides[0] if len(sides) == 1 else tuple(sides)

    def encode(self, held: Any) -> bytes:
        records = [
            layout.encode([element.value for element in held if element.side == side])
            for side, layout in enumerate(self._layouts)
        ]
        return PLAIN.encode([records, [[each.timestamp, each.number, each.side] for each in held]])

    def decode(self, data: bytes) -> Any:
        stored: object = PLAIN.decode(data)
        lists = cast("list[object]", stored) if isinstance(stored, list) else []
        if [type(each) for each in lists] != [list, list]:
            raise CodecError(f"{len(data)} stored bytes are not {self.kind}")
        records, elements = cast("tuple[list[bytes], list[tuple[int, int, int]]]", lists)
        parts = zip(self._layouts, records, strict=True)
        values = [iter(layout.decode(part)) for layout, part in parts]
        return [
            WindowElement.of(next(values[side]), at, self._order.restored(number), side)
            for at, number, side in elements
        ]

    def _kept(self, elements: Iterable[Element[Any]] | None, method: str) -> list[WindowElement]:
        """Return the elements that ``method`` of the evictor returned.

        An element that the evictor made precedes all others. Raises ``TypeError`` for None, and for a new element if
        there are two inputs: its own is unknown.
        """
        if elements is None:
            raise TypeError(
                f"{method}() of the evictor returned None: it must return the elements to keep"
            )
        kept: list[WindowElement] = []
        for element in elements:
            if isinstance(element, WindowElement):
                kept.append(element)
            elif len(self._layouts) == 1:
                kept.append(WindowElement.of(element.value, element.timestamp, -1, 0))
            else:
                raise TypeError(
                    f"{type(self._evictor).__name__} returned an element that it did not get; return those to keep"
                )
        return kept


class NotAdded(Exception):
    """The function of the accumulation raised ``cause`` for a record; no error of an assigner or a trigger."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause


def distinguished(add: Callable[[Any, Any, Timestamp], Any]) -> Callable[..., Any]:
    """Return ``add`` such that its errors differ from those of assigners and triggers."""

    def added(held: Any, value: Any, timestamp: Timestamp) -> Any:
        try:
            return add(held, value, timestamp)
        except RAISED as exc:
            raise NotAdded(exc) from exc

    return added
