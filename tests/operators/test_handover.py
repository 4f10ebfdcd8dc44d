"""``event_time`` in a job after a backfill: it begins at the time T of its state."""

from __future__ import annotations

import pytest

from aflow.errors import OperatorError, RestoreError
from aflow.machines.watermarks.generators import BoundedOutOfOrderness, Punctuated
from aflow.model.codecs import PLAIN
from aflow.model.elements import IDLE, Active, Idle, Watermark
from aflow.model.tags import Tag
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.handover import BEGINS, SKIPPED, begins_at
from aflow.operators.time_strategy import TimeStrategy
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.testing import At, Mode, OperatorHarness

T = 100

#: The greatest watermark before a record at T; the next one follows the record.
BEFORE = Watermark(T - 2)

Output = list[At[int] | Watermark | Idle | Active]
Step = OperatorHarness[int, int]

every_way = pytest.mark.parametrize("mode", Mode)

#: State of the step after a backfill.
LEFT = OperatorSnapshot(operator={BEGINS: begins_at(T)})


def new_step(
    mode: Mode = Mode.STRAIGHT,
    *,
    delay: int = 0,
    idle_after: int | None = None,
    subtask: int = 0,
    parallelism: int = 1,
) -> Step:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(delay), idle_after)
    return OperatorHarness(
        lambda: EventTimeOperator(lambda n: n, strategy),
        mode=mode,
        subtask=subtask,
        parallelism=parallelism,
    )


def begun(
    mode: Mode = Mode.STRAIGHT,
    *,
    delay: int = 0,
    idle_after: int | None = None,
    splits: str = "",
) -> Step:
    """A step that was restored from ``LEFT``, with the splits that it reads."""
    step = new_step(mode, delay=delay, idle_after=idle_after)
    step.restore(LEFT)
    for split in splits:
        step.operator.on_split_start(split)
    return step


def push(step: Step, split: str, *numbers: int) -> None:
    step.operator.on_split(split)
    step.push_batch(numbers)


def records(*numbers: int) -> Output:
    return [At(number, number) for number in numbers]


def taken(step: Step) -> list[int]:
    return [one.value for one in step.output if isinstance(one, At)]


def skipped(step: Step) -> list[int]:
    return [one.value for one in step.side(Tag[int](SKIPPED))]


def left_by(step: Step) -> OperatorSnapshot:
    snapshot = step.operator.snapshot()
    assert snapshot is not None
    return snapshot


@every_way
def test_records_before_t_are_skipped_and_counted_and_those_from_t_on_are_taken(mode: Mode) -> None:
    step = begun(mode)

    step.push_batch([50, 99, 100, 98, 101])
    step.push_batch([10, 20])
    step.push_batch([102, 103])

    assert (taken(step), skipped(step)) == ([100, 101, 102, 103], [50, 99, 98, 10, 20])


def test_a_mixed_stream_begins_at_the_watermark_before_t() -> None:
    step = begun()

    step.push(110)

    assert step.output == [BEFORE, *records(110), Watermark(109)]


def test_while_only_skipped_records_arrive_the_watermark_is_before_t() -> None:
    step = begun(delay=5)

    step.push_batch([1, 2, 3])
    step.push(99)

    assert step.output == [BEFORE]


def test_a_record_from_t_on_is_not_late_for_coming_first() -> None:
    step = begun(delay=5)

    step.push_batch([104, 100, 101])

    assert step.output == [BEFORE, *records(104, 100, 101)]


def test_every_split_begins_at_the_watermark_before_t_and_the_slowest_counts() -> None:
    step = begun(splits="ab")

    push(step, "a", 150)
    after_one = step.take()
    push(step, "b", 30, 120)

    assert after_one == [BEFORE, *records(150)]
    assert step.take() == [*records(120), Watermark(119)]


def test_a_split_that_is_found_later_holds_the_watermark_until_it_has_caught_up() -> None:
    step = begun(splits="a")

    push(step, "a", 150)
    step.operator.on_split_start("b")
    push(step, "a", 160)
    push(step, "b", 60)
    while_behind = step.take()
    push(step, "b", 155)

    assert while_behind == [BEFORE, *records(150), Watermark(149), *records(160)]
    assert step.take() == [*records(155), Watermark(154)]


def test_a_split_that_ends_before_t_does_not_hold_the_watermark() -> None:
    step = begun(splits="ab")

    push(step, "a", 30)
    push(step, "b", 130)
    step.operator.on_split_end("a")

    assert step.output == [BEFORE, *records(130), Watermark(129)]


