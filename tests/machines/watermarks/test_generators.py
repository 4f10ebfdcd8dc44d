"""Watermarks out of timestamps, and idleness out of silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Idleness,
    Monotonic,
    Periodic,
    Punctuated,
    WatermarkGenerator,
)
from aflow.model.time import MIN_TIMESTAMP


def test_the_watermark_is_the_newest_timestamp_minus_the_delay_minus_one() -> None:
    bounded = BoundedOutOfOrderness(10)

    assert bounded.on_batch([100, 130, 120]) == 119
    assert bounded.on_periodic() == 119


def test_older_records_do_not_move_the_watermark_back() -> None:
    bounded = BoundedOutOfOrderness(10)
    bounded.on_batch([100])

    assert bounded.on_batch([50, 60]) == 89


def test_before_the_first_record_the_watermark_is_the_minimum() -> None:
    bounded = BoundedOutOfOrderness(10)

    assert bounded.watermark == bounded.on_periodic() == MIN_TIMESTAMP
    assert bounded.on_batch([]) == MIN_TIMESTAMP
    assert bounded.on_batch([MIN_TIMESTAMP]) == MIN_TIMESTAMP
    assert bounded.on_batch([MIN_TIMESTAMP + 12]) == MIN_TIMESTAMP + 1


@given(st.integers(0, 20), st.lists(st.lists(st.integers(-50, 50))))
def test_batches_and_single_records_have_the_same_watermark(
    delay: int, batches: list[list[int]]
) -> None:
    by_batch, by_record = BoundedOutOfOrderness(delay), BoundedOutOfOrderness(delay)
    seen: list[int] = []
    for batch in batches:
        for at in batch:
            assert by_record.on_event("a record", at) is None
        seen += batch

        assert by_batch.on_batch(batch) == by_record.on_periodic()
        assert by_batch.watermark == max((at - delay - 1 for at in seen), default=MIN_TIMESTAMP)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="not -1 ms"):
        BoundedOutOfOrderness(-1)


def test_a_monotonic_stream_has_no_delay() -> None:
    monotonic = Monotonic()
    monotonic.on_event("a record", 100)

    assert monotonic.on_periodic() == 99


def test_a_punctuated_generator_emits_after_the_records_it_selects() -> None:
    marks: WatermarkGenerator[str] = Punctuated(
        lambda value, at: at if value.endswith("!") else None
    )

    assert [marks.on_event("a", 1), marks.on_event("b!", 2), marks.on_periodic()] == [None, 2, None]


def test_a_periodic_generator_emits_for_the_newest_timestamp() -> None:
    lagging: WatermarkGenerator[str] = Periodic(lambda newest: newest - 5)

    assert lagging.on_periodic() is None
    assert [lagging.on_event("a", 10), lagging.on_event("b", 7)] == [None, None]
    assert lagging.on_periodic() == 5


def test_a_periodic_generator_may_have_no_news() -> None:
    silent = Periodic(lambda newest: None)
    silent.on_event("a", 10)

    assert silent.on_periodic() is None


def test_the_clock_of_idleness_starts_with_the_first_question() -> None:
    idleness = Idleness(10)

    assert [idleness.is_idle(now) for now in (1_000, 1_010, 1_011, 5_000)] == [
        *(False, False),
        *(True, True),
    ]


def test_a_record_restarts_the_idle_timeout() -> None:
    idleness = Idleness(10)
    idleness.is_idle(0)
    idleness.active(8)

    assert [idleness.is_idle(now) for now in (18, 19)] == [False, True]

    idleness.active(20)
    assert [idleness.is_idle(now) for now in (20, 30, 31)] == [False, False, True]


def test_idleness_is_due_at_the_first_moment_at_which_it_will_be_true() -> None:
    idleness = Idleness(10)
    assert idleness.due is None

    idleness.active(5)
    assert idleness.due == 16
    assert [idleness.is_idle(now) for now in (15, 16)] == [False, True]


def test_idleness_is_never_due_while_blocked() -> None:
    idleness = Idleness(10)
    idleness.active(5)
    idleness.pause(8)
    assert idleness.due is None

    idleness.resume(108)
    assert idleness.due == 116


def test_time_spent_blocked_does_not_count_as_silence() -> None:
    idleness = Idleness(10)
    idleness.active(0)
    idleness.pause(4)
    idleness.pause(50)

    assert not idleness.is_idle(1_000)

    idleness.resume(1_000)
    idleness.resume(1_003)
    assert [idleness.is_idle(now) for now in (1_006, 1_007)] == [False, True]


def test_an_idle_split_is_still_idle_while_blocked() -> None:
    idleness = Idleness(10)
    idleness.active(0)
    idleness.pause(11)

    assert idleness.is_idle(20)


def test_a_record_while_blocked_starts_the_clock_when_the_block_ends() -> None:
    idleness = Idleness(10)
    idleness.active(0)
    idleness.pause(9)
    idleness.active(20)
    idleness.resume(100)

    assert [idleness.is_idle(now) for now in (110, 111)] == [False, True]


def test_a_first_question_while_blocked_starts_the_clock_when_the_block_ends() -> None:
    idleness = Idleness(10)
    idleness.pause(0)
    assert not idleness.is_idle(50)
    idleness.resume(100)

    assert [idleness.is_idle(now) for now in (110, 111)] == [False, True]


def test_a_block_before_the_first_question_changes_nothing() -> None:
    idleness = Idleness(10)
    idleness.pause(0)
    idleness.resume(100)

    assert [idleness.is_idle(now) for now in (100, 110, 111)] == [False, False, True]


@pytest.mark.parametrize("timeout", [0, -1])
def test_an_idle_timeout_that_is_not_above_zero_is_refused(timeout: int) -> None:
    with pytest.raises(FlowDefinitionError, match=f"not {timeout} ms"):
        Idleness(timeout)
