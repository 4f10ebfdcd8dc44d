"""Co-groups and window joins: both inputs in the same windows, pairs, late records, evictors, state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows, WindowAssigner
from aflow.machines.windows.evictors import Element, Evictor, EvictorContext
from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import EventTime
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.joins.co_group import CoGroupOperator, TwoListContents, WindowJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.operators.windows.logic import WindowLogic
from aflow.state.layouts import Many, state_codec
from aflow.testing import Mode, TwoInputHarness
from tests.operators.backends import BACKENDS, backend, created, using
from tests.operators.joins.backends import with_backend
from tests.operators.joins.histories import (
    Harness,
    Record,
    Step,
    histories,
    lefts,
    play,
    records,
    rights,
)

Numbers = tuple[list[int], list[int]]

A = "a"
B = "b"


def numbers(left: list[Record], right: list[Record]) -> Numbers:
    return [one.number for one in left], [one.number for one in right]


def pair(left: Record | None, right: Record | None) -> tuple[int | None, int | None]:
    return left.number if left else None, right.number if right else None


def logic(**parts: Any) -> WindowLogic:
    """Return a logic; by default windows of 10 ms with the default trigger."""
    given: dict[str, Any] = {"assigner": TumblingWindows(10), "trigger": EventTime(), **parts}
    return WindowLogic(**given)


@pytest.fixture(autouse=True, scope="module", params=BACKENDS)
def backend_of_joins(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the windows of all harnesses in one backend."""
    with using(request.param):
        yield


def driven(make: Callable[[], Any], mode: Mode, **options: Any) -> Harness:
    harness: Harness = TwoInputHarness(
        lambda: with_backend(make(), backend()),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
        **options,
    )
    created(harness)
    return harness


def co_group(mode: Mode = Mode.STRAIGHT, *, into: Any = numbers, **parts: Any) -> Harness:
    made = logic(**parts)
    return driven(lambda: CoGroupOperator(made, into, left_type=Record, right_type=Record), mode)


def window_join(
    kind: Join = Join.INNER, mode: Mode = Mode.STRAIGHT, *, into: Any = pair, **parts: Any
) -> Harness:
    made = logic(**parts)
    return driven(
        lambda: WindowJoinOperator(made, into, kind=kind, left_type=Record, right_type=Record),
        mode,
    )


def left(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.left(record, at)
    return record


def right(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.right(record, at)
    return record


every_way = pytest.mark.parametrize("mode", Mode)


@dataclass(frozen=True)
class Sessions(WindowAssigner[Record]):
    """Windows that merge, longer after a record with a large number."""

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: Record, timestamp: Timestamp) -> list[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + (20 if value.number > 100 else 5))]


