"""A flow with a step of each kind that has state to read, and the values that a plain program computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import aflow as af
from aflow import CollectSink, Context, Flow, KeyedProcess, PushSource
from aflow.aggregates import count
from aflow.state.specs import ListState, MapState, ValueState


class Record(NamedTuple):
    key: str
    number: int
    at: int


Stored = tuple[str, int, int]

#: ms; records are out of order by at most this much.
DELAY: Final = 60_000
SIZE, SLIDE, GAP, WITHIN = 20_000, 10_000, 4_000, 15_000
LOWER, UPPER = -5_000, 3_000


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Remember(KeyedProcess[str, Record, int]):
    last = ValueState[int]("last", of=int)
    numbers = ListState[int]("numbers", of=int)
    times = MapState[int, int]("times", key=int, of=int)

    def process(self, value: Record, ctx: Context[str]) -> Iterator[int]:
        ctx.state(self.last).set(value.number)
        ctx.state(self.numbers).add(value.number)
        ctx.state(self.times).put(value.number, value.at)
        yield value.number


class RememberLater(af.AsyncKeyedProcess[str, Record, int]):
    total = ValueState[int]("total", of=int)

    async def process(self, value: Record, ctx: af.AsyncContext[str]) -> list[int]:
        total = ctx.state(self.total)
        total.set(total.get(0) + value.number)
        return [value.number]


def _added(numbers: list[int], record: Record) -> list[int]:
    return [*numbers, record.number]


def _pair(left: Record | None, right: Record | None) -> tuple[Any, Any]:
    return left, right


def all_steps(source: PushSource[Record]) -> Flow:
    """Return a flow with all of them."""
    flow = Flow("all")
    timed = flow.source(source, name="source").event_time(
        lambda record: record.at, max_delay=millis(DELAY), name="time"
    )
    keyed = timed.key_by(lambda record: record.key, name="key", of=str)
    tumbling = keyed.window(af.Tumbling(millis(SIZE)))
    sliding = af.Sliding(millis(SIZE), millis(SLIDE))
    streams: list[Any] = [
        keyed.fold(int, lambda total, record: total + record.number, name="fold"),
        keyed.reduce(lambda a, b: max(a, b, key=lambda record: record.number), name="reduce", of=Record),
        keyed.process(Remember(), name="process"),
        keyed.process_async(RememberLater(), name="async"),
        keyed.deduplicate(name="first ever"),
        keyed.deduplicate(within=millis(WITHIN), name="deduplicate"),
        keyed.top(2, by=lambda record: record.number, name="top", of=Record),
        tumbling.aggregate(count(), name="tumbling"),
        keyed.window(sliding).aggregate(count(), name="sliding"),
        keyed.window(sliding).fold(list[int], _added, name="unshared"),
        tumbling.apply(len, name="records", of=Record),
        keyed.window(af.Session(millis(GAP))).aggregate(count(), name="sessions"),
        keyed.sessions(millis(GAP), name="session records", of=Record),
        keyed.window(af.Tumbling(millis(SIZE)), evictor=af.evictors.Count(2)).apply(
            len, name="evicted", of=Record
        ),
        keyed.window(af.Session(millis(GAP)), trigger=af.triggers.Never()).aggregate(
            count(), name="merging"
        ),
        keyed.window(af.Global(), trigger=af.triggers.Never()).aggregate(count(), name="global"),
        keyed.interval_join(
            keyed, between=(millis(LOWER), millis(UPPER)), of=Record, other_of=Record
        ).inner(_pair, name="interval join"),
        keyed.as_of_join(keyed, of=Record, other_of=Record).left(_pair, name="as-of join"),
        keyed.window_join(
            keyed, af.Tumbling(millis(SIZE)), of=Record, other_of=Record
        ).inner(_pair, name="window join"),
        keyed.co_group(
            keyed,
            af.Session(millis(GAP)),
            into=lambda lefts, rights: len(lefts) + len(rights),
            name="co-group",
            of=Record,
            other_of=Record,
        ),
    ]
    for number, stream in enumerate(streams):
        stream.to(CollectSink[Any](), name=f"sink {number}")
    return flow


#: The states of the steps: step and name.
STATES: Final[Sequence[tuple[str, str | None]]] = [
    ("fold", None),
    ("reduce", None),
    ("process", "last"),
    ("process", "numbers"),
    ("process", "times"),
    ("async", None),
    ("first ever", None),
    ("deduplicate", None),
    ("top", None),
    ("tumbling", None),
    ("sliding", None),
    ("unshared", None),
    ("records", None),
    ("sessions", None),
    ("session records", None),
    ("evicted", None),
    ("merging", None),
    ("global", None),
    ("interval join", None),
    ("as-of join", None),
    ("window join", None),
    ("co-group", None),
]


class Expected:
    """The state of all steps after some records, none of which is late and which close no window of one another."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            self._records[record.key].append(record)
        newest = max((record.at for record in records), default=0)
        self.watermark = newest - DELAY - 1

    def of(self, step: str, name: str | None) -> dict[str, Any]:
        """Return the value of each key."""
        value = _VALUES[name if step == "process" else step]
        found = {key: value(self, key, records) for key, records in self._records.items()}
        return {key: one for key, one in found.items() if one is not None}

    def windows(
        self,
        key: str,
        records: Sequence[Record],
        spans: Callable[[Record], Iterator[tuple[int, int]]],
        value: Callable[[list[Record]], Any],
    ) -> list[af.Windowed[str, Any]] | None:
        """Return the open windows of a key."""
        found: dict[tuple[int, int], list[Record]] = defaultdict(list)
        for record in records:
            for span in spans(record):
                found[span].append(record)
        return self._windowed(key, found, value)

    def sessions(
        self, key: str, records: Sequence[Record], value: Callable[[list[Record]], Any]
    ) -> list[af.Windowed[str, Any]] | None:
        """Return the open sessions of a key."""
        sessions: list[tuple[int, int, list[int]]] = []
        for index in sorted(range(len(records)), key=lambda index: records[index].at):
            at = records[index].at
            if sessions and at <= sessions[-1][1]:
                start, end, some = sessions.pop()
                sessions.append((start, max(end, at + GAP), [*some, index]))
            else:
                sessions.append((at, at + GAP, [index]))
        found = {
            (start, end): [records[index] for index in sorted(some)]
            for start, end, some in sessions
        }
        return self._windowed(key, found, value)

    def _windowed(
        self,
        key: str,
        found: dict[tuple[int, int], list[Record]],
        value: Callable[[list[Record]], Any],
    ) -> list[af.Windowed[str, Any]] | None:
        return [
            af.Windowed(key, af.TimeWindow(start, end), value(some), 0)
            for (start, end), some in sorted(found.items())
            if end - 1 > self.watermark
        ] or None


