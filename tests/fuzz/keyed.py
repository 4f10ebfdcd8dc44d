"""Keyed steps of the fuzzed flows, each with its oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

import aflow as af
from aflow.api.windowed import WindowResults
from tests.fuzz import functions, oracles
from tests.fuzz.oracles import Elements, Output, Rec, Row

Records: TypeAlias = af.Stream[Rec]
Rows: TypeAlias = af.Stream[Row]


def by_key(stream: Records) -> af.KeyedStream[int, Rec]:
    return stream.key_by(lambda value: value.key)


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@dataclass(frozen=True)
class Streams:
    """The outputs of a step of the engine."""

    rows: Rows
    late: af.Stream[Rec] | None = None


class KeyedStep(ABC):
    """A step on a keyed stream. ``expected`` is its oracle."""

    @property
    def needs_order(self) -> bool:
        """True if the results depend on the order of the records of a key."""
        return False

    @property
    def keeps_order(self) -> bool:
        """True if the results of a key are in the order of its records; windows fire in no order among themselves."""
        return self.needs_order

    @property
    def needs_punctuality(self) -> bool:
        """True if the guides do not say exactly what happens to late records."""
        return False

    @property
    def needs_source_order(self) -> bool:
        """True if results depend on the order of records of different keys, through the watermarks between them."""
        return False

    @property
    def needs_subtasks(self) -> bool:
        """True if results may depend on the records in flight when a job continues with another parallelism."""
        return False

    @abstractmethod
    def on(self, stream: Records, name: str) -> Streams: ...

    @abstractmethod
    def expected(self, elements: Elements) -> Output: ...


# ------------------------------------------------------------------------------------------------------------- windows


class Function(Enum):
    """The function of windows. Each has another implementation."""

    FOLD = "fold"
    MERGED_FOLD = "fold with merge"
    REDUCE = "reduce"
    AGGREGATE = "aggregate"
    AGGREGATES = "several aggregates"
    APPLY = "apply"
    PROCESS = "then"

    def on(self, windows: af.WindowedStream[int, Rec], name: str) -> Streams:
        match self:
            case Function.FOLD:
                return _sums(windows.fold(int, functions.plus, name=name))
            case Function.MERGED_FOLD:
                merge = functions.sum_of_two
                return _sums(windows.fold(int, functions.plus, name=name, merge=merge))
            case Function.AGGREGATE:
                total = af.aggregates.sum(functions.number_of)
                return _sums(windows.aggregate(total, name=name))
            case Function.AGGREGATES:
                several = windows.aggregate(functions.FIGURES, name=name)
                return Streams(several.map(functions.row_of_figures), several.late)
            case Function.REDUCE:
                reduced = windows.reduce(lambda a, b: Rec(a.n + b.n, a.key), name=name, of=Rec)
                rows = reduced.map(functions.row_of_reduced)
                return Streams(rows, reduced.late)
            case Function.APPLY:
                applied = windows.apply(functions.sorted_numbers, name=name, of=Rec)
                return Streams(applied.map(functions.row_of_window), applied.late)
            case Function.PROCESS:
                explained = windows.fold(
                    int,
                    functions.plus,
                    name=name,
                    merge=functions.sum_of_two,
                    then=functions.Explained(),
                )
                return Streams(explained, explained.late)

    @property
    def oracle(self) -> oracles.Value:
        match self:
            case Function.APPLY:
                return oracles.numbers
            case Function.AGGREGATES:
                return oracles.figures
            case _:
                return oracles.total


def _sums(windows: WindowResults[Rec, af.Windowed[int, int]]) -> Streams:
    return Streams(windows.map(functions.row_of_window), windows.late)


@dataclass(frozen=True)
class FixedWindows(KeyedStep):
    """Tumbling windows if ``slide`` is ``size``, and sliding ones otherwise."""

    size: int
    slide: int
    offset: int
    lateness: int
    function: Function
    early: int | None

    @property
    def needs_order(self) -> bool:
        return self.early is not None

    @property
    def keeps_order(self) -> bool:
        return False

    def on(self, stream: Records, name: str) -> Streams:
        kind: af.Tumbling | af.Sliding
        if self.size == self.slide:
            kind = af.Tumbling(millis(self.size), offset=millis(self.offset))
        else:
            kind = af.Sliding(millis(self.size), millis(self.slide), offset=millis(self.offset))
        trigger: af.triggers.EventTime[Rec] | None = None
        if self.early is not None:
            trigger = af.triggers.EventTime(early=af.triggers.Count(self.early))
        windows = by_key(stream).window(kind, lateness=millis(self.lateness), trigger=trigger)
        return self.function.on(windows, name)

    def expected(self, elements: Elements) -> Output:
        return oracles.windows(
            elements,
            size=self.size,
            slide=self.slide,
            offset=self.offset,
            lateness=self.lateness,
            value=self.function.oracle,
            early=self.early,
        )


@dataclass(frozen=True)
class Sessions(KeyedStep):
    """Sessions; those with ``spread`` have a gap that depends on the record."""

    gap: int
    spread: int
    lateness: int
    function: Function

    def on(self, stream: Records, name: str) -> Streams:
        kind: af.Session | af.windows.DynamicSession[Rec] = af.Session(millis(self.gap))
        if self.spread:
            kind = af.windows.DynamicSession(lambda value: millis(self._gap(value)))
        return self.function.on(by_key(stream).window(kind, lateness=millis(self.lateness)), name)

    def expected(self, elements: Elements) -> Output:
        return oracles.sessions(
            elements, gap=self._gap, lateness=self.lateness, value=self.function.oracle
        )

    def _gap(self, value: Rec) -> int:
        return self.gap + (value.n % self.spread if self.spread else 0)


@dataclass(frozen=True)
class EveryNth(KeyedStep):
    """A window without end that fires by number: ``Global`` with a trigger, or ``Count``."""

    count: int
    purging: bool
    evict: int | None
    by_assigner: bool

    @property
    def needs_order(self) -> bool:
        return True

    def on(self, stream: Records, name: str) -> Streams:
        if self.by_assigner:
            windows = by_key(stream).window(af.Count(self.count))
        else:
            trigger: af.triggers.Trigger[Rec] = af.triggers.Count(self.count)
            if self.purging:
                trigger = af.triggers.Purging(trigger)
            evictor = None if self.evict is None else af.evictors.Count(self.evict)
            windows = by_key(stream).window(af.Global(), trigger=trigger, evictor=evictor)
        applied = windows.apply(functions.arrived_numbers, name=name, of=Rec)
        return Streams(applied.map(functions.row_of_endless))

    def expected(self, elements: Elements) -> Output:
        return oracles.every_nth(
            elements,
            count=self.count,
            purging=self.purging or self.by_assigner,
            evict=None if self.by_assigner else self.evict,
            value=oracles.in_order,
        )


# --------------------------------------------------------------------------------------------------- state and timers


@dataclass(frozen=True)
class Folded(KeyedStep):
    """A running fold; numbers that ``bad`` divides cannot be folded and are dropped."""

    bad: int | None

    @property
    def needs_order(self) -> bool:
        return True

    def on(self, stream: Records, name: str) -> Streams:
        on_error = None if self.bad is None else af.calls.Drop()
        folded = by_key(stream).fold(lambda: (0, 0), self._step, name=name, on_error=on_error)
        return Streams(folded.map(lambda state: state))

    def expected(self, elements: Elements) -> Output:
        return oracles.folded(elements, functions.mixed, bad=self.bad)

    def _step(self, state: tuple[int, int], value: Rec) -> tuple[int, int]:
        if self.bad is not None and value.n % self.bad == 0:
            raise functions.Unlucky(value.n)
        return value.key, functions.mixed(state[1], value.n)


@dataclass(frozen=True)
class Deduplicated(KeyedStep):
    modulus: int
    within: int | None

    @property
    def needs_order(self) -> bool:
        return True

    @property
    def needs_punctuality(self) -> bool:
        return self.within is not None

    def on(self, stream: Records, name: str) -> Streams:
        within = None if self.within is None else millis(self.within)
        keyed = stream.key_by(self._key)
        unique = keyed.deduplicate(name=name, within=within)
        return Streams(unique.map(lambda value: (self._key(value), value.n)))

    def expected(self, elements: Elements) -> Output:
        return oracles.first_of_each(elements, key=self._key, within=self.within)

    def _key(self, value: Rec) -> tuple[int, int]:
        return value.key, value.n % self.modulus


@dataclass(frozen=True)
class Best(KeyedStep):
    count: int

    @property
    def needs_order(self) -> bool:
        return True

    def on(self, stream: Records, name: str) -> Streams:
        best = by_key(stream).top(self.count, by=lambda value: value.n, name=name, of=Rec)
        return Streams(best.map(lambda some: (some[0].key, tuple(value.n for value in some))))

    def expected(self, elements: Elements) -> Output:
        return oracles.best(elements, count=self.count)


@dataclass(frozen=True)
class Reminded(KeyedStep):
    """A process function with event timers, with async handlers if it ``waits``."""

    after: int
    again: int
    waits: bool = False

    @property
    def needs_order(self) -> bool:
        return True

    @property
    def needs_source_order(self) -> bool:
        return True

    @property
    def needs_subtasks(self) -> bool:
        return self.waits

    def on(self, stream: Records, name: str) -> Streams:
        keyed = by_key(stream)
        if self.waits:
            slow = functions.SlowReminders(self.after, self.again)
            return Streams(keyed.process_async(slow, name=name, capacity=3))
        return Streams(keyed.process(functions.Reminders(self.after, self.again), name=name))

    def expected(self, elements: Elements) -> Output:
        return oracles.reminders(elements, after=self.after, again=self.again)


@dataclass(frozen=True)
class Twice(KeyedStep):
    """Windows over the results of windows, by another key."""

    first: KeyedStep
    second: KeyedStep

    def on(self, stream: Records, name: str) -> Streams:
        first = self.first.on(stream, f"{name} first")
        second = self.second.on(first.rows.map(functions.record_of), f"{name} second")
        return Streams(second.rows, first.late)

    def expected(self, elements: Elements) -> Output:
        first = self.first.expected(elements)
        again: list[oracles.Timed | oracles.Mark] = [
            one
            if isinstance(one, oracles.Mark)
            else oracles.Timed(functions.record_of(oracles.row(one)), one.at)
            for one in first.elements
        ]
        return Output(self.second.expected(again).elements, first.late)