@dataclass(frozen=True)
class OnNumber(Trigger[Record]):
    """Fires for a record whose number is 9."""

    def on_element(
        self, value: Record, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if value.number == 9 else TriggerResult.CONTINUE


@dataclass(frozen=True)
class AtEnd(Trigger[Record]):
    """Fires at the end of the window, and supports windows that merge."""

    @property
    def merges(self) -> bool:
        return True

    def on_element(
        self, value: Record, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.set_event_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if at == window.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        ctx.set_event_timer(window.max_timestamp)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_timer(window.max_timestamp)


class LastTwo(Evictor[Record]):
    """Keeps the last two records."""

    def before(
        self, elements: Sequence[Element[Record]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Record]]:
        return elements[-2:]


class Inventor(Evictor[Record]):
    """Returns an element that it was not given."""

    def before(
        self, elements: Sequence[Element[Record]], window: TimeWindow, ctx: EvictorContext
    ) -> Sequence[Element[Record]]:
        return [Element(each.value, each.timestamp) for each in elements]


# --------------------------------------------------------------------------------------- co-group


@every_way
def test_a_co_group_gets_the_records_of_both_inputs_in_the_order_of_their_arrival(
    mode: Mode,
) -> None:
    step = co_group(mode)
    left(step, 3, 1)
    right(step, 9, 2)
    left(step, 1, 3)
    right(step, 10, 4)

    step.watermark(9)

    assert step.values == [Windowed(A, TimeWindow(0, 10), ([1, 3], [2]))]
    assert [one.timestamp for one in records(step)] == [9]


@every_way
def test_a_co_group_fires_for_windows_in_which_only_one_input_has_records(mode: Mode) -> None:
    step = co_group(mode)
    left(step, 3, 1, key=A)
    right(step, 3, 2, key=B)

    step.watermark(9)

    assert sorted((w.key, w.value) for w in step.values) == [(A, ([1], [])), (B, ([], [2]))]


@every_way
def test_windows_fire_at_the_smaller_watermark_of_the_inputs(mode: Mode) -> None:
    step = co_group(mode)
    left(step, 3, 1)
    step.left_watermark(100)

    before = step.values
    right(step, 4, 2)
    step.right_watermark(9)

    assert (before, [w.value for w in step.values]) == ([], [([1], [2])])


@every_way
def test_a_record_within_the_lateness_fires_its_window_again_with_all_its_records(
    mode: Mode,
) -> None:
    step = co_group(mode, lateness=5)
    left(step, 3, 1)
    step.watermark(9)

    right(step, 4, 2)

    assert [(w.value, w.firing) for w in step.values] == [(([1], []), 1), (([1], [2]), 2)]


@every_way
def test_windows_of_both_inputs_merge(mode: Mode) -> None:
    step = co_group(mode, assigner=Sessions(), trigger=AtEnd())
    left(step, 0, 1)
    right(step, 8, 2)
    left(step, 4, 3)

    step.watermark(MAX_TIMESTAMP)

    assert [(w.window, sorted(w.value[0]), w.value[1]) for w in step.values] == [
        (TimeWindow(0, 13), [1, 3], [2])
    ]


@every_way
def test_assigners_and_triggers_get_the_records_themselves(mode: Mode) -> None:
    step = co_group(mode, assigner=Sessions(), trigger=AtEnd())
    right(step, 0, 101)
    ends = co_group(mode, trigger=OnNumber())
    left(ends, 1, 1)
    right(ends, 1, 9)

    step.watermark(MAX_TIMESTAMP)

    assert [w.window for w in step.values] == [TimeWindow(0, 20)]
    assert [w.value for w in ends.values] == [([1], [9])]


@every_way
def test_an_evictor_gets_both_inputs_in_the_order_of_arrival(mode: Mode) -> None:
    step = co_group(mode, evictor=LastTwo())
    left(step, 1, 1)
    right(step, 1, 2)
    left(step, 2, 3)

    step.watermark(9)

    assert [w.value for w in step.values] == [([3], [2])]


@every_way
def test_records_that_an_evictor_drops_are_not_in_later_firings(mode: Mode) -> None:
    step = co_group(mode, evictor=LastTwo(), lateness=5)
    for number in (1, 2, 3):
        left(step, 1, number)
    step.watermark(9)

    right(step, 4, 4)

    assert [w.value for w in step.values] == [([2, 3], []), ([3], [4])]


def test_an_evictor_that_returns_new_elements_is_named() -> None:
    step = co_group(evictor=Inventor())
    left(step, 1)

    with pytest.raises(OperatorError, match="Inventor returned an element that it did not get"):
        step.watermark(9)


@every_way
def test_a_late_record_is_emitted_unchanged_to_the_late_output_of_its_input(mode: Mode) -> None:
    step = co_group(mode)
    step.watermark(9)

    late = left(step, 8, 1), right(step, 7, 2)

    assert [one.value for one in step.side(Tag[Record](LATE_LEFT))] == [late[0]]
    assert [one.value for one in step.side(Tag[Record](LATE_RIGHT))] == [late[1]]


@every_way
def test_lists_are_the_functions_own(mode: Mode) -> None:
    def emptied(one: list[Record], other: list[Record]) -> Numbers:
        result = numbers(one, other)
        one.clear()
        other.clear()
        return result

    step = co_group(mode, into=emptied, lateness=5)
    left(step, 1, 1)
    step.watermark(9)
    right(step, 1, 2)

    assert [w.value for w in step.values] == [([1], []), ([1], [2])]


# ------------------------------------------------------------------------------------ window join


@every_way
def test_each_left_record_of_a_window_is_joined_to_each_right_one(mode: Mode) -> None:
    step = window_join(mode=mode)
    for number, at in ((1, 1), (2, 2)):
        left(step, at, number)
    for number, at in ((3, 3), (4, 4), (5, 15)):
        right(step, at, number)

    step.watermark(MAX_TIMESTAMP)

    assert step.values == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert {one.timestamp for one in records(step)} == {9}


@every_way
@pytest.mark.parametrize(
    ("kind", "alone"),
    [
        (Join.INNER, set[Any]()),
        (Join.LEFT, {(1, None)}),
        (Join.RIGHT, {(None, 2)}),
        (Join.FULL, {(1, None), (None, 2)}),
    ],
)
def test_without_records_of_the_other_input_the_kept_ones_are_emitted_with_none(
    mode: Mode, kind: Join, alone: set[Any]
) -> None:
    step = window_join(kind, mode)
    left(step, 1, 1, key=A)
    right(step, 2, 2, key=B)
    left(step, 11, 3, key=A)
    right(step, 12, 4, key=A)

    step.watermark(MAX_TIMESTAMP)

    assert set(step.values) == {*alone, (3, 4)}


@every_way
def test_a_refinement_emits_all_pairs_again(mode: Mode) -> None:
    step = window_join(mode=mode, lateness=5)
    left(step, 1, 1)
    right(step, 1, 2)
    step.watermark(9)

    right(step, 2, 3)

    assert step.values == [(1, 2), (1, 2), (1, 3)]


@every_way
def test_no_state_is_kept_after_the_end_of_time(mode: Mode) -> None:
    for step in (window_join(mode=mode), co_group(mode, evictor=LastTwo(), lateness=3)):
        for at in range(20):
            left(step, at, key=f"left {at}")
            right(step, at, key=f"right {at}")
        assert step.size.entries == 40

        step.watermark(MAX_TIMESTAMP)

        assert (step.size.entries, step.size.event_timers) == (0, 0)


def test_removed_windows_keep_no_state() -> None:
    step = window_join(Join.FULL)
    most = 0
    for at in range(1000):
        left(step, at, key=f"left {at}")
        right(step, at, key=f"right {at}")
        step.watermark(at)
        most = max(most, step.size.entries)

    assert most <= 2 * 10


# ------------------------------------------------------------------------------ failures and state


def test_an_error_of_the_join_function_names_key_and_both_records() -> None:
    def fail(one: Record, other: Record) -> None:
        if other.number == 3:
            raise ValueError("no")

    step = window_join(into=fail)
    one, _, other = left(step, 1, 1), right(step, 1, 2), right(step, 1, 3)

    with pytest.raises(OperatorError, match=r"'a'.*no.*left record .*1.*right record .*3") as e:
        step.watermark(9)

    assert (e.value.key, e.value.record) == (A, (one, other))
    assert isinstance(e.value.__cause__, ValueError)


def test_an_error_of_the_join_function_at_a_refinement_names_both_records_too() -> None:
    def fail(one: Record, other: Record) -> None:
        raise ValueError("no")

    step = window_join(into=fail, lateness=5)
    one = left(step, 1, 1)
    step.watermark(9)

    with pytest.raises(OperatorError) as e:
        right(step, 2, 2)

    assert (e.value.key, e.value.record) == (A, (one, Record(A, 2, 2)))


def test_an_error_of_the_group_function_names_the_key_and_the_window() -> None:
    def fail(one: list[Record], other: list[Record]) -> None:
        raise ValueError("no")

    step = co_group(into=fail)
    left(step, 1)

    with pytest.raises(OperatorError, match=r"'a'.*window.*no") as e:
        step.watermark(9)

    assert e.value.key == A


def test_a_logic_with_a_function_of_its_own_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="has a function of its own"):
        CoGroupOperator(logic(apply=len), numbers)


def test_a_trigger_that_cannot_merge_is_refused_with_windows_that_do() -> None:
    with pytest.raises(FlowDefinitionError, match="on_merge"):
        WindowJoinOperator(logic(assigner=Sessions(), trigger=OnNumber()), pair)


def test_each_input_is_stored_by_its_own_type() -> None:
    made = logic()
    step = driven(lambda: CoGroupOperator(made, numbers, left_type=Record), Mode.STRAIGHT)
    left(step, 1)
    step.snapshot()
    right(step, 1)

    with pytest.raises(CheckpointError, match="cannot store the contents of key 'a'"):
        step.snapshot()


@pytest.mark.parametrize("evictor", [None, LastTwo()])
def test_state_is_restored_by_the_owner_of_the_key_at_another_parallelism(
    evictor: LastTwo | None,
) -> None:
    before = co_group(evictor=evictor)
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        left(before, 1, 1, key=key)
        right(before, 2, 2, key=key)
    snapshot = before.snapshot()
    assert snapshot is not None

    made = logic(evictor=evictor)
    grouped: list[Any] = []
    for subtask in range(3):
        step = driven(
            lambda: CoGroupOperator(made, numbers, left_type=Record, right_type=Record),
            Mode.STRAIGHT,
            parallelism=3,
            subtask=subtask,
        )
        step.restore(snapshot)
        step.watermark(MAX_TIMESTAMP)
        assert 0 < len(step.values) < len(keys)
        grouped += [(w.key, w.value) for w in step.values]

    assert sorted(grouped) == sorted((key, ([1], [2])) for key in keys)


# -------------------------------------------------------------------------------------- properties


assigners = st.sampled_from([TumblingWindows(10), SlidingWindows(12, 4), SlidingWindows(4, 10)])


@given(
    history=histories(),
    assigner=assigners,
    kind=st.sampled_from(Join),
    mode=st.sampled_from(Mode),
)
def test_any_order_without_late_records_has_the_pairs_of_each_window(
    history: list[Step],
    assigner: TumblingWindows | SlidingWindows,
    kind: Join,
    mode: Mode,
) -> None:
    step = window_join(kind, mode, assigner=assigner)

    play(step, history)

    found = [(one.timestamp, one.value) for one in records(step)]
    assert sorted(found, key=repr) == sorted(expected(history, assigner, kind), key=repr)
    assert step.size.entries == 0


def expected(
    history: list[Step], assigner: TumblingWindows | SlidingWindows, kind: Join
) -> list[tuple[int, tuple[int | None, int | None]]]:
    """Return the pairs of all windows."""
    groups: dict[tuple[str, TimeWindow], tuple[list[Record], list[Record]]] = {}
    for place, some in enumerate((lefts(history), rights(history))):
        for one in some:
            for window in assigner.assign(one, one.at):
                groups.setdefault((one.key, window), ([], []))[place].append(one)
    found: list[tuple[int, tuple[int | None, int | None]]] = []
    for (_, window), (ones, others) in groups.items():
        pairs: list[tuple[Record | None, Record | None]]
        if ones and others:
            pairs = [(one, other) for one in ones for other in others]
        elif ones:
            pairs = [(one, None) for one in ones] if kind.keeps_left else []
        else:
            pairs = [(None, other) for other in others] if kind.keeps_right else []
        found += [(window.max_timestamp, pair(*both)) for both in pairs]
    return found


def test_stored_bytes_without_two_lists_are_refused() -> None:
    contents = TwoListContents([Many(state_codec(int)), Many(state_codec(int))])

    with pytest.raises(CodecError, match="stored bytes are not records of two inputs"):
        contents.decode(PLAIN.encode([b""]))
