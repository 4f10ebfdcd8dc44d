"""A flow with a step of each kind that has state to read, and the values that a plain program computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import aflow as af
from aflow import CollectSink, Context, Flow, KeyedProcess, PushSource
from aflow.aggregates import count
from aflow.model.windows import GLOBAL_WINDOW
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


def _sum(total: int, record: Record) -> int:
    return total + record.number


def _larger(a: Record, b: Record) -> Record:
    return max(a, b, key=_number)


def _number(record: Record) -> int:
    return record.number


def _count_both(lefts: list[Record], rights: list[Record]) -> int:
    return len(lefts) + len(rights)


def _pair(left: Record | None, right: Record | None) -> tuple[Any, Any]:
    return left, right


def all_steps(source: PushSource[Record], only: Collection[str] | None = None) -> Flow:
    """Return a flow with all of them, or with ``only`` some."""
    flow = Flow("all")
    timed = flow.source(source, name="source").event_time(
        lambda record: record.at, max_delay=millis(DELAY), name="time"
    )
    keyed = timed.key_by(lambda record: record.key, name="key", of=str)
    for name, step in _STEPS.items():
        if only is None or name in only:
            step(keyed, name).to(CollectSink[Any](), name=f"out of {name}")
    return flow


_TUMBLING: Final = af.Tumbling(millis(SIZE))
_SLIDING: Final = af.Sliding(millis(SIZE), millis(SLIDE))
_SESSION: Final = af.Session(millis(GAP))
_NEVER: Final = af.triggers.Never()
_TYPES: Final = {"of": Record, "other_of": Record}

_STEPS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "fold": lambda keyed, name: keyed.fold(int, _sum, name=name),
    "reduce": lambda keyed, name: keyed.reduce(_larger, name=name, of=Record),
    "process": lambda keyed, name: keyed.process(Remember(), name=name),
    "async": lambda keyed, name: keyed.process_async(RememberLater(), name=name),
    "first ever": lambda keyed, name: keyed.deduplicate(name=name),
    "deduplicate": lambda keyed, name: keyed.deduplicate(within=millis(WITHIN), name=name),
    "top": lambda keyed, name: keyed.top(2, by=_number, name=name, of=Record),
    "tumbling": lambda keyed, name: keyed.window(_TUMBLING).aggregate(count(), name=name),
    "sliding": lambda keyed, name: keyed.window(_SLIDING).aggregate(count(), name=name),
    "unshared": lambda keyed, name: keyed.window(_SLIDING).fold(list[int], _added, name=name),
    "records": lambda keyed, name: keyed.window(_TUMBLING).apply(len, name=name, of=Record),
    "sessions": lambda keyed, name: keyed.window(_SESSION).aggregate(count(), name=name),
    "session records": lambda keyed, name: keyed.sessions(millis(GAP), name=name, of=Record),
    "evicted": lambda keyed, name: keyed.window(_TUMBLING, evictor=af.evictors.Count(2)).apply(
        len, name=name, of=Record
    ),
    "merging": lambda keyed, name: keyed.window(_SESSION, trigger=_NEVER).aggregate(
        count(), name=name
    ),
    "global": lambda keyed, name: keyed.window(af.Global(), trigger=_NEVER).aggregate(
        count(), name=name
    ),
    "interval join": lambda keyed, name: keyed.interval_join(
        keyed, between=(millis(LOWER), millis(UPPER)), **_TYPES
    ).inner(_pair, name=name),
    "as-of join": lambda keyed, name: keyed.as_of_join(keyed, **_TYPES).left(_pair, name=name),
    "window join": lambda keyed, name: keyed.window_join(keyed, _TUMBLING, **_TYPES).inner(
        _pair, name=name
    ),
    "co-group": lambda keyed, name: keyed.co_group(
        keyed, _SESSION, into=_count_both, name=name, **_TYPES
    ),
}


#: The states of the steps: step and name.
STATES: Final[Sequence[tuple[str, str | None]]] = [
    (step, name)
    for step in _STEPS
    for name in (("last", "numbers", "times") if step == "process" else (None,))
]


class Expected:
    """The state of all steps after some records, none of which is late."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records: dict[str, list[Record]] = defaultdict(list)
        #: The watermark before each record of a key.
        self._before: dict[str, list[int]] = defaultdict(list)
        newest = 0
        for record in records:
            self._records[record.key].append(record)
            self._before[record.key].append(newest - DELAY - 1)
            newest = max(newest, record.at)
        self.watermark = newest - DELAY - 1

    def of(self, step: str, name: str | None) -> dict[str, Any]:
        """Return the value of each key."""
        value = _VALUES[name or step]
        found = {key: value(self, key, records) for key, records in self._records.items()}
        return {key: one for key, one in found.items() if one is not None}

    def found(self, step: str, value: Any) -> Any:
        """Return a value that was read, without timestamps of ``deduplicate`` that make no difference any more."""
        if step != "deduplicate" or value is None:
            return value
        return [at for at in value if at + WITHIN - 1 > self.watermark] or None

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
        for index, (record, watermark) in enumerate(zip(records, self._before[key], strict=True)):
            start, end, some = record.at, record.at + GAP, [index]
            apart: list[tuple[int, int, list[int]]] = []
            for one in sessions:
                if one[1] - 1 <= watermark:
                    continue
                if one[0] <= end and start <= one[1]:
                    start, end, some = min(start, one[0]), max(end, one[1]), [*some, *one[2]]
                else:
                    apart.append(one)
            sessions = [*apart, (start, end, some)]
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
    yield GLOBAL_WINDOW.start, GLOBAL_WINDOW.end


def _numbers(records: list[Record]) -> list[int]:
    return [record.number for record in records]


def _top(records: Sequence[Record]) -> tuple[Record, ...]:
    return tuple(sorted(records, key=lambda record: -record.number)[:2])


def _largest(records: Sequence[Record]) -> Record:
    return max(records, key=lambda record: record.number)


def _passed(expected: Expected, records: Sequence[Record]) -> list[int] | None:
    """Return the timestamps of records that pass, as far as they make a difference for further records."""
    passed: list[int] = []
    for record in records:
        if all(abs(record.at - at) >= WITHIN for at in passed):
            passed.append(record.at)
    return [at for at in sorted(passed) if at + WITHIN - 1 > expected.watermark] or None


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
