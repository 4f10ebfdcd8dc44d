"""Event time of streams that fall silent: ``event_time(advance_when_idle=True)``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from aflow.machines.watermarks.generators import BoundedOutOfOrderness
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.time_strategy import PERIOD, TimeStrategy
from aflow.testing import At, OperatorHarness


def silent() -> OperatorHarness[int, int]:
    strategy = TimeStrategy(lambda: BoundedOutOfOrderness(0), 100, advance_when_idle=True)
    return OperatorHarness(lambda: EventTimeOperator(lambda n: n, strategy))


def records(*numbers: int) -> list[At[int] | Watermark | Idle | Active]:
    return [At(number, number) for number in numbers]


def test_event_time_of_a_silent_stream_advances_with_the_clock() -> None:
    step = silent()
    step.push(10)

    step.advance_processing_time(timedelta(milliseconds=101))
    idle_at = step.output[-1]
    step.advance_processing_time(timedelta(milliseconds=PERIOD))
    step.advance_processing_time(timedelta(milliseconds=PERIOD))
    in_silence = step.output[2:]
    step.push(200)
    step.push(500)

    assert idle_at == IDLE
    first, second = Watermark(9 + PERIOD), Watermark(9 + 2 * PERIOD)
    assert in_silence == [IDLE, ACTIVE, first, IDLE, ACTIVE, second, IDLE]
    # The record of 200 is late: it has arrived after watermark 409.
    assert step.output[-4:] == [ACTIVE, *records(200), *records(500), Watermark(499)]


def test_a_silent_stream_without_a_watermark_does_not_advance() -> None:
    step = silent()
    step.operator.on_split_start("a")

    step.advance_processing_time(10_000)

    assert step.output == [IDLE]


def test_one_silent_split_beside_another_does_not_advance() -> None:
    step = silent()
    for split in ("a", "b"):
        step.operator.on_split_start(split)
    for split in ("a", "b"):
        step.operator.on_split(split)
        step.push(10)

    step.advance_processing_time(60)
    step.push(20)
    step.advance_processing_time(150)

    assert step.output == [*records(10, 10), Watermark(9), *records(20), Watermark(19)]


def test_a_restored_stream_does_not_go_back_behind_a_watermark_of_the_clock() -> None:
    step = silent()
    step.operator.on_split_start("a")
    step.operator.on_split("a")
    step.push(10)
    step.advance_processing_time(101)
    step.advance_processing_time(101 + PERIOD)
    snapshot = step.operator.snapshot()
    assert snapshot is not None

    again = silent()
    again.operator.restore(snapshot)
    again.operator.on_split_start("a")
    again.operator.on_start()
    restored = list(again.output)
    again.advance_processing_time(101)
    again.advance_processing_time(101 + PERIOD)

    assert restored == [Watermark(9 + PERIOD)]
    assert again.output[-2] == Watermark(9 + 2 * PERIOD)


def test_time_in_which_records_wait_is_not_silent() -> None:
    step = silent()
    waiting = set[str]()
    step.operator.context = replace(step.operator.context, has_queued=waiting.__contains__)
    step.push(10)
    step.advance_processing_time(101)

    waiting.add("")
    step.advance_processing_time(101 + 3 * PERIOD)
    while_waiting = step.output[-1]
    waiting.clear()
    step.advance_processing_time(101 + 4 * PERIOD)

    assert while_waiting == IDLE
    assert step.output[-2] == Watermark(9 + PERIOD)


def test_records_that_have_waited_do_not_make_a_stream_silent() -> None:
    step = silent()
    waiting = {""}
    step.operator.context = replace(step.operator.context, has_queued=waiting.__contains__)
    step.push(10)

    step.advance_processing_time(101)
    waiting.clear()
    for at in range(150, 1_000, 50):
        step.advance_processing_time(at)
        step.push(10)

    assert IDLE not in step.output
    assert step.output[1] == Watermark(9)
    assert len(step.output) == 19