def _tumbling(record: Record) -> Iterator[tuple[int, int]]:
    start = record.at - record.at % SIZE
    yield start, start + SIZE


def _sliding(record: Record) -> Iterator[tuple[int, int]]:
    last = record.at - record.at % SLIDE
    for start in range(last - SIZE + SLIDE, last + 1, SLIDE):
        yield start, start + SIZE


def _global(record: Record) -> Iterator[tuple[int, int]]:
    from aflow.model.windows import GLOBAL_WINDOW

    yield GLOBAL_WINDOW.start, GLOBAL_WINDOW.end


def _numbers(records: list[Record]) -> list[int]:
    return [record.number for record in records]


def _top(records: Sequence[Record]) -> tuple[Record, ...]:
    return tuple(sorted(records, key=lambda record: -record.number)[:2])


def _largest(records: Sequence[Record]) -> Record:
    return max(records, key=lambda record: record.number)


def _passed(expected: Expected, records: Sequence[Record]) -> list[int] | None:
    """Return the timestamps that pass; forgotten ones are ignored by the caller."""
    passed: list[int] = []
    for record in records:
        if all(abs(record.at - at) >= WITHIN for at in passed):
            passed.append(record.at)
    return sorted(passed)


def _timed(records: Sequence[Record]) -> list[tuple[int, Record]]:
    return [(record.at, record) for record in sorted(records, key=lambda record: record.at)]


def _interval(expected: Expected, records: Sequence[Record]) -> Any:
    left = [one for one in _timed(records) if one[0] + UPPER > expected.watermark]
    right = [one for one in _timed(records) if one[0] - LOWER > expected.watermark]
    return (left, right) if left or right else None


def _versions(expected: Expected, records: Sequence[Record]) -> Any:
    by_time = {record.at: record for record in records}
    valid = [at for at in by_time if at <= expected.watermark]
    first = max(valid, default=0)
    return [(at, by_time[at]) for at in sorted(by_time) if at >= first] or None


def _both(records: list[Record]) -> tuple[list[Record], list[Record]]:
    return records, records


_VALUES: Final[dict[str | None, Callable[[Expected, str, list[Record]], Any]]] = {
    "fold": lambda _, key, records: sum(_numbers(records)),
    "reduce": lambda _, key, records: _largest(records),
    "last": lambda _, key, records: records[-1].number,
    "numbers": lambda _, key, records: _numbers(records),
    "times": lambda _, key, records: {record.number: record.at for record in records},
    "async": lambda _, key, records: sum(_numbers(records)),
    "first ever": lambda _, key, records: True,
    "deduplicate": lambda expected, key, records: _passed(expected, records),
    "top": lambda _, key, records: _top(records),
    "tumbling": lambda expected, key, some: expected.windows(key, some, _tumbling, len),
    "sliding": lambda expected, key, some: expected.windows(key, some, _sliding, len),
    "unshared": lambda expected, key, some: expected.windows(key, some, _sliding, _numbers),
    "records": lambda expected, key, some: expected.windows(key, some, _tumbling, list),
    "sessions": lambda expected, key, some: expected.sessions(key, some, len),
    "session records": lambda expected, key, some: expected.sessions(key, some, list),
    "evicted": lambda expected, key, some: expected.windows(key, some, _tumbling, list),
    "merging": lambda expected, key, some: expected.sessions(key, some, len),
    "global": lambda expected, key, some: expected.windows(key, some, _global, len),
    "interval join": lambda expected, key, records: _interval(expected, records),
    "as-of join": lambda expected, key, records: _versions(expected, records),
    "window join": lambda expected, key, some: expected.windows(key, some, _tumbling, _both),
    "co-group": lambda expected, key, some: expected.sessions(key, some, _both),
}
