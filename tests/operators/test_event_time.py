"""Timestamps, watermarks and idleness as ``event_time`` makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from aflow.errors import OperatorError
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    FromSource,
    Periodic,
    Punctuated,
    WatermarkGenerator,
)
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.handover import newest_stored
from aflow.operators.time_strategy import PERIOD, TimeStrategy
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.testing import At, Mode, OperatorHarness

Output = list[At[int] | Watermark | Idle | Active]

every_way = pytest.mark.parametrize("mode", Mode)


def bounded(
    mode: Mode = Mode.STRAIGHT, *, delay: int = 0, idle_after: int | None = None
) -> OperatorHarness[int, int]:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(delay), idle_after)
    return OperatorHarness(lambda: EventTimeOperator(lambda n: n, strategy), mode=mode)


def spoken(generator: WatermarkGenerator[int]) -> OperatorHarness[int, int]:
    return OperatorHarness(lambda: EventTimeOperator(lambda n: n, TimeStrategy(lambda: generator)))


def records(*numbers: int) -> Output:
    return [At(number, number) for number in numbers]


def news(step: OperatorHarness[int, int]) -> Output:
    """Return the output without repeated watermarks: a restored step sends its watermark to restored readers."""
    told: Output = []
    last: Watermark | None = None
    for element in step.output:
        if not (isinstance(element, Watermark) and element == last):
            told.append(element)
        if isinstance(element, Watermark):
            last = element
    return told


@every_way
def test_a_batch_in_order_is_emitted_whole_followed_by_the_watermark(mode: Mode) -> None:
    step = bounded(mode, delay=5)

    step.push_batch([10, 12, 11])

    assert news(step) == [*records(10, 12, 11), Watermark(6)]


@every_way
def test_a_batch_is_cut_before_a_record_earlier_than_the_watermark(mode: Mode) -> None:
    step = bounded(mode, delay=5)

    step.push_batch([10, 20, 14, 13, 21])

    assert news(step) == [
        *records(10, 20),
        Watermark(14),
        *records(14, 13, 21),
        Watermark(15),
    ]


@every_way
def test_a_batch_is_cut_where_the_watermark_passes_a_multiple_of_a_period_downstream(
    mode: Mode,
) -> None:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(5))

    def make() -> EventTimeOperator:
        operator = EventTimeOperator(lambda n: n, strategy)
        operator.periods = (10, 25)
        return operator

    step = OperatorHarness[int, int](make, mode=mode)

    step.push_batch([7, 9, 17, 18, 33, 32])

    assert news(step) == [
        *records(7),
        Watermark(1),  # the first one passes multiples without number
        *records(9, 17),
        Watermark(11),
        *records(18, 33),
        Watermark(27),
        *records(32),
    ]


@every_way
def test_watermarks_never_decrease_and_are_not_repeated(mode: Mode) -> None:
    step = bounded(mode)

    step.push(10)
    step.push(5)
    step.push(10)

    assert news(step) == [*records(10), Watermark(9), *records(5, 10)]


def test_only_the_end_of_time_is_passed_on_of_input_watermarks() -> None:
    step = bounded()

    step.watermark(100)
    step.push(7)
    step.watermark(MAX_TIMESTAMP)

    assert news(step) == [*records(7), Watermark(6), Watermark(MAX_TIMESTAMP)]


def test_datetimes_become_epoch_milliseconds() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    step: OperatorHarness[datetime, datetime] = OperatorHarness(
        lambda: EventTimeOperator(lambda d: d, TimeStrategy(lambda: BoundedOutOfOrderness(0)))
    )

    step.push(at)

    assert step.output[0] == At(at, 1_767_225_600_000)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize("wrong", [1.5, None, "2026-01-01", NAIVE, 10**30, -(10**30)])
def test_an_invalid_timestamp_is_refused_with_the_record(wrong: object) -> None:
    step: OperatorHarness[int, int] = OperatorHarness(
        lambda: EventTimeOperator(
            lambda n: wrong if n == 2 else n,  # type: ignore[arg-type, return-value]
            TimeStrategy(lambda: BoundedOutOfOrderness(0)),
        )
    )

    with pytest.raises(OperatorError, match="event time") as info:
        step.push_batch([1, 2, 3])

    assert info.value.record == 2


def test_without_a_function_the_timestamps_of_the_records_are_used() -> None:
    step: OperatorHarness[str, str] = OperatorHarness(
        lambda: EventTimeOperator(None, TimeStrategy(lambda: BoundedOutOfOrderness(0)))
    )

    step.push("a", 5)

    assert step.output == [At("a", 5), Watermark(4)]
    with pytest.raises(OperatorError, match="no timestamps"):
        step.push("b")


def test_a_punctuated_generator_emits_directly_after_its_record() -> None:
    step = spoken(Punctuated(lambda n, at: at if n % 2 else None))

    step.push_batch([2, 3, 4, 5, 6])

    assert step.output == [
        *records(2, 3),
        Watermark(3),
        *records(4, 5),
        Watermark(5),
        *records(6),
    ]


def test_a_periodic_generator_emits_when_it_is_polled() -> None:
    step = spoken(Periodic(lambda newest: newest - 1))

    step.push_batch([10, 20])
    before = list(step.output)
    step.advance_processing_time(timedelta(milliseconds=PERIOD))

    assert before == records(10, 20)
    assert step.output == [*records(10, 20), Watermark(19)]


def test_a_stream_without_records_for_long_enough_is_idle_until_the_next() -> None:
    step = bounded(idle_after=100)

    step.push(10)
    step.advance_processing_time(timedelta(milliseconds=100))
    step.advance_processing_time(timedelta(milliseconds=1))
    step.push(11)

    assert step.output == [*records(10), Watermark(9), IDLE, ACTIVE, *records(11), Watermark(10)]


def test_time_spent_blocked_is_not_idle_time() -> None:
    step = bounded(idle_after=100)
    step.push(10)

    step.operator.on_backpressure(True, 50)
    step.advance_processing_time(1000)
    step.operator.on_backpressure(False, 1000)
    step.advance_processing_time(1050)
    calm = IDLE in step.output
    step.advance_processing_time(1051)

    assert (calm, step.output[-1]) == (False, IDLE)


def test_a_stream_whose_records_wait_to_be_processed_is_not_idle() -> None:
    step = bounded(idle_after=100)
    waiting = {""}
    step.operator.context = replace(step.operator.context, has_queued=waiting.__contains__)
    step.push(10)

    step.advance_processing_time(500)
    while_queued = list(step.output)
    waiting.clear()
    step.advance_processing_time(1000)

    assert IDLE not in while_queued
    assert step.output[-1] == IDLE


def test_the_slowest_split_holds_the_watermark() -> None:
    step = bounded()
    operator = step.operator
    for split in ("a", "b"):
        operator.on_split_start(split)

    operator.on_split("a")
    step.push(100)
    operator.on_split("b")
    step.push(10)
    operator.on_split("a")
    step.push(200)

    assert [e for e in step.output if isinstance(e, Watermark)] == [Watermark(9)]


def test_a_split_that_ends_or_was_empty_does_not_hold_the_watermark() -> None:
    step = bounded()
    operator = step.operator
    for split in ("a", "empty", "short"):
        operator.on_split_start(split)
    operator.on_split_end("empty")
    operator.on_split("short")
    step.push(10)
    operator.on_split("a")
    step.push(100)

    operator.on_split_end("short")

    assert [e for e in step.output if isinstance(e, Watermark)] == [Watermark(9), Watermark(99)]


def test_an_idle_split_does_not_hold_the_watermark_until_it_is_active_again() -> None:
    step = bounded(idle_after=100)
    operator = step.operator
    for split in ("quiet", "busy"):
        operator.on_split_start(split)
    step.advance_processing_time(60)
    operator.on_split("busy")
    step.push(10)
    step.advance_processing_time(101)
    after_idle = step.output[-1]
    operator.on_split("quiet")
    step.push(20)
    operator.on_split("busy")
    step.push(50)

    assert after_idle == Watermark(9)
    assert step.output[-1] == Watermark(19)


def test_a_record_is_late_only_for_the_watermark_of_all_splits() -> None:
    step = bounded()
    operator = step.operator
    for split in ("a", "b"):
        operator.on_split_start(split)
    operator.on_split("b")
    step.push(15)

    operator.on_split("a")
    step.push_batch([100, 10, 101, 12])

    assert step.output == [
        *records(15),
        *records(100),
        Watermark(14),
        *records(10, 101, 12),
    ]


def test_a_restored_step_continues_at_the_watermark_of_each_split() -> None:
    before = bounded()
    before.operator.on_split_start("a")
    before.operator.on_split("a")
    before.push(100)
    snapshot = before.snapshot()
    assert snapshot is not None

    after = bounded()
    after.restore(snapshot)
    after.operator.on_split_start("a")
    after.operator.on_split("a")
    after.push_batch([50, 101])

    assert after.output == [Watermark(99), *records(50, 101), Watermark(100)]


def test_a_condition_in_place_of_a_moment_is_refused() -> None:
    step: OperatorHarness[int, int] = OperatorHarness(
        lambda: EventTimeOperator(lambda n: n > 1, TimeStrategy(lambda: BoundedOutOfOrderness(0)))
    )

    with pytest.raises(OperatorError, match=r"event time must be .*, not bool: False") as info:
        step.push_batch([1, 2, 3])

    assert info.value.record == 1


@pytest.mark.parametrize("beyond", [MIN_TIMESTAMP - 1, MAX_TIMESTAMP + 1])
def test_a_timestamp_beyond_time_is_refused_whatever_the_generator(beyond: int) -> None:
    for generator in (BoundedOutOfOrderness(0), Punctuated[int](lambda _, at: at)):
        step = spoken(generator)
        step.push(7)

        with pytest.raises(OperatorError, match=r"event time .* is outside of") as info:
            step.push_batch([8, beyond, 9])

        assert info.value.record == beyond


class Heartbeat:
    """Emits the timestamp of each record, and a second more at each poll."""

    def __init__(self) -> None:
        self.at = 0

    def on_event(self, value: int, timestamp: int) -> int | None:
        return None

    def on_periodic(self) -> int:
        self.at += 1_000
        return self.at


def test_a_generator_may_advance_without_records() -> None:
    step = spoken(Heartbeat())
    step.push(10)

    step.advance_processing_time(timedelta(milliseconds=2 * PERIOD))
    step.push_batch([1_500, 2_500])

    assert step.output == [
        *records(10),
        Watermark(1_000),
        Watermark(2_000),
        *records(1_500, 2_500),
    ]


def test_a_watermark_beyond_its_record_counts_from_the_next_record() -> None:
    step = spoken(Punctuated(lambda n, at: 1_000 if n == 7 else None))

    step.push_batch([7, 500, 1_200])

    assert step.output == [*records(7), Watermark(1_000), *records(500, 1_200)]


GENERATORS: list[Callable[[], WatermarkGenerator[int]]] = [
    Heartbeat,
    lambda: Periodic(lambda newest: newest - 1),
    lambda: Punctuated[int](lambda _, at: at - 1),
]


@pytest.mark.parametrize("generator", GENERATORS, ids=["custom", "periodic", "punctuated"])
def test_each_split_has_a_generator_of_its_own_and_the_slowest_counts(
    generator: Callable[[], WatermarkGenerator[int]],
) -> None:
    made: list[WatermarkGenerator[int]] = []

    def make() -> WatermarkGenerator[int]:
        made.append(generator())
        return made[-1]

    step: OperatorHarness[int, int] = OperatorHarness(
        lambda: EventTimeOperator(lambda n: n, TimeStrategy(make))
    )
    made.clear()  # the one that was made to check its class
    for split in ("a", "b"):
        step.operator.on_split_start(split)
    step.operator.on_split("a")
    step.push(5_000)
    step.operator.on_split("b")
    step.push(3_000)
    step.advance_processing_time(timedelta(milliseconds=PERIOD))

    assert len(made) == 2
    slowest = 1_000 if isinstance(made[0], Heartbeat) else 2_999
    assert step.output == [*records(5_000, 3_000), Watermark(slowest)]


class Silent:
    """A generator that raises when it is called."""

    def on_event(self, value: int, timestamp: int) -> int | None:
        return None

    def on_periodic(self) -> int | None:
        raise RuntimeError("no idea")


def test_an_error_of_a_generator_is_an_error_of_its_step() -> None:
    step = spoken(Silent())
    step.push(1)

    with pytest.raises(OperatorError, match="failed: RuntimeError: no idea") as info:
        step.advance_processing_time(timedelta(milliseconds=PERIOD))

    assert info.value.operator == step.operator.name


def test_a_generator_that_cannot_be_made_is_a_failure_of_its_step() -> None:
    def unable() -> WatermarkGenerator[int]:
        raise LookupError("no generator")

    with pytest.raises(OperatorError, match="failed: LookupError: no generator"):
        OperatorHarness[int, int](lambda: EventTimeOperator(lambda n: n, TimeStrategy(unable)))


@pytest.mark.parametrize("order", [1, -1])
def test_two_mixed_streams_that_become_one_continue_at_the_slower_watermark(order: int) -> None:
    after = bounded()
    after.restore(*two_mixed_streams()[::order])
    after.push(60)

    assert news(after) == [Watermark(49), *records(60), Watermark(59)]


@pytest.mark.parametrize(("subtask", "watermark"), [(0, 99), (1, 49)])
def test_a_mixed_stream_continues_where_it_was_with_the_same_parallelism(
    subtask: int, watermark: int
) -> None:
    after = one_of(2, subtask)
    after.restore(*two_mixed_streams())
    after.push(200)

    assert news(after) == [Watermark(watermark), *records(200), Watermark(199)]


def test_splits_wait_for_each_other_and_for_records_in_flight_of_the_former_mixed_stream() -> None:
    """Restore a job with an exchange upstream of the step in one in which the step reads the source."""
    split, mixed = bounded(), bounded()
    for name, newest in {"a": 100, "b": 50}.items():
        split.operator.on_split_start(name)
        split.operator.on_split(name)
        split.push(newest)
    mixed.push(10)
    after = bounded()
    after.restore(*(one.snapshot() or OperatorSnapshot() for one in (split, mixed)))

    for name in ("a", "b"):
        after.operator.on_split_start(name)
    after.push(12)  # was in flight
    after.operator.on_split("a")
    after.push(110)
    after.operator.on_split("b")
    after.push(60)

    assert news(after) == [
        Watermark(9),
        *records(12),
        Watermark(11),
        Watermark(49),
        *records(110, 60),
        Watermark(59),
    ]


def two_mixed_streams() -> list[OperatorSnapshot]:
    """Return the snapshots of two subtasks with the watermarks 100 and 50."""
    written: list[OperatorSnapshot] = []
    for subtask, newest in enumerate((100, 50)):
        step = one_of(2, subtask)
        step.push(newest)
        written.append(step.snapshot() or OperatorSnapshot())
    return written


def one_of(parallelism: int, subtask: int) -> OperatorHarness[int, int]:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(0))
    return OperatorHarness(
        lambda: EventTimeOperator(lambda n: n, strategy), parallelism=parallelism, subtask=subtask
    )


def test_every_subtask_finds_the_watermarks_of_its_splits_in_those_of_all() -> None:
    written: list[OperatorSnapshot] = []
    for subtask, (split, newest) in enumerate({"a": 100, "b": 50}.items()):
        before = one_of(2, subtask)
        before.operator.on_split_start(split)
        before.operator.on_split(split)
        before.push(newest)
        written.append(before.snapshot() or OperatorSnapshot())

    came_out: list[Output] = []
    for subtask, split in enumerate("ba"):
        after = one_of(2, subtask)
        after.restore(*written)
        after.operator.on_split_start(split)
        after.operator.on_split(split)
        after.push(200)
        came_out.append(after.output)

    assert came_out == [
        [Watermark(49), *records(200), Watermark(199)],
        [Watermark(99), *records(200), Watermark(199)],
    ]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_restored_splits_emit_no_watermark_before_all_have_started_and_then_the_smallest(
    order: str,
) -> None:
    before = bounded()
    for split, newest in (("a", 100), ("b", 50)):
        before.operator.on_split_start(split)
        before.operator.on_split(split)
        before.push(newest)

    after = bounded()
    after.restore(before.snapshot() or OperatorSnapshot())
    for split in order:
        after.operator.on_split_start(split)
    told = after.take()
    after.operator.on_split("b")
    after.push(60)

    assert told == []
    assert after.take() == [Watermark(49), *records(60), Watermark(59)]


def test_a_restored_split_without_records_emits_its_watermark_and_is_idle() -> None:
    before = on_split("a")
    before.push(100)

    after = bounded(idle_after=1_000)
    after.restore(before.snapshot() or OperatorSnapshot())
    after.operator.on_split_start("a")
    after.advance_processing_time(1_001)

    assert after.output == [Watermark(99), IDLE]


@pytest.mark.parametrize("order", [1, -1])
def test_the_later_watermark_of_a_split_in_two_snapshots_counts(order: int) -> None:
    parts: list[OperatorSnapshot] = []
    for newest in (100, 50):
        before = on_split("a")
        before.push(newest)
        parts.append(before.operator.snapshot() or OperatorSnapshot())

    after = bounded()
    after.restore(merge(parts[::order]))
    after.operator.on_split_start("a")
    after.operator.on_split("a")
    after.push(60)

    assert news(after) == [Watermark(99), *records(60)]


def test_a_split_of_another_subtask_is_written_until_an_own_one_begins() -> None:
    first, second = on_split("a"), on_split("b")
    first.push(10)
    second.push(20)
    both = merge([one.operator.snapshot() or OperatorSnapshot() for one in (first, second)])

    after = bounded()
    after.restore(both)
    not_begun = after.operator.snapshot()
    after.operator.on_split_start("a")

    assert watermarks_in(not_begun) == watermarks_in(both)
    assert watermarks_in(after.operator.snapshot()) == watermarks_in(first.operator.snapshot())


def watermarks_in(snapshot: OperatorSnapshot | None) -> tuple[bytes, ...]:
    assert snapshot is not None
    return snapshot.operator["watermarks"]


def test_the_newest_timestamp_is_stored_also_of_splits_that_have_ended_and_of_records_out_of_order() -> (
    None
):
    step = on_split("a")
    step.push(70, 60)
    step.operator.on_split_end("a")
    step.operator.on_split_start("b")
    step.operator.on_split("b")
    step.push(50)
    stored = step.operator.snapshot() or OperatorSnapshot()

    after = bounded()
    after.restore(merge([stored, bounded().operator.snapshot() or OperatorSnapshot()]))

    assert newest_stored(stored, "times") == 70
    assert newest_stored(after.operator.snapshot() or OperatorSnapshot(), "times") == 70


def on_split(split: str) -> OperatorHarness[int, int]:
    step = bounded()
    step.operator.on_split_start(split)
    step.operator.on_split(split)
    return step


def given(mode: Mode = Mode.STRAIGHT) -> OperatorHarness[int, int]:
    strategy = TimeStrategy(FromSource, from_source=True)
    return OperatorHarness(lambda: EventTimeOperator(lambda n: n, strategy), mode=mode)


def test_a_split_that_its_source_has_called_idle_is_idle_after_a_restore() -> None:
    step = given()
    for split in ("a", "b"):
        step.operator.on_split_start(split)
    step.operator.on_split_watermark("a", 5)
    step.operator.on_split_watermark("b", 9)
    step.operator.on_split_idle("a")
    snapshot = step.operator.snapshot()
    assert snapshot is not None

    restored = given()
    restored.operator.restore(snapshot)
    for split in ("a", "b"):
        restored.operator.on_split_start(split)
    restored.operator.on_start()
    restored.operator.on_split_watermark("b", 20)

    assert step.output == [Watermark(5), Watermark(9)]
    assert restored.output == [Watermark(9), Watermark(20)]


def test_of_two_stored_parts_of_an_idle_split_the_one_of_its_reader_counts() -> None:
    def part(*, idle: bool, watermark: int) -> OperatorSnapshot:
        step = given()
        step.operator.on_split_start("a")
        step.operator.on_split_watermark("a", watermark)
        if idle:
            step.operator.on_split_idle("a")
        taken = step.operator.snapshot()
        assert taken is not None
        return taken

    def idle_after(*parts: OperatorSnapshot) -> bool:
        step = given()
        step.operator.restore(merge(parts))
        step.operator.on_split_start("a")
        step.operator.on_start()
        return IDLE in step.output

    # A subtask that reads no split stores the restored watermarks, without idleness.
    copier = given()
    copier.operator.restore(part(idle=True, watermark=5))
    copy = copier.operator.snapshot()
    assert copy is not None
    assert not idle_after(copy)
    assert not idle_after(copy, part(idle=False, watermark=5))
    assert idle_after(part(idle=True, watermark=5), copy)
    assert idle_after(copy, part(idle=True, watermark=7))
    assert not idle_after(part(idle=True, watermark=5), part(idle=False, watermark=7))


def test_an_idle_split_whose_next_records_have_arrived_stays_active() -> None:
    step = given()
    step.operator.on_split_start("a")
    step.operator.context = replace(step.operator.context, has_queued={"a"}.__contains__)

    step.operator.on_split_idle("a")

    assert step.output == []
