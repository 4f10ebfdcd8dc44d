"""Captures of operators: replayed changes are complete, whatever happens before they are encoded."""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.assigners import (
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from aflow.machines.windows.triggers import ContinuousEventTime, Count, EventTime, Purging
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.accumulation import folding
from aflow.operators.base import Operator, TwoInputOperator
from aflow.operators.broadcast_process import (
    BroadcastContext,
    BroadcastProcess,
    BroadcastProcessOperator,
    ControlContext,
)
from aflow.operators.context import Context
from aflow.operators.deduplicate import DeduplicateOperator
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.co_group import CoGroupOperator
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import Join
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.operators.keyed_function import (
    CoProcess,
    CoProcessOperator,
    KeyedProcess,
    KeyedProcessOperator,
)
from aflow.operators.top import TopOperator
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.broadcast import BroadcastState
from aflow.state.snapshot import STATES, Captured, Entry, OperatorSnapshot, replay
from aflow.state.specs import ListState, MapState, ValueState
from tests.operators.driver import Driver
from tests.operators.windows.window_steps import KeepsLast, OnProcessingTime, logic

Event = tuple[str, int]


def appended(held: list[int], event: Event) -> list[int]:
    held.append(event[1])
    return held


def joined(held: list[int], other: list[int]) -> list[int]:
    held.extend(other)
    return held


#: Accumulators that each record changes in place.
LISTS = folding(list, appended, joined)


class _States:
    """Uses state of every kind, by the number of the record."""

    last = ValueState("last", of=list[int])
    some = ListState("some", of=int)
    counts = MapState("counts", key=int, of=int)

    def act(self, number: int, ctx: Context[str] | BroadcastContext[str]) -> None:
        last, some, counts = ctx.state(self.last), ctx.state(self.some), ctx.state(self.counts)
        match number % 7:
            case 0:
                changed = last.get([])
                changed.append(number)
                last.set(changed)
            case 1:
                some.add(number)
            case 2:
                counts.put(number % 3, number)
            case 3:
                for state in (last, some, counts):
                    state.clear()
            case 4:
                ctx.set_event_timer(number % 20)
            case 5:
                ctx.set_processing_timer(number % 20)
            case _:
                ctx.delete_event_timer(number % 20)
                ctx.delete_processing_timer(number % 20)


class Keyed(_States, KeyedProcess[str, Event, int]):
    def process(self, value: Event, ctx: Context[str]) -> None:
        self.act(value[1], ctx)

    def on_timer(self, at: int, ctx: Context[str]) -> None:
        self.act(at % 4, ctx)


class Co(_States, CoProcess[str, Event, Event, int]):
    def process_left(self, value: Event, ctx: Context[str]) -> None:
        self.act(value[1], ctx)

    def process_right(self, value: Event, ctx: Context[str]) -> None:
        self.act(value[1] + 1, ctx)

    def on_timer(self, at: int, ctx: Context[str]) -> None:
        self.act(at % 4, ctx)


class Ruled(_States, BroadcastProcess[str, Event, Event, int]):
    rules = BroadcastState[Any, int]("rules", of=int)

    def process(self, value: Event, ctx: BroadcastContext[str]) -> None:
        self.act(value[1] + ctx.state(self.rules).get(value[0], 0), ctx)

    def process_broadcast(self, value: Event, ctx: ControlContext) -> None:
        ctx.state(self.rules).put(*value)

    def on_timer(self, at: int, ctx: BroadcastContext[str]) -> None:
        self.act(at % 4, ctx)


class OnlyTimers(KeyedProcess[str, Event, int]):
    def process(self, value: Event, ctx: Context[str]) -> None:
        ctx.set_event_timer(value[1] % 20)
        ctx.delete_event_timer(value[1] % 7)

    def on_timer(self, at: int, ctx: Context[str]) -> None:
        if at % 2:
            ctx.set_event_timer(at + 5)


class OfKeyAndWindow(WindowFunction[str, Any, Any]):
    of_key = ListState("of key", of=int)
    of_window = ListState("of window", of=int)

    def process(self, value: Any, ctx: WindowContext[str]) -> Iterable[Any]:
        ctx.state(self.of_key).add(ctx.window.start)
        ctx.window_state(self.of_window).add(ctx.firing)
        return ()


class Forgetting(WindowFunction[str, Any, Any]):
    """Has state of keys and of windows that expires."""

    of_key = ListState("of key", of=int, ttl=timedelta(milliseconds=5))
    of_window = ListState("of window", of=int, ttl=timedelta(milliseconds=3))

    def process(self, value: Any, ctx: WindowContext[str]) -> Iterable[Any]:
        ctx.state(self.of_key).add(ctx.window.start)
        ctx.window_state(self.of_window).add(ctx.firing)
        return ()


def windows(**parts: Any) -> Callable[[], Operator]:
    made = logic(**{"accumulation": LISTS, **parts})
    return lambda: WindowOperator(made)


def pair(left: object, right: object) -> object:
    return left, right


OPERATORS: Mapping[str, Callable[[], Operator]] = {
    "keyed process": lambda: KeyedProcessOperator(Keyed()),
    "timers alone": lambda: KeyedProcessOperator(OnlyTimers()),
    "co-process": lambda: CoProcessOperator(Co()),
    "broadcast process": lambda: BroadcastProcessOperator(Ruled()),
    "fold": lambda: KeyedAccumulateOperator(LISTS),
    "first of each key": lambda: DeduplicateOperator(),
    "first within a while": lambda: DeduplicateOperator(6),
    "top": lambda: TopOperator(2, lambda event: event[1]),
    "tumbling": lambda: PaneAggregateOperator(TumblingWindows(5), LISTS),
    "tumbling, late": lambda: PaneAggregateOperator(TumblingWindows(5), LISTS, lateness=7),
    "sliding": lambda: PaneAggregateOperator(SlidingWindows(6, 2), LISTS, shared=False, lateness=3),
    "panes": lambda: PaneAggregateOperator(SlidingWindows(7, 2), LISTS),
    "panes, late": lambda: PaneAggregateOperator(SlidingWindows(6, 2), LISTS, lateness=6),
    "sessions": lambda: SessionAggregateOperator(3, LISTS),
    "sessions, late": lambda: SessionAggregateOperator(3, LISTS, lateness=8),
    "general": windows(lateness=4),
    "general, early": windows(trigger=EventTime(early=Count(2)), lateness=4),
    "general, evictor": windows(evictor=KeepsLast(3, 2), trigger=Count(2)),
    "general, records": windows(
        apply=len, accumulation=None, trigger=ContinuousEventTime(timedelta(milliseconds=3))
    ),
    "general, clock": windows(assigner=OnProcessingTime(), trigger=Count(2)),
    "general, states": windows(function=OfKeyAndWindow(), trigger=Count(2), lateness=4),
    "general, ttl": windows(function=Forgetting(), trigger=Count(2), lateness=4),
    "general, merging": windows(assigner=SessionWindows(3), trigger=EventTime(), lateness=4),
    "general, merging, timers": windows(
        assigner=SessionWindows(3), trigger=ContinuousEventTime(timedelta(milliseconds=2))
    ),
    "general, global": windows(assigner=GlobalWindows(), trigger=Purging(Count(2))),
    "interval": lambda: IntervalJoinOperator(-3, 2, pair),
    "interval, outer": lambda: IntervalJoinOperator(-3, 2, pair, kind=Join.FULL),
    "as of": lambda: AsOfJoinOperator(pair),
    "as of, tolerance": lambda: AsOfJoinOperator(pair, kind=Join.LEFT, tolerance=4),
    "co-group": lambda: CoGroupOperator(
        WindowLogic(assigner=TumblingWindows(5), trigger=EventTime(), lateness=3),
        lambda lefts, rights: len(lefts) + len(rights),
    ),
    "co-group, sessions": lambda: CoGroupOperator(
        WindowLogic(assigner=SessionWindows(3), trigger=EventTime(), lateness=3),
        lambda lefts, rights: len(lefts) + len(rights),
    ),
}


@dataclass(frozen=True)
class Records:
    """A batch, of the right input where there are two."""

    events: Sequence[tuple[Any, int, int]]
    """Key, number, and by how much the timestamp is ahead of the watermark."""
    right: bool


@dataclass(frozen=True)
class Advance:
    """Advance the watermark and the clock."""

    by: int


@dataclass(frozen=True)
class Capture:
    changes: bool = True


@dataclass(frozen=True)
class Restart:
    """Replace the operator by one restored from the captures."""


Step = Records | Advance | Capture | Restart


def stories(keys: Sequence[Hashable]) -> st.SearchStrategy[list[Step]]:
    events = st.tuples(st.sampled_from(keys), st.integers(0, 40), st.integers(-6, 12))
    batches = st.builds(Records, st.lists(events, min_size=1, max_size=5), st.booleans())
    advances = st.builds(Advance, st.integers(1, 9))
    captures = st.sampled_from([Capture(), Capture(), Capture(changes=False), Restart()])
    return st.lists(st.one_of(batches, batches, advances, captures, captures), max_size=30)


def replayed(
    captures: Iterable[Captured], before: Iterable[OperatorSnapshot] = ()
) -> OperatorSnapshot:
    """Encode ``captures`` in order, and return the state of the last one. The chain begins with ``before``."""
    chain = list(before)
    for captured in captures:
        snapshot = captured.encoded()
        if snapshot.complete:
            chain.clear()
        chain.append(snapshot)
    return replay(chain)


class Life:
    """Operators that replace each other, and their captures."""

    def __init__(self, make: Callable[[], Operator]) -> None:
        self.driver = Driver(make)
        self._make = make
        self.now = 0
        self._captured: list[Captured] = []
        self._before: list[OperatorSnapshot] = []

    def live(self, step: Step) -> None:
        match step:
            case Records(some, right):
                self._push(some, right=right)
            case Advance(by):
                self.now += by
                self.driver.watermark(self.now).clock(self.now)
            case Capture(changes):
                self.capture(changes=changes)
            case Restart():
                self.capture()
                clock = self.driver.time
                self.driver = Driver(self._make).restored(self.stored())
                self.driver.time.at = clock.at
                self.driver.clock(clock.at)

    def capture(self, *, changes: bool = True) -> None:
        captured = self.driver.operator.capture(changes=changes)
        assert captured is not None
        self._captured.append(captured)

    def stored(self) -> OperatorSnapshot:
        """All that was captured, made bytes only now."""
        return replayed(self._captured, self._before)

    def stored_in_one(self) -> OperatorSnapshot:
        """Return what is stored, and keep it in place of the captures, which would be encoded again each time."""
        stored = self.stored()
        self._captured, self._before = [], [stored]
        return stored

    def _push(self, some: Sequence[tuple[Any, int, int]], *, right: bool) -> None:
        operator = self.driver.operator
        values = [(key, number) for key, number, _ in some]
        times = [max(0, self.now + ahead) for _, _, ahead in some]
        batch = Batch[Any](values, times, [key for key, _, _ in some])
        if not isinstance(operator, TwoInputOperator):
            operator.process(batch)
        elif right:
            operator.process_right(batch)
        else:
            operator.process_left(batch)


def entries(snapshot: OperatorSnapshot) -> Mapping[tuple[int, str], Bag[tuple[Hashable, bytes]]]:
    """Return the stored values by name and key, in no order, without the layouts of states."""
    return {
        (group, name): Bag((key_of(key), data) for key, data in some)
        for group, names in snapshot.keyed.items()
        for name, some in names.items()
        if name != STATES and some
    }


def key_of(data: bytes) -> Hashable:
    """The key, or key and window, that was stored."""
    match PLAIN.decode(data):
        case [bytes(key), int(start), int(end)]:
            return key_of(key), start, end
        case str() | int() | float() | datetime() as key:
            return key
        case str() as first, int() as second:
            return first, second
        case other:
            raise AssertionError(f"{other} is no key of these tests")


def descriptions(snapshot: OperatorSnapshot) -> set[tuple[int, Entry]]:
    return {
        (group, state) for group, names in snapshot.keyed.items() for state in names.get(STATES, ())
    }


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SAME_NOON = NOON.astimezone(timezone(timedelta(hours=1)))


def stories_of_any_keys() -> st.SearchStrategy[list[Step]]:
    """Stories with plain keys, with equal keys of several types, and with equal keys of one type."""
    return st.one_of(
        stories("abcde"),
        stories([1, True, 1.0, 2]),
        stories([NOON, SAME_NOON, ("a", 1), ("a", True)]),
    )


@pytest.mark.parametrize("name", OPERATORS)
@given(story=stories_of_any_keys())
@settings(max_examples=70, deadline=None)
def test_replayed_changes_are_complete(name: str, story: list[Step]) -> None:
    check_changes_replayed(name, story)


def test_a_timer_is_removed_from_storage_also_if_an_equal_key_was_touched() -> None:
    life = Life(OPERATORS["keyed process"])
    life.live(Records([(NOON, 25, 0)], right=False))
    life.capture()
    life.live(Records([(SAME_NOON, 0, 0)], right=False))
    life.live(Advance(5))
    life.capture()

    assert entries(life.stored()) == entries(life.driver.snapshot())


def test_a_timer_is_removed_from_storage_also_if_its_key_was_read_as_the_declared_type() -> None:
    life = Life(lambda: KeyedProcessOperator(Keyed(), key_type=float))
    life.live(Records([(1, 25, 0), (1, 0, 0)], right=False))
    life.live(Restart())  # the key is 1.0 now

    life.live(Advance(6))
    life.capture()

    assert sizes(life.stored()) == sizes(life.driver.snapshot()) == {"last": 1, "some": 1}


def sizes(snapshot: OperatorSnapshot) -> Mapping[str, int]:
    """Return the number of rows of each name."""
    return {
        name: len(rows)
        for names in snapshot.keyed.values()
        for name, rows in names.items()
        if name != STATES and rows
    }


def check_changes_replayed(name: str, story: list[Step]) -> None:
    life = Life(OPERATORS[name])
    for step in story:
        life.live(step)
    life.capture()

    there = life.driver.snapshot()
    stored = life.stored()
    if name in READ_ANEW:
        stored = Driver(OPERATORS[name]).restored(stored).snapshot()

    assert entries(stored) == entries(there)
    assert descriptions(stored) >= descriptions(there)
    assert stored.operator == there.operator
    assert stored.broadcast == there.broadcast
    assert stored.members == there.members


#: A restore drops expired values in rows of keys that have not changed for long.
READ_ANEW = {"interval", "as of", "as of, tolerance"}


@pytest.mark.parametrize("name", OPERATORS)
def test_state_that_expires_without_records_is_removed_from_storage(name: str) -> None:
    life = Life(OPERATORS[name])
    for number, right in enumerate([True, False, True]):
        some = [(key, 7 * number, ahead) for ahead, key in enumerate("abcde")]
        life.live(Records(some, right=right))
    life.capture()

    for _ in range(20):
        life.live(Advance(1))
        life.capture()
        if name not in READ_ANEW:
            assert entries(life.stored_in_one()) == entries(life.driver.snapshot())
        # Late records, for the state that is kept for them.
        life.live(Records([("a", 4, -3), ("b", 11, -3)], right=False))
    life.capture()
    for _ in range(40):
        life.live(Advance(1))
        life.capture()
        if name not in READ_ANEW:
            assert entries(life.stored_in_one()) == entries(life.driver.snapshot())

    assert entries(life.stored()) == entries(life.driver.snapshot())
    life.live(Advance(MAX_TIMESTAMP - life.now))
    life.capture()
    assert entries(life.stored()) == entries(life.driver.snapshot())


def test_the_firings_of_a_removed_window_are_removed_from_storage() -> None:
    life = Life(OPERATORS["panes, late"])
    life.live(Records([("a", 1, 0), ("b", 1, 0)], right=False))
    life.live(Advance(8))
    for number in (2, 3):
        life.live(Records([("a", number, -4)], right=False))

    for _ in range(12):
        life.live(Advance(1))
        life.capture()
        assert entries(life.stored()) == entries(life.driver.snapshot())


def test_how_often_a_window_has_fired_is_stored_once_also_for_keys_that_are_equal() -> None:
    life = Life(OPERATORS["panes, late"])
    life.live(Records([(1, 1, 0)], right=False))
    life.live(Advance(8))
    life.live(Records([(True, 2, -7)], right=False))
    life.capture()
    life.live(Records([(1, 3, -7)], right=False))
    life.capture()

    assert entries(life.stored()) == entries(life.driver.snapshot())


@pytest.mark.parametrize("name", OPERATORS)
def test_only_changed_keys_are_captured(name: str) -> None:
    life = Life(OPERATORS[name])
    life.live(Records([(key, 14, 1) for key in "abcdefgh"], right=False))
    life.capture()
    life.live(Records([("a", 7, 2)], right=False))

    captured = life.driver.operator.capture(changes=True)

    assert captured is not None
    snapshot = captured.encoded()
    assert snapshot.replaced is not None
    assert sum(map(len, snapshot.replaced.values())) <= 2  # the key, and its window
    assert {key_of(key) for group in snapshot.replaced.values() for key in group} >= {
        key
        for (_, name), some in entries(snapshot).items()
        if name not in TIMERS
        for key, _ in some
    }


TIMERS = {"@event timers", "@processing timers"}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_capture_does_not_change_with_the_operator(name: str) -> None:
    life = Life(OPERATORS[name])
    life.live(Records([(key, 7, 1) for key in "abc"], right=False))
    whole = life.driver.operator.capture(changes=False)
    life.live(Records([(key, 14, 1) for key in "abc"], right=True))
    changes = life.driver.operator.capture(changes=True)
    before = life.driver.snapshot()
    assert whole is not None
    assert changes is not None

    for number in (21, 22, 23):
        life.live(Records([(key, number, 1) for key in "abc"], right=False))
    life.live(Advance(MAX_TIMESTAMP))

    assert entries(replay([whole.encoded(), changes.encoded()])) == entries(before)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_checkpoint_after_a_snapshot_holds_the_changes_before_the_snapshot(name: str) -> None:
    life = Life(OPERATORS[name])
    life.live(Records([(key, 7, 1) for key in "abc"], right=False))
    first = life.driver.operator.checkpoint(changes=True)
    life.live(Records([(key, 14, 1) for key in "ab"], right=False))

    snapshot = life.driver.snapshot()
    second = life.driver.operator.checkpoint(changes=True)

    assert first is not None
    assert second is not None
    chain = [first.encoded(), second.encoded()]
    assert entries(replay(chain[1:] if chain[1].complete else chain)) == entries(snapshot)


@pytest.mark.parametrize(
    "name",
    sorted(
        OPERATORS.keys() - {"timers alone", "general, clock", "general, states", "general, ttl"}
    ),
)
def test_where_most_keys_have_changed_all_is_captured(name: str) -> None:
    life = Life(OPERATORS[name])
    many = [(f"key {number}", 7, 1) for number in range(1_000)]
    life.live(Records(many, right=False))
    life.capture()
    life.live(Records(many[:600], right=False))

    captured = life.driver.operator.capture(changes=True)

    assert captured is not None
    assert captured.encoded().complete


def test_without_captures_nothing_is_noted() -> None:
    life = Life(OPERATORS["tumbling"])
    life.live(Records([("a", 7, 1)], right=False))
    operator = life.driver.operator

    first = operator.capture(changes=True)

    assert first is not None
    assert first.encoded().complete
