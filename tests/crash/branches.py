"""Branches of random pipelines: steps of every kind with results that depend on the records only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aflow as af
from tests.crash.async_branches import (
    RETRY,
    answer,
    answers,
    copies,
    served,
    sums,
    thrice,
    worth,
)

Row = tuple[object, ...]

SPLITS = 3
EVENTS = 240
MARKS = 120
#: Milliseconds; a lag of one split against another never makes records late.
DELAY = timedelta(milliseconds=300)
#: Both ends of the range of timestamps.
SMALLEST = -(2**63)
LARGEST = 2**63 - 1

#: Longer than the whole input.
NEVER_LATE = timedelta(milliseconds=5000)


@dataclass(frozen=True, slots=True)
class Event:
    """Number ``n`` is at ``n`` * 10 ms, in split ``n % SPLITS``."""

    n: int

    @property
    def key(self) -> int:
        """All events of a key are in one split, and so in one order."""
        return self.n % 9


@dataclass(frozen=True)
class Mark:
    """Number ``n`` is at ``n`` * 20 ms, in split ``n % 2``."""

    n: int

    @property
    def key(self) -> int:
        return self.n % 9


Events = af.Stream[Event]
Marks = af.Stream[Mark]
Branch = Callable[[Events, Marks], af.Stream[Row]]


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def numbers(events: Iterable[Event | Mark]) -> list[int]:
    return sorted(one.n for one in events)


def keyed(events: Events) -> af.KeyedStream[int, Event]:
    return events.key_by(lambda one: one.key)


def marked(marks: Marks) -> af.KeyedStream[int, Mark]:
    return marks.key_by(lambda one: one.key)


def windowed(name: str, result: af.Windowed[Any, Any]) -> Row:
    return name, result.key, result.window.start, result.window.end, result.firing, result.value


def tumbling(events: Events, marks: Marks) -> af.Stream[Row]:
    windows = keyed(events.rebalance()).window(af.Tumbling(millis(250)))
    return windows.fold(int, lambda so_far, one: so_far + one.n, name="tumbling").map(
        lambda one: windowed("tumbling", one)
    )


#: Ms.
_STAGGERED = 250


def staggered(events: Events, marks: Marks) -> af.Stream[Row]:
    """Each event, and whether its window has the shift that the windows of its key had before."""
    windows = keyed(events).window(
        af.Tumbling(millis(_STAGGERED), stagger=af.windows.WindowStagger.RANDOM)
    )
    found = windows.apply(numbers, name="staggered", of=Event).key_by(lambda one: one.key)
    shifts = found.fold(lambda: (-1, True, list[int]()), _with_shift, name="shifts")
    return shifts.flat_map(lambda of: [("staggered", n, of[1]) for n in of[2]])


def _with_shift(
    so_far: tuple[int, bool, list[int]], result: af.Windowed[int, list[int]]
) -> tuple[int, bool, list[int]]:
    shift = result.window.start % _STAGGERED
    known = shift if so_far[0] < 0 else so_far[0]
    return known, shift == known, result.value


def sliding(events: Events, marks: Marks) -> af.Stream[Row]:
    windows = keyed(events).window(af.Sliding(millis(300), millis(100)))
    applied = windows.apply(numbers, name="sliding", of=Event)
    return applied.map(lambda one: windowed("sliding", one))


def panes(events: Events, marks: Marks) -> af.Stream[Row]:
    """Sliding windows that share panes, of which the slide does not divide the size."""
    windows = keyed(events.rebalance()).window(af.Sliding(millis(250), millis(40)))
    sums = windows.fold(int, _plus, merge=lambda one, other: one + other, name="panes")
    return sums.map(lambda one: windowed("panes", one))


def continuous(events: Events, marks: Marks) -> af.Stream[Row]:
    """Each record once for its window; which firing has it depends on when it was processed."""
    trigger = af.triggers.Purging(af.triggers.ContinuousEventTime(millis(30)))
    parts = keyed(events.rebalance()).window(af.Sliding(millis(200), millis(100)), trigger=trigger)
    return parts.apply(numbers, name="continuous", of=Event).flat_map(
        lambda one: [("continuous", one.key, one.window.start, n) for n in one.value]
    )


def continuous_by_the_clock(events: Events, marks: Marks) -> af.Stream[Row]:
    """The same, where the clock fires windows of event time before they end."""
    early = af.triggers.Purging(af.triggers.ContinuousProcessingTime(millis(7)))
    trigger = af.triggers.Purging(af.triggers.EventTime(early=early))
    parts = keyed(events).window(af.Session(millis(100)), trigger=trigger)
    return parts.apply(numbers, name="by the clock", of=Event).flat_map(
        lambda one: [("by the clock", one.key, n) for n in one.value]
    )


def _at_the_end(one: Event) -> int:
    """The last records are at the largest timestamp."""
    return LARGEST - (EVENTS - 1 - one.n) * 10


def _at_the_beginning(one: Event) -> int:
    return SMALLEST + one.n * 10


def _session_row(one: af.Windowed[int, list[Event]]) -> Row:
    return "last", one.key, one.window.start, *numbers(one.value)


def at_the_ends_of_time(events: Events, marks: Marks) -> af.Stream[Row]:
    """Windows that begin before the smallest timestamp, or end beyond the largest one."""
    last = events.event_time(_at_the_end, max_delay=NEVER_LATE, name="last times")
    first = events.event_time(_at_the_beginning, max_delay=NEVER_LATE, name="first times")
    sums = keyed(last).window(af.Tumbling(millis(330))).fold(int, _plus, name="last sums")
    slid = (
        keyed(first.rebalance())
        .window(af.Sliding(millis(250), millis(100)))
        .fold(int, _plus, merge=lambda one, other: one + other, name="first sums")
    )
    found = keyed(last).sessions(millis(100), name="last sessions", of=Event)
    return found.map(_session_row).union(
        sums.map(lambda one: windowed("last", one)), slid.map(lambda one: windowed("first", one))
    )


def windows_of_counts(events: Events, marks: Marks) -> af.Stream[Row]:
    """Results of count windows have the largest timestamp, and so wait for the end of the input."""
    counts = keyed(events).window(af.Count(5)).fold(int, _plus, name="fives")
    windows = counts.key_by(lambda one: one.key % 2).window(af.Tumbling(millis(500)))
    return windows.fold(int, lambda so_far, one: so_far + one.value, name="sums of fives").map(
        lambda one: windowed("fives", one)
    )


def sessions(events: Events, marks: Marks) -> af.Stream[Row]:
    some = events.filter(lambda one: one.n % 7 not in (2, 3)).rebalance()
    found = keyed(some).sessions(millis(100), name="sessions", of=Event)
    return found.map(lambda one: windowed("sessions", one)[:-1] + tuple(numbers(one.value)))


def counted(events: Events, marks: Marks) -> af.Stream[Row]:
    windows = keyed(events).window(af.Count(5, 2))
    return windows.apply(_in_order, name="counted", of=Event).map(
        lambda one: ("counted", one.key, one.firing, *one.value)
    )


def _in_order(events: Iterable[Event]) -> list[int]:
    return [one.n for one in events]


def windows_of_windows(events: Events, marks: Marks) -> af.Stream[Row]:
    small = keyed(events).window(af.Tumbling(millis(100))).fold(int, _plus, name="small")
    large = small.rebalance().key_by(lambda one: one.key % 2).window(af.Tumbling(millis(500)))
    return large.fold(int, lambda so_far, one: so_far + one.value, name="large").map(
        lambda one: windowed("large", one)
    )


def _plus(so_far: int, event: Event) -> int:
    return so_far + event.n


def everything(events: Events, marks: Marks) -> af.Stream[Row]:
    windows = events.window_all(af.Tumbling(millis(400)))
    return windows.fold(int, _plus, name="everything").map(lambda one: windowed("all", one))


def folded(events: Events, marks: Marks) -> af.Stream[Row]:
    return keyed(events).fold(lambda: (0, 0), _chained, name="folded").map(lambda one: ("f", *one))


def _chained(so_far: tuple[int, int], event: Event) -> tuple[int, int]:
    return event.key, (so_far[1] * 31 + event.n) % 1_000_003


def best(events: Events, marks: Marks) -> af.Stream[Row]:
    top = keyed(events).top(3, by=lambda one: one.n * 7919 % 1009, name="top", of=Event)
    return top.rebalance().map(lambda some: ("top", *(one.n for one in some)))


def once(events: Events, marks: Marks) -> af.Stream[Row]:
    pairs = events.key_by(lambda one: (one.n % SPLITS, one.n // (2 * SPLITS)))
    return pairs.deduplicate(name="once").map(lambda one: ("once", one.n))


EVEN = af.Tag[Event]("even")


class Parted(af.ProcessFunction[Event, Event]):
    def process(self, value: Event, ctx: af.ProcessContext) -> list[Event] | None:
        if value.n % 2:
            return [value]
        ctx.side(EVEN, value)
        return None


def parted(events: Events, marks: Marks) -> af.Stream[Row]:
    odd = events.process(Parted(), name="parted")
    both = odd.map(lambda one: _row("odd", one)).union(
        odd.side(EVEN).map(lambda one: _row("even", one))
    )
    return both.rebalance().map(lambda row: ("parted", *row))


def _row(name: str, one: Event | Mark) -> Row:
    return name, one.n


class Later(af.KeyedProcess[int, Event, Row]):
    """Emits for each event, 70 ms later, a row with all earlier events of its key."""

    before = af.MapState("before", key=int, of=int)

    def process(self, value: Event, ctx: af.Context[int]) -> None:
        ctx.state(self.before).put(value.n, value.n * 10)
        ctx.set_event_timer(value.n * 10 + 70)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Row]:
        before = ctx.state(self.before)
        return [("later", at, *sorted(n for n, then in before.items() if at - 170 <= then < at))]


def later(events: Events, marks: Marks) -> af.Stream[Row]:
    return keyed(events.rebalance()).process(Later(), name="later")


FAILED = af.Tag[af.calls.FailedRecord[Event]]("failed")
LETTERS = af.calls.DeadLetter(FAILED)


class Unlucky(Exception):
    """The error of each seventh event."""


def lucky(event: Event) -> Event:
    if event.n % 7 == 3:
        raise Unlucky(f"no {event.n}")
    return event


def _of_letter(letter: af.calls.FailedRecord[Event]) -> Row:
    return "failed", letter.step, letter.value.n, letter.message


def mapped_or_failed(events: Events, marks: Marks) -> af.Stream[Row]:
    good = events.map(lucky, name="lucky", on_error=LETTERS)
    rows = good.map(lambda one: _row("lucky", one)).union(good.side(FAILED).map(_of_letter))
    return rows.rebalance().map(lambda row: ("mapped", *row))


class LuckySums(af.KeyedProcess[int, Event, Row]):
    """Emit the sum of the events of a key for each event, and once more 70 ms later; state changes before an error."""

    total = af.ValueState("total", of=int)
    seen = af.ListState("seen", of=int)

    def process(self, value: Event, ctx: af.Context[int]) -> list[Row]:
        total = (ctx.state(self.total).get() or 0) + value.n
        ctx.state(self.total).set(total)
        ctx.state(self.seen).add(value.n)
        ctx.set_event_timer(value.n * 10 + 70)
        return [("sum", lucky(value).n, total)]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Row]:
        return [("seen", at, sum(n for n in ctx.state(self.seen) if n * 10 < at))]


def processed_or_failed(events: Events, marks: Marks) -> af.Stream[Row]:
    good = keyed(events).process(LuckySums(), name="lucky sums", on_error=LETTERS)
    return good.union(good.side(FAILED).map(_of_letter))


class Both(af.CoProcess[int, Event, Mark, Row]):
    """Emits the records of both sides up to each half second."""

    lefts = af.ListState("lefts", of=int)
    rights = af.ListState("rights", of=int)

    def process_left(self, value: Event, ctx: af.Context[int]) -> None:
        ctx.state(self.lefts).add(value.n)
        ctx.set_event_timer((value.n * 10 // 500 + 1) * 500)

    def process_right(self, value: Mark, ctx: af.Context[int]) -> None:
        ctx.state(self.rights).add(value.n)
        ctx.set_event_timer((value.n * 20 // 500 + 1) * 500)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Row]:
        lefts = sum(n for n in ctx.state(self.lefts).get() if n * 10 < at)
        rights = sum(n for n in ctx.state(self.rights).get() if n * 20 < at)
        return [("both", ctx.key, at, lefts, rights)]


def both(events: Events, marks: Marks) -> af.Stream[Row]:
    return keyed(events).connect(marked(marks)).process(Both(), name="both")


class Controlled(af.BroadcastProcess[int, Event, Mark, Row]):
    """Emits for each event all earlier marks, once they must have arrived."""

    marks = af.BroadcastState("marks", key=int, of=int)

    def process(self, value: Event, ctx: af.BroadcastContext[int]) -> None:
        ctx.set_event_timer(value.n * 10)

    def process_broadcast(self, value: Mark, ctx: af.ControlContext) -> None:
        ctx.state(self.marks).put(value.n, value.n * 20)

    def on_timer(self, at: int, ctx: af.BroadcastContext[int]) -> list[Row]:
        marks = ctx.state(self.marks)
        return [("controlled", ctx.key, at, sum(n for n, then in marks.items() if then < at))]


def controlled(events: Events, marks: Marks) -> af.Stream[Row]:
    return keyed(events).connect_broadcast(marks).process(Controlled(), name="controlled")


def intervals(events: Events, marks: Marks) -> af.Stream[Row]:
    return (
        keyed(events)
        .interval_join(marked(marks), between=(millis(-60), millis(100)), of=Event, other_of=Mark)
        .full(lambda one, other: ("interval", one and one.n, other and other.n), name="interval")
    )


def as_of(events: Events, marks: Marks) -> af.Stream[Row]:
    return (
        keyed(events.rebalance())
        .as_of_join(marked(marks), of=Event, other_of=Mark)
        .left(lambda one, other: ("as of", one.n, other and other.n), name="as of")
    )


def groups(events: Events, marks: Marks) -> af.Stream[Row]:
    grouped = keyed(events).co_group(
        marked(marks),
        af.Sliding(millis(400), millis(200)),
        into=lambda some, others: (sum(numbers(some)), sum(numbers(others))),
        name="groups",
        of=Event,
        other_of=Mark,
    )
    return grouped.map(lambda one: windowed("groups", one))


def window_pairs(events: Events, marks: Marks) -> af.Stream[Row]:
    return (
        keyed(events)
        .window_join(marked(marks), af.Tumbling(millis(200)), of=Event, other_of=Mark)
        .full(lambda one, other: ("pair", one and one.n, other and other.n), name="pairs")
    )


def asked(events: Events, marks: Marks) -> af.Stream[Row]:
    return sums(events.map_async(answer, name="ask", capacity=3, retry=RETRY), "asked")


def asked_unordered(events: Events, marks: Marks) -> af.Stream[Row]:
    asked = events.rebalance().map_async(
        answer, name="ask unordered", capacity=5, ordered=False, retry=RETRY
    )
    return sums(asked, "asked unordered")


def asked_by_key(events: Events, marks: Marks) -> af.Stream[Row]:
    asked = keyed(events).map_async(answer, name="ask by key", capacity=4, retry=RETRY, of=Event)
    return sums(asked.rebalance(), "asked by key")


def asked_one_after_the_other(events: Events, marks: Marks) -> af.Stream[Row]:
    """Chains steps in one task: full ones block those upstream."""
    worthy = events.filter_async(worth, name="worth", capacity=2, retry=RETRY)
    copied = worthy.flat_map_async(copies, name="copies", capacity=2, ordered=False, retry=RETRY)
    rows = copied.map(lambda one: ("copy", one[1].n, one[0]))
    return rows.flat_map_async(thrice, name="thrice", capacity=1, retry=RETRY)


def asked_between_windows(events: Events, marks: Marks) -> af.Stream[Row]:
    small = keyed(events).window(af.Tumbling(millis(100))).fold(int, _plus, name="small asked")
    rows = small.map(lambda one: (one.key, one.value))
    asked = rows.map_async(_served_row, name="ask windows", capacity=4, ordered=False, retry=RETRY)
    large = asked.key_by(lambda one: one[0] % 2).window(af.Tumbling(millis(500)))
    return large.fold(int, lambda so_far, one: so_far + one[1], name="large asked").map(
        lambda one: windowed("large asked", one)
    )


async def _served_row(row: tuple[int, int]) -> tuple[int, int]:
    return row[0], await served(row[1])


def asked_in_groups(events: Events, marks: Marks) -> af.Stream[Row]:
    asked = keyed(events).map_batch_async(
        answers, name="groups asked", size=4, delay=millis(3), capacity=3, retry=RETRY
    )
    return asked.map(lambda row: ("group", *row))


def asked_of_marks(events: Events, marks: Marks) -> af.Stream[Row]:
    """Joins two sources of different speed downstream of their steps."""
    asked = marks.map_async(answer, name="ask marks", capacity=2, retry=RETRY)
    return (
        keyed(events)
        .as_of_join(marked(asked), of=Event, other_of=Mark)
        .left(lambda one, other: ("asked as of", one.n, other and other.n), name="asked as of")
    )


def kept(events: Events, marks: Marks) -> af.Stream[Row]:
    """Makes one call for equal records, or uses the cache."""
    few = events.map(lambda one: (one.key, one.n))
    asked = few.map_async(
        _of_key,
        name="kept",
        capacity=3,
        ordered=False,
        retry=RETRY,
        cache=af.calls.Cache(size=4, ttl=millis(50), key=lambda row: row[0]),
        into=_kept_row,
    )
    return asked.rebalance()


def _kept_row(row: tuple[int, int], answer: int) -> Row:
    return "kept", *row, answer


async def _of_key(row: tuple[int, int]) -> int:
    return await served(row[0])


def as_they_are(events: Events, marks: Marks) -> af.Stream[Row]:
    shown = marks.map(lambda one: _row("mark", one))
    return events.map(lambda one: _row("event", one)).union(shown).map(lambda row: row)


BRANCHES: Sequence[Branch] = [
    tumbling,
    staggered,
    sliding,
    panes,
    continuous,
    continuous_by_the_clock,
    at_the_ends_of_time,
    windows_of_counts,
    sessions,
    counted,
    windows_of_windows,
    everything,
    folded,
    best,
    once,
    parted,
    mapped_or_failed,
    processed_or_failed,
    later,
    both,
    controlled,
    intervals,
    as_of,
    groups,
    window_pairs,
    asked,
    asked_unordered,
    asked_by_key,
    asked_one_after_the_other,
    asked_between_windows,
    asked_in_groups,
    asked_of_marks,
    kept,
]


#: Steps with firings and late records that depend on their watermark.
BY_WATERMARK: Sequence[Branch] = [
    tumbling,
    sliding,
    panes,
    sessions,
    continuous,
    later,
    both,
    intervals,
    as_of,
    groups,
    window_pairs,
]
