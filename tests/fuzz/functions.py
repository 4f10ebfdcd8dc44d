"""Classes and functions of the fuzzed flows that aflow calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, cast

import aflow as af
from tests.fuzz.oracles import Rec, Row

V = TypeVar("V")

#: Records that a step could not process: their numbers.
FAILED: af.Tag[af.calls.FailedRecord[Rec]] = af.Tag("failed")


class Unlucky(Exception):
    """Raised for records on purpose."""


class Stamped(af.ProcessFunction[Row, tuple[Row, int | None]]):
    """Adds the timestamp to each result."""

    def process(self, value: Row, ctx: af.ProcessContext) -> Iterable[tuple[Row, int | None]]:
        return [(value, ctx.timestamp)]


@dataclass(frozen=True)
class Reminders(af.KeyedProcess[int, Rec, Row]):
    """Emits the sum of a key at each record and at each timer.

    A timer is registered ``after`` ms after each record, and by the timers after the last record ``again`` times. A
    number that 5 divides deletes the timer of a millisecond less.
    """

    after: int
    again: int

    total = af.ValueState("total", of=int)
    left = af.ValueState("left", of=int)

    def process(self, value: Rec, ctx: af.Context[int]) -> Iterable[Row]:
        assert ctx.timestamp is not None
        total = ctx.state(self.total)
        total.set(total.get(0) + value.n)
        due = ctx.timestamp + self.after
        if value.n % 5 == 0:
            ctx.delete_event_timer(due - 1)
        ctx.set_event_timer(due)
        ctx.state(self.left).set(self.again)
        return [(ctx.key, "record", total.get(0))]

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[Row]:
        left = ctx.state(self.left)
        remaining = left.get(0)
        if remaining:
            left.set(remaining - 1)
            ctx.set_event_timer(at + self.after)
        return [(ctx.key, "timer", at, ctx.state(self.total).get(0))]


@dataclass(frozen=True)
class SlowReminders(af.AsyncKeyedProcess[int, Rec, Row]):
    """Does what ``Reminders`` does, and waits before and between its accesses to state."""

    after: int
    again: int

    total = af.ValueState("total", of=int)
    left = af.ValueState("left", of=int)

    async def process(self, value: Rec, ctx: af.AsyncContext[int]) -> Iterable[Row]:
        await asyncio.sleep(value.n % 3 * 0.002)
        assert ctx.timestamp is not None
        total = ctx.state(self.total)
        total.set(total.get(0) + value.n)
        await asyncio.sleep(value.n % 2 * 0.001)
        due = ctx.timestamp + self.after
        if value.n % 5 == 0:
            ctx.delete_event_timer(due - 1)
        ctx.set_event_timer(due)
        ctx.state(self.left).set(self.again)
        return [(ctx.key, "record", total.get(0))]

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> Iterable[Row]:
        await asyncio.sleep(at % 3 * 0.001)
        left = ctx.state(self.left)
        remaining = left.get(0)
        if remaining:
            left.set(remaining - 1)
            ctx.set_event_timer(at + self.after)
        return [(ctx.key, "timer", at, ctx.state(self.total).get(0))]


def row_of_window(result: af.Windowed[int, V]) -> Row:
    return result.key, result.window.start, result.window.end, result.firing, result.value


def row_of_reduced(result: af.Windowed[int, Rec]) -> Row:
    return result.key, result.window.start, result.window.end, result.firing, result.value.n


class Explained(af.WindowFunction[int, int, Row]):
    """Emits the same row as ``row_of_window``."""

    def process(self, value: int, ctx: af.WindowContext[int]) -> Iterable[Row]:
        return [(ctx.key, ctx.window.start, ctx.window.end, ctx.firing, value)]


def record_of(row: Row) -> Rec:
    """Return a record of the result of a window, with another key."""
    key, value = row[0], row[-1]
    assert isinstance(key, int)
    some = cast("Row", value) if isinstance(value, tuple) else (value,)
    return Rec(sum(n for n in some if isinstance(n, int)), key % 2)


def row_of_endless(result: af.Windowed[int, V]) -> Row:
    return result.key, result.firing, result.value


def sorted_numbers(records: list[Rec]) -> tuple[int, ...]:
    return tuple(sorted(record.n for record in records))


def arrived_numbers(records: list[Rec]) -> tuple[int, ...]:
    return tuple(record.n for record in records)


def plus(total: int, record: Rec) -> int:
    return total + record.n


def mixed(state: int, n: int) -> int:
    """Return a number that depends on the order of all numbers so far."""
    return (state * 31 + n + 1) % 9973


def sum_of_two(one: int, other: int) -> int:
    return one + other


def number_of(record: Rec) -> int:
    return record.n


class Figures(NamedTuple):
    """The figures of a window, in the order of ``oracles.figures``."""

    number: int
    least: int
    most: int
    mean: float
    distinct: int
    best: list[int]


FIGURES: Final = af.aggregates.fields(
    Figures,
    number=af.aggregates.count(),
    least=af.aggregates.min(number_of),
    most=af.aggregates.max(number_of),
    mean=af.aggregates.mean(number_of),
    distinct=af.aggregates.distinct(number_of),
    best=af.aggregates.top_k(2, of=number_of),
)


def row_of_figures(result: af.Windowed[int, Figures]) -> Row:
    return (*row_of_window(result)[:-1], (*result.value[:-1], tuple(result.value.best)))
