"""Decisions about late heartbeats, with invented times, and objects in place of frames."""

from __future__ import annotations

from aflow.runtime.calls.overdue import BlockedReport, Heartbeat, Overdue, StackSample, verdict
from aflow.runtime.calls.reports import CodeLocation, LoopBlocked

LIMIT = 0.25
SLACK = 0.125
DUE = 100.0

#: Samples that are not late: half a limit after the heartbeat was due, and so on.
FIRST, SECOND, THIRD = 100.125, 100.25, 100.375

BEAT = Heartbeat(number=7, due=DUE, cpu=5.0, thread=1, depth=3, waited=2.0)


def at(function: str) -> CodeLocation:
    return CodeLocation(function=function, file="app.py", line=12)


def saw(root: object, function: str = "score", waited: float | None = 0.0) -> StackSample:
    """Return a sample, when the thread has waited for a processor for ``waited`` seconds since the heartbeat."""
    total = None if waited is None or BEAT.waited is None else BEAT.waited + waited
    return StackSample(root, "step", at(function), waited=total)


def after(*samples: tuple[float, StackSample]) -> tuple[list[float], BlockedReport]:
    """Return the times and findings of reports, given these samples."""
    overdue = Overdue(BEAT, LIMIT, SLACK)
    return [now for now, sample in samples if overdue.add(now, sample)], overdue.finding


def judged(finding: BlockedReport | None, now: float, used: float = 0.0) -> LoopBlocked | None:
    """Return the report about a beat at ``now``, after the thread used the processor for ``used`` seconds."""
    return verdict(BEAT, finding, now, BEAT.cpu + used, limit=LIMIT, slack=SLACK)


def test_looking_begins_when_a_beat_is_overdue_by_half_of_the_limit() -> None:
    assert Overdue(BEAT, LIMIT, SLACK).finding.next == FIRST


def test_the_same_callback_in_two_looks_blocks_the_loop() -> None:
    told, finding = after((FIRST, saw("a", "before")), (SECOND, saw("a", "score")))

    assert told == [SECOND]
    assert judged(finding, 103.0) == LoopBlocked(seconds=3.0, step="step", where=at("score"))


def test_no_callback_is_named_if_the_thread_got_no_processor_for_half_of_the_time() -> None:
    told, finding = after((FIRST, saw("a", waited=0.1)), (SECOND, saw("a", waited=0.125)))

    assert told == []
    assert judged(finding, 100.5) == LoopBlocked(seconds=0.5, starved=True)
    assert "did not get a processor" in str(judged(finding, 100.5))


def test_a_callback_is_named_if_it_had_a_processor_or_slept_for_more_than_half() -> None:
    told, finding = after((FIRST, saw("a", waited=0.1)), (SECOND, saw("a", waited=0.12)))

    assert told == [SECOND]
    assert judged(finding, 101.0) == LoopBlocked(seconds=1.0, step="step", where=at("score"))


def test_a_callback_that_blocks_after_a_time_without_a_processor_is_found() -> None:
    times = [FIRST + n * LIMIT / 2 for n in range(4)]

    told, finding = after(*((time, saw("a", waited=0.2)) for time in times))

    assert told == [times[3]]
    assert judged(finding, 101.25) == LoopBlocked(seconds=1.0, step="step", where=at("score"))


def test_the_time_before_a_late_look_does_not_count_as_one_without_a_processor() -> None:
    woke = 900.0

    told, _ = after(
        (woke, saw("a", waited=800.0)),
        (woke + 0.125, saw("a", waited=800.0)),
        (woke + 0.25, saw("a", waited=800.0)),
    )

    assert told == [woke + 0.25]


def test_a_callback_is_named_where_the_system_does_not_count_the_wait() -> None:
    told, _ = after((FIRST, saw("a", waited=None)), (SECOND, saw("a", waited=None)))

    assert told == [SECOND]


def test_many_short_callbacks_block_nothing_however_late_the_beat_is() -> None:
    told, finding = after((FIRST, saw("a")), (SECOND, saw("b")), (THIRD, saw("c")))

    assert told == []
    assert judged(finding, 100.45, used=0.45) is None


def test_a_long_callback_behind_short_ones_is_found() -> None:
    told, finding = after((FIRST, saw("a")), (SECOND, saw("b")), (THIRD, saw("b")))

    assert told == [THIRD]
    assert judged(finding, 101.0) == LoopBlocked(seconds=1.0, step="step", where=at("score"))


def test_a_beat_that_is_late_by_less_than_the_limit_is_nobodys_fault() -> None:
    _, finding = after((FIRST, saw("a")))

    assert judged(finding, 100.25, used=0.25) is None


def test_nobody_is_to_blame_while_the_loop_waits_or_is_debugged() -> None:
    told, finding = after(
        (FIRST, saw("a")), (SECOND, StackSample(None, excused=True)), (THIRD, saw("a"))
    )

    assert told == []
    assert judged(finding, 500.0, used=400.0) is None


def test_time_for_which_the_whole_machine_stood_still_does_not_count() -> None:
    woke = 900.0

    told, finding = after((FIRST, saw("a")), (woke, saw("a")), (woke + 0.125, saw("a")))

    assert told == []
    assert judged(finding, woke + 0.2, used=0.2) is None


def test_a_callback_that_goes_on_behind_a_late_look_is_found_and_its_time_counts_from_there() -> (
    None
):
    woke = 900.0

    told, finding = after((woke, saw("a")), (woke + 0.125, saw("a")), (woke + 0.25, saw("a")))

    assert told == [woke + 0.25]
    assert judged(finding, woke + 1) == LoopBlocked(seconds=1.0, step="step", where=at("score"))


def test_a_function_that_never_let_go_of_the_lock_is_found_afterwards_by_the_time_it_worked() -> (
    None
):
    assert judged(None, 103.0, used=3.0) == LoopBlocked(seconds=3.0)


def test_one_that_was_seen_before_it_took_the_lock_is_named() -> None:
    _, finding = after((FIRST, saw("a")))

    assert judged(finding, 103.0, used=3.0) == LoopBlocked(
        seconds=3.0, step="step", where=at("score")
    )


def test_time_for_which_it_did_not_work_is_not_counted() -> None:
    assert judged(None, 500.0, used=3.0) == LoopBlocked(seconds=3.0)


def test_a_machine_that_stood_still_until_the_beat_came_is_nobodys_fault() -> None:
    assert judged(None, 500.0, used=0.01) is None


def test_what_was_found_for_another_beat_counts_no_more() -> None:
    _, finding = after((FIRST, saw("a")), (SECOND, saw("a")))
    next_beat = Heartbeat(number=8, due=200.0, cpu=5.0, thread=1, depth=3)

    said = verdict(next_beat, finding, 203.0, 5.0, limit=LIMIT, slack=SLACK)

    assert said is None
