"""Any order of records: compared with the batch result if none is late, and with a naive specification if some are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.triggers import Count, Purging
from aflow.model.elements import Watermark
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.model.windows import TimeWindow
from aflow.operators.windows.lateness import LATE
from aflow.testing import At
from tests.operators.windows.test_window_operator_merging import Sessions
from tests.operators.windows.window_steps import (
    NOTHING,
    SUM,
    Event,
    Everywhere,
    Harness,
    left,
    numbers,
    step,
)


@dataclass(frozen=True)
class Record:
    at: int
    key: str
    number: int

    @property
    def event(self) -> Event:
        return self.key, self.number


_LATE = Tag[Event](LATE)

Result = tuple[str, TimeWindow, object, int]
"""Key, window, value and firing."""


def sorted_numbers(events: list[Event]) -> list[int]:
    return sorted(numbers(events))


RECORDS = st.lists(
    st.builds(Record, st.integers(0, 60), st.sampled_from("abc"), st.integers(1, 9)), max_size=25
)
ASSIGNERS: st.SearchStrategy[WindowAssigner[Any]] = st.sampled_from(
    [
        TumblingWindows(10),
        SlidingWindows(15, 5),
        SlidingWindows(12, 5),
        SlidingWindows(4, 9),
        SessionWindows(10),
        DynamicSessionWindows[Event](lambda event: event[1]),
        Sessions(),
    ]
)
#: Kinds of contents, and the batch result for a list of numbers.
FUNCTIONS: st.SearchStrategy[tuple[dict[str, Any], Callable[[Sequence[int]], Any]]] = (
    st.sampled_from([({"accumulation": SUM}, sum), ({"apply": sorted_numbers}, sorted)])
)


@given(
    records=RECORDS,
    assigner=ASSIGNERS,
    function=FUNCTIONS,
    cuts=st.lists(st.integers(0, 25)),
    restarts=st.sets(st.integers(0, 25)),
    chunk=st.integers(1, 5),
)
@settings(deadline=None)
def test_any_order_without_late_records_has_the_batch_result(
    records: list[Record],
    assigner: WindowAssigner[Any],
    function: tuple[dict[str, Any], Callable[[Sequence[int]], Any]],
    cuts: list[int],
    restarts: set[int],
    chunk: int,
) -> None:
    parts, of_list = function
    harness = step(assigner=assigner, **parts)

    for start in range(0, len(records), chunk):
        some = records[start : start + chunk]
        harness.push_batch([record.event for record in some], [record.at for record in some])
        rest = records[start + chunk :]
        if start in cuts and rest:
            # A session fires 1 ms before the last time at which a record on time can touch it: Flink's rule, which the
            # scenarios pin down. The docs of `Session` tell users to delay the watermark by 1 ms.
            slack = 2 if assigner.merging else 1
            watermark = min(record.at for record in rest) - slack
            if watermark >= _watermark(harness):
                harness.watermark(watermark)
        if start in restarts:
            harness.restart()
    harness.watermark(MAX_TIMESTAMP)

    assert Counter(map(str, _results(harness))) == Counter(
        map(str, _batch_answer(records, assigner, of_list))
    )
    assert left(harness) == NOTHING


def _watermark(harness: Harness) -> int:
    marks = [one.timestamp for one in harness.output if isinstance(one, Watermark)]
    return max(marks, default=MIN_TIMESTAMP)


def _results(harness: Harness) -> list[Result]:
    results = [one for one in harness.output if isinstance(one, At)]
    assert all(one.timestamp == one.value.window.max_timestamp for one in results)
    return [(w.key, w.window, w.value, w.firing) for w in harness.values]


def _batch_answer(
    records: list[Record], assigner: WindowAssigner[Any], of_list: Callable[[Sequence[int]], Any]
) -> list[Result]:
    contents: dict[tuple[str, TimeWindow], list[int]] = {}
    for record in sorted(records, key=lambda record: record.at):
        for window in assigner.assign(record.event, record.at):
            whole = window
            held: list[int] = []
            if assigner.merging:
                for key, other in list(contents):
                    if key == record.key and other.touches(window):
                        held += contents.pop((key, other))
                        whole = whole.cover(other)
            contents.setdefault((record.key, whole), []).extend([*held, record.number])
    return [(key, window, of_list(held), 1) for (key, window), held in contents.items()]


# --------------------------------------------------------------------------------------- lateness


@dataclass(frozen=True)
class Advance:
    by: int


@dataclass
class Specification:
    """The default trigger with lateness, record by record, without an index."""

    assigner: WindowAssigner[Any]
    lateness: int
    watermark: int = -1
    contents: dict[tuple[str, TimeWindow], list[int]] = field(
        default_factory=dict[tuple[str, TimeWindow], list[int]]
    )
    firings: dict[tuple[str, TimeWindow], int] = field(
        default_factory=dict[tuple[str, TimeWindow], int]
    )
    results: list[Result] = field(default_factory=list[Result])
    late: list[Event] = field(default_factory=list[Event])

    def record(self, record: Record) -> None:
        found = False
        for window in self.assigner.assign(record.event, record.at):
            mine = (record.key, window)
            if self.assigner.merging:
                mine = self._merged(record.key, window)
            if mine[1].max_timestamp + self.lateness <= self.watermark:
                continue
            found = True
            self.contents.setdefault(mine, []).append(record.number)
            if mine[1].max_timestamp <= self.watermark:
                self._fire(mine)
        if not found and record.at + self.lateness <= self.watermark:
            self.late.append(record.event)

    def advance(self, watermark: int) -> None:
        for place in sorted(self.contents, key=lambda place: (place[1].max_timestamp, place[0])):
            if self.watermark < place[1].max_timestamp <= watermark:
                self._fire(place)
        self.watermark = watermark
        for place in list(self.contents):
            if place[1].max_timestamp + self.lateness <= watermark:
                del self.contents[place]
                self.firings.pop(place, None)

    def _merged(self, key: str, window: TimeWindow) -> tuple[str, TimeWindow]:
        whole, held, firing = window, list[int](), 0
        for place in [place for place in self.contents if place[0] == key]:
            if place[1].touches(window):
                whole = whole.cover(place[1])
                held += self.contents.pop(place)
                firing = max(firing, self.firings.pop(place, 0))
        if held:
            self.contents[key, whole] = held
            self.firings[key, whole] = firing
        return key, whole

    def _fire(self, place: tuple[str, TimeWindow]) -> None:
        self.firings[place] = self.firings.get(place, 0) + 1
        self.results.append((*place, sorted(self.contents[place]), self.firings[place]))


STEPS = st.lists(
    st.one_of(
        st.lists(
            st.builds(Record, st.integers(0, 60), st.sampled_from("ab"), st.integers(1, 9)),
            min_size=1,
            max_size=5,
        ),
        st.builds(Advance, st.integers(1, 12)),
    ),
    max_size=25,
)


@given(
    steps=STEPS,
    assigner=ASSIGNERS,
    lateness=st.integers(0, 25),
    restarts=st.sets(st.integers(0, 25)),
)
@settings(deadline=None)
def test_late_records_are_treated_as_the_specification_says(
    steps: list[list[Record] | Advance],
    assigner: WindowAssigner[Any],
    lateness: int,
    restarts: set[int],
) -> None:
    harness = step(assigner=assigner, lateness=lateness, apply=sorted_numbers)
    specification = Specification(assigner, lateness)
    harness.watermark(-1)

    for number, one in enumerate(steps):
        before = len(specification.results)
        seen = len(harness.values)
        if isinstance(one, Advance):
            specification.advance(specification.watermark + one.by)
            harness.watermark(specification.watermark)
        else:
            for record in one:
                specification.record(record)
            harness.push_batch([record.event for record in one], [record.at for record in one])
        if number in restarts:
            harness.restart()

        given_now, expected = _results(harness)[seen:], specification.results[before:]
        assert sorted(map(str, given_now)) == sorted(map(str, expected))
        assert [late.value for late in harness.side(_LATE)] == specification.late
    specification.advance(200)
    harness.watermark(200)
    assert left(harness) == NOTHING


# ------------------------------------------------------------------------------------------ counts


@given(
    keys=st.lists(st.sampled_from("abc"), max_size=40),
    size=st.integers(1, 5),
    restarts=st.sets(st.integers(0, 40)),
)
@settings(deadline=None)
def test_windows_of_a_count_are_runs_of_that_many_records_of_a_key(
    keys: list[str], size: int, restarts: set[int]
) -> None:
    harness = step(assigner=Everywhere(), trigger=Purging(Count(size)), apply=numbers)

    for number, key in enumerate(keys):
        harness.push((key, number), 0)
        if number in restarts:
            harness.restart()

    for key in "abc":
        mine = [number for number, other in enumerate(keys) if other == key]
        whole = len(mine) - len(mine) % size
        runs = [mine[start : start + size] for start in range(0, whole, size)]
        assert [w.value for w in harness.values if w.key == key] == runs
