"""Records stamped with the moment of their arrival."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN
from aflow.model.elements import ACTIVE, IDLE, Watermark
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.ingestion_time import IngestionTimeOperator
from aflow.operators.time_strategy import PERIOD
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At, Mode, OperatorHarness

START = 1_357_000_000_000

every_way = pytest.mark.parametrize("mode", Mode)


def arrivals(mode: Mode = Mode.STRAIGHT, *, start: int = START) -> OperatorHarness[str, str]:
    return OperatorHarness(IngestionTimeOperator, mode=mode, start=start)


class Clock:
    """A clock with a settable time."""

    def __init__(self, at: int) -> None:
        self.at = at

    def now(self) -> int:
        return self.at


@every_way
def test_a_record_has_the_time_of_its_arrival_and_the_watermark_follows(
    mode: Mode,
) -> None:
    step = arrivals(mode)

    step.push_batch(["a", "b"])
    step.advance_processing_time(timedelta(milliseconds=3))
    step.push("c")

    assert step.output == [
        At("a", START),
        At("b", START),
        Watermark(START - 1),
        At("c", START + 3),
        Watermark(START + 2),
    ]


@every_way
def test_timestamps_of_the_source_are_replaced(mode: Mode) -> None:
    step = arrivals(mode)

    step.push("a", 7)

    assert step.output == [At("a", START), Watermark(START - 1)]


@every_way
def test_time_advances_without_records(mode: Mode) -> None:
    step = arrivals(mode)

    step.push("a")
    step.take()
    step.advance_processing_time(timedelta(milliseconds=2 * PERIOD))

    assert step.take() == [Watermark(START + PERIOD - 1), Watermark(START + 2 * PERIOD - 1)]


def test_records_of_one_millisecond_are_none_of_them_late() -> None:
    step = arrivals()

    step.push("a")
    step.push("b")

    assert step.output == [At("a", START), Watermark(START - 1), At("b", START)]


def test_timestamps_do_not_decrease_when_the_clock_does() -> None:
    step, clock = arrivals(), Clock(START)
    step.operator.context = replace(step.operator.context, clock=clock)

    step.push("a")
    clock.at = START - 10_000
    step.push("b")
    step.operator.on_processing_time(clock.at)
    clock.at = START + 1
    step.push("c")

    assert step.output == [
        At("a", START),
        Watermark(START - 1),
        At("b", START),
        At("c", START + 1),
        Watermark(START),
    ]


def test_a_clock_that_is_set_back_makes_no_record_late() -> None:
    step, clock = arrivals(), Clock(START)
    step.operator.context = replace(step.operator.context, clock=clock)

    step.operator.on_processing_time(START)
    clock.at = START - 10_000
    step.push("a")

    assert step.output == [Watermark(START - 1), At("a", START)]


def test_idleness_passes_through_and_no_watermark_is_sent_meanwhile() -> None:
    step = arrivals()

    step.idle()
    step.advance_processing_time(timedelta(seconds=10))
    step.active()
    step.advance_processing_time(timedelta(milliseconds=PERIOD))

    assert step.output == [IDLE, ACTIVE, Watermark(START + 10_000 + PERIOD - 1)]


@every_way
def test_only_the_end_of_time_is_passed_on_of_input_watermarks(mode: Mode) -> None:
    step = arrivals(mode)

    step.watermark(100)
    step.end()

    assert step.output == [Watermark(MAX_TIMESTAMP)]


def test_the_watermark_of_a_restored_step_is_not_before_that_of_any_former_subtask() -> None:
    slow, fast = arrivals(), arrivals(start=START + 5_000)
    slow.push("a")
    fast.push("b")
    parts = [one.snapshot() or OperatorSnapshot() for one in (slow, fast)]

    after = arrivals(start=START + 1_000)
    after.restore(*parts)
    after.push("c")

    assert after.output == [At("c", START + 5_000), Watermark(START + 4_999)]


def test_a_part_that_is_no_timestamp_is_refused() -> None:
    wrong = OperatorSnapshot(operator={"newest": (PLAIN.encode("noon"),)})

    with pytest.raises(RestoreError, match="step 'step': 'noon' is not a timestamp"):
        arrivals().restore(wrong)