def test_it_begins_at_t_also_after_the_end_of_all_its_splits() -> None:
    step = begun(splits="a")
    push(step, "a", 130)
    step.operator.on_split_end("a")

    after = new_step()
    after.restore(left_by(step))
    after.operator.on_split_start("b")
    push(after, "b", 99, 140)

    assert taken(after) == [140]


@pytest.mark.parametrize("push_first", [True, False])
def test_a_restart_before_and_after_the_first_record_begins_at_t_again(push_first: bool) -> None:
    step = begun(splits="a")
    if push_first:
        push(step, "a", 130)

    after = new_step()
    after.restore(left_by(step))
    after.operator.on_split_start("a")
    push(after, "a", 99, 140)

    came_to = 129 if push_first else T - 2
    assert after.output == [Watermark(came_to), *records(140), Watermark(139)]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 2), (3, 2)])
def test_any_number_of_subtasks_begins_where_any_other_number_was(before: int, after: int) -> None:
    firsts = [new_step(subtask=n, parallelism=before) for n in range(before)]
    for number, step in enumerate(firsts):
        step.restore(LEFT)
        step.operator.on_split_start(f"split {number}")
        push(step, f"split {number}", 90, 110 + number)

    left = merge([left_by(step) for step in firsts])
    seconds = [new_step(subtask=n, parallelism=after) for n in range(after)]
    for number, step in enumerate(seconds):
        step.restore(left)
        step.operator.on_split_start(f"new {number}")
        push(step, f"new {number}", 99, 120)

    expected = [BEFORE, *records(120), Watermark(119)]
    assert [step.output for step in seconds] == [expected] * after


def test_a_mixed_stream_continues_where_it_was_and_skips_records_before_t() -> None:
    step = begun()
    step.push(130)

    after = new_step()
    after.restore(left_by(step))
    after.push_batch([99, 140])

    assert after.output == [Watermark(129), *records(140), Watermark(139)]


def test_the_state_has_one_copy_for_each_subtask_however_often_it_is_restored() -> None:
    left = LEFT
    for _ in range(3):
        steps = [new_step(subtask=n, parallelism=2) for n in range(2)]
        for step in steps:
            step.restore(left)
        left = merge([left_by(step) for step in steps])

    assert left.operator[BEGINS] == begins_at(T) * 2


def test_a_split_with_only_skipped_records_is_not_idle() -> None:
    step = begun(idle_after=1_000, splits="a")

    for number in range(5):
        step.advance_processing_time(600)
        push(step, "a", number)

    assert IDLE not in step.output


def test_a_split_without_records_emits_the_watermark_before_t_and_is_idle() -> None:
    step = begun(idle_after=1_000, splits="a")

    step.advance_processing_time(1_001)

    assert step.output == [BEFORE, IDLE]


def test_a_generator_of_the_user_gets_records_from_t_on_only() -> None:
    seen: list[int] = []

    def watermark_of(value: int, timestamp: int) -> int:
        seen.append(value)
        return timestamp

    strategy = TimeStrategy(lambda: Punctuated(watermark_of))
    step: Step = OperatorHarness(lambda: EventTimeOperator(lambda n: n, strategy))
    step.restore(LEFT)
    step.push_batch([50, 120, 99, 130])

    assert seen == [120, 130]
    assert step.output == [
        BEFORE,
        *records(120),
        Watermark(120),
        *records(130),
        Watermark(130),
    ]


def test_timestamps_of_the_source_count_as_well() -> None:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(0))
    step: Step = OperatorHarness(lambda: EventTimeOperator(None, strategy))
    step.restore(LEFT)

    step.push_batch([1, 2, 3], [99, 100, 98])

    assert (taken(step), skipped(step)) == ([2], [1, 3])


def test_a_timestamp_that_is_none_is_an_error_and_is_not_skipped() -> None:
    step = begun()

    with pytest.raises(OperatorError, match="outside of the 64 bits"):
        step.push_batch([-(10**30)])


def test_a_step_without_a_start_time_stores_no_such_state() -> None:
    step = new_step()

    step.push(1)

    assert BEGINS not in left_by(step).operator


def test_a_state_that_names_no_moment_is_refused() -> None:
    wrong = OperatorSnapshot(operator={BEGINS: (PLAIN.encode("July"),)})

    with pytest.raises(RestoreError, match="'July' is not a timestamp to begin at"):
        new_step().restore(wrong)
