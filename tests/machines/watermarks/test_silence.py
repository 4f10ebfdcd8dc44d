"""Event time of a silent input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.watermarks.silence import SilentAdvance
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP


def test_event_time_advances_by_the_time_that_passes() -> None:
    silence = SilentAdvance(200)
    silence.begin(1_000, 50)

    assert [silence.watermark(at) for at in (1_000, 1_001, 1_700)] == [None, 51, 750]
    assert silence.due(1_000) == 1_200


def test_a_time_without_the_input_does_not_count() -> None:
    silence = SilentAdvance(200)
    silence.begin(1_000, 50)

    silence.pause(1_100)
    while_paused = (silence.watermark(5_000), silence.due(5_000))
    silence.resume(5_000)

    assert while_paused == (None, None)
    assert silence.watermark(5_010) == 50 + 110


def test_a_pause_before_the_begin_changes_nothing() -> None:
    silence = SilentAdvance(200)
    silence.pause(100)
    silence.begin(1_000, 50)
    silence.resume(400)

    assert silence.watermark(1_010) == 60


def test_nothing_advances_before_the_first_watermark_and_after_the_end_of_time() -> None:
    for watermark in (MIN_TIMESTAMP, MAX_TIMESTAMP):
        silence = SilentAdvance(200)
        silence.begin(1_000, watermark)

        assert silence.watermark(9_000) is None
        assert silence.due(9_000) is None


def test_the_end_of_time_is_not_reached() -> None:
    silence = SilentAdvance(200)
    silence.begin(0, MAX_TIMESTAMP - 10)

    assert silence.watermark(1_000) == MAX_TIMESTAMP - 1


@given(st.lists(st.tuples(st.sampled_from(["pause", "resume", "ask"]), st.integers(0, 500))))
def test_the_watermark_counts_the_time_without_pauses(steps: list[tuple[str, int]]) -> None:
    silence = SilentAdvance(200)
    silence.begin(0, 7)
    now = passed = 0
    paused = False

    for step, later in steps:
        now += later
        passed += 0 if paused else later
        if step == "pause":
            silence.pause(now)
            paused = True
        elif step == "resume":
            silence.resume(now)
            paused = False
        found = silence.watermark(now)

        assert found == (None if paused or not passed else 7 + passed)
