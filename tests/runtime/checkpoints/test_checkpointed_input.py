"""The shell of a barrier machine: it blocks channels, captures records in flight, and sets the timer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import AbortReason
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.model.elements import END_OF_INPUT, Barrier, CancelBarrier, Watermark
from aflow.model.time import Timestamp
from aflow.testing.virtual_time import VirtualClock, advance, virtual_time
from tests.runtime.checkpoints.input_bench import Abandoned, Bench, Complete, Triggered

ALIGNED = Barrier(1, 0)
OVERTAKES = Barrier(1, 0, unaligned=True)
TIMED = Barrier(1, 0, timeout=100)


async def ms(count: int) -> None:
    await advance(timedelta(milliseconds=count))


class LateClock:
    """A clock that may lag that of the event loop, by ``by`` ms."""

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self.by = 0

    def now(self) -> Timestamp:
        return self._clock.now() - self.by

    def steady(self) -> float:
        return self._clock.steady()


# --------------------------------------------------------------------------------------------- blocked channels


@virtual_time
async def test_nothing_after_a_barrier_is_taken_until_the_others_have_arrived() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, "a", ALIGNED, "b", "c")
    bench.send(1, "x")

    before = bench.run()
    bench.send(1, "y", ALIGNED, "z")
    after = bench.run()

    assert before == ["a", "x"]
    assert after[:3] == ["y", Triggered(1, 0), Complete(1, 0, {})]
    assert sorted(map(str, after[3:])) == ["b", "c", "z"]


@virtual_time
async def test_elements_of_a_blocked_channel_that_was_empty_wait_and_are_served_once() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, ALIGNED)
    bench.run()

    bench.send(0, "a", "b")
    blocked = bench.run()
    bench.send(1, ALIGNED)

    assert blocked == []
    assert bench.run() == [Triggered(1, 0), Complete(1, 0, {}), "a", "b"]
    assert bench.run() == []


@virtual_time
async def test_no_record_of_an_unblocked_channel_precedes_the_checkpoint() -> None:
    bench = Bench(BarrierAligner(3), 3)
    bench.send(0, ALIGNED, "a")
    bench.send(1, ALIGNED, "b")
    bench.run()

    bench.send(2, "c", ALIGNED, "d")

    done = bench.run()
    assert done[:3] == ["c", Triggered(1, 0), Complete(1, 0, {})]
    assert sorted(map(str, done[3:])) == ["a", "b", "d"]


@virtual_time
async def test_a_channel_that_waited_once_does_not_get_more_turns_than_others() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, ALIGNED, "a")
    bench.run()
    bench.send(1, ALIGNED)
    bench.run()
    bench.send(0, Barrier(2, 0))
    bench.run()
    bench.send(1, Barrier(2, 0))
    bench.step()

    bench.send(0, "a", "b", "c")
    bench.send(1, "x", "y", "z")

    assert bench.run() == ["a", "x", "b", "y", "c", "z"]


@virtual_time
async def test_a_cancellation_unblocks_channels() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, ALIGNED, "a")
    bench.run()

    bench.send(1, CancelBarrier(1))

    assert bench.run() == [Abandoned(1, AbortReason.CANCELLED), "a"]


@virtual_time
async def test_the_end_of_the_last_channel_is_as_good_as_its_barrier() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, ALIGNED, "a")
    bench.run()

    bench.send(1, "b", END_OF_INPUT)

    assert bench.run() == ["b", Triggered(1, 0), Complete(1, 0, {}), "a"]


@virtual_time
async def test_barriers_after_all_ends_are_taken_by_a_finished_task() -> None:
    bench = Bench(BarrierAligner(2), 2)
    bench.send(0, "a", END_OF_INPUT, ALIGNED)
    bench.send(1, END_OF_INPUT, ALIGNED)

    assert bench.run() == ["a", Triggered(1, 0), Complete(1, 0, {})]
    assert bench.gate.finished


@virtual_time
async def test_with_at_least_once_no_channel_waits() -> None:
    bench = Bench(BarrierTracker(2), 2)
    bench.send(0, "a", ALIGNED, "b")

    early = bench.run()
    bench.send(1, ALIGNED)

    assert early == ["a", "b"]
    assert bench.run() == [Triggered(1, 0), Complete(1, 0, {})]


@virtual_time
async def test_times_are_those_of_the_clock() -> None:
    bench = Bench(BarrierAligner(2), 2)
    await ms(30)
    bench.send(0, Barrier(1, created_at=10))
    bench.run()

    await ms(50)
    bench.send(1, Barrier(1, created_at=10))

    assert bench.run() == [Triggered(1, start_delay=20), Complete(1, alignment=50, in_flight={})]


# ---------------------------------------------------------------------------------------------- records in flight


@virtual_time
async def test_overtaken_records_are_in_flight_and_processed_nevertheless() -> None:
    bench = Bench(AlternatingBarriers(1), 1)
    bench.send(0, "a b", "c", OVERTAKES, "d")

    assert bench.run() == [
        Triggered(1, 0, unaligned=True),
        Complete(1, 0, {0: ["a", "b", "c"]}),
        "a",
        "b",
        "c",
        "d",
    ]
    assert bench.channels[0].records == 0


@virtual_time
async def test_records_before_a_later_barrier_are_captured_when_they_are_taken() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, OVERTAKES)
    bench.run()
    bench.send(1, "a", Watermark(5))
    bench.run()

    bench.send(1, Barrier(1, 0), "b")
    bench.send(0, "c")
    done = bench.run()

    assert done[0] == Complete(1, 0, {1: ["a", Watermark(5)]})


@virtual_time
async def test_taken_records_precede_those_that_are_overtaken_later() -> None:
    bench = Bench(AlternatingBarriers(2), 2, most=1)
    bench.send(0, OVERTAKES)
    bench.run()
    bench.send(1, "a b c", "d")

    taken = [*bench.step(), *bench.step()]
    bench.send(1, OVERTAKES, "e")

    assert taken == ["a", "b"]
    assert bench.run() == [Complete(1, 0, {1: ["a", "b", "c", "d"]}), "c", "d", "e"]


@virtual_time
async def test_both_barriers_may_overtake() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, "a", OVERTAKES, "b")
    bench.send(1, "x", OVERTAKES, "y")

    done = bench.run()

    assert done[:2] == [Triggered(1, 0, unaligned=True), Complete(1, 0, {0: ["a"], 1: ["x"]})]
    assert sorted(map(str, done[2:])) == ["a", "b", "x", "y"]


@virtual_time
async def test_a_barrier_that_was_the_only_element_leaves_an_empty_channel() -> None:
    bench = Bench(AlternatingBarriers(1), 1)
    bench.send(0, OVERTAKES)

    assert bench.run() == [Triggered(1, 0, unaligned=True), Complete(1, 0, {})]
    bench.send(0, "a")
    assert bench.run() == ["a"]


@virtual_time
async def test_an_end_ends_the_capture_of_its_channel() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, OVERTAKES)
    bench.run()

    bench.send(1, "a", END_OF_INPUT)

    assert bench.run() == ["a", Complete(1, 0, {1: ["a"]})]


@virtual_time
async def test_a_cancelled_checkpoint_is_never_complete_and_nothing_more_is_noted_for_it() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, OVERTAKES)
    bench.send(1, "a")
    bench.run()

    bench.send(1, CancelBarrier(1))
    cancelled = bench.run()
    bench.send(1, "b")

    assert cancelled == [Abandoned(1, AbortReason.CANCELLED)]
    assert bench.run() == ["b"]
    assert not bench.checkpointed_input.captured


@virtual_time
async def test_the_cancellation_of_a_newer_checkpoint_ends_the_capture_of_the_pending_one() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, OVERTAKES)
    bench.run()

    bench.send(1, CancelBarrier(2))

    assert bench.run() == [Abandoned(2, AbortReason.CANCELLED)]
    assert not bench.checkpointed_input.captured


@virtual_time
async def test_records_after_a_barrier_are_not_in_flight_while_other_barriers_are_missing() -> None:
    bench = Bench(AlternatingBarriers(3), 3)
    bench.send(0, OVERTAKES)
    bench.run()
    bench.send(1, "a", ALIGNED, "b")
    bench.send(0, "x")
    bench.run()

    bench.send(2, "c", OVERTAKES)

    assert bench.run() == [Complete(1, 0, {1: ["a"], 2: ["c"]}), "c"]


@virtual_time
async def test_records_noted_for_a_subsumed_checkpoint_are_not_those_of_the_next() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, OVERTAKES)
    bench.send(1, "a")
    bench.run()

    bench.send(0, Barrier(2, 0, unaligned=True))
    subsumed = bench.run()
    bench.send(1, "b")
    bench.run()
    bench.send(1, Barrier(2, 0, unaligned=True))

    assert subsumed == [Abandoned(1, AbortReason.SUBSUMED), Triggered(2, 0, unaligned=True)]
    assert bench.run() == [Complete(2, 0, {1: ["b"]})]


@virtual_time
async def test_a_late_barrier_overtakes_for_nothing() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, CancelBarrier(1))
    bench.run()

    bench.send(1, "a", OVERTAKES)

    assert bench.run() == ["a"]


@virtual_time
async def test_an_aligned_checkpoint_that_becomes_unaligned_serves_waiting_channels() -> None:
    bench = Bench(AlternatingBarriers(3), 3)
    bench.send(0, ALIGNED, "a")
    bench.run()

    bench.send(1, "b", OVERTAKES)
    turned = bench.run()
    bench.send(2, "c", ALIGNED)

    assert turned[0] == Triggered(1, 0, unaligned=True)
    assert sorted(map(str, turned[1:])) == ["a", "b"]
    assert bench.run() == ["c", Complete(1, 0, {1: ["b"], 2: ["c"]})]


# ------------------------------------------------------------------------------------------------------ the timer


@virtual_time
async def test_announced_barriers_overtake_when_the_timeout_of_the_checkpoint_has_come() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, "a", TIMED, "b")
    bench.run()
    bench.send(1, "c", TIMED, "d")
    bench.mails.run_mails()

    await ms(99)
    bench.mails.run_mails()
    early = list(bench.recorded.lines)
    await ms(2)
    bench.mails.run_mails()

    assert early == ["a"]
    assert bench.recorded.lines[1:] == [
        Triggered(1, 0, unaligned=True),
        Complete(1, 101, {1: ["c"]}),
    ]
    assert sorted(map(str, bench.run())) == ["b", "c", "d"]


@virtual_time
async def test_a_barrier_announced_after_the_checkpoint_has_turned_overtakes_at_once() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, TIMED)
    bench.run()
    await ms(101)
    bench.send(1, "a")
    bench.run()

    bench.send(1, "b", TIMED)

    assert bench.run() == [Complete(1, 101, {1: ["a", "b"]}), "b"]


@virtual_time
async def test_a_checkpoint_that_is_complete_in_time_is_aligned_and_the_alarm_is_silent() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, TIMED)
    bench.run()
    bench.send(1, "a", TIMED)

    done = bench.run()
    await ms(200)

    assert done == ["a", Triggered(1, 0), Complete(1, 0, {})]
    assert not bench.mails.mailbox.order.has_mail()


@virtual_time
async def test_an_announcement_that_is_heard_after_its_barrier_was_taken_begins_nothing() -> None:
    bench = Bench(AlternatingBarriers(1), 1)
    bench.send(0, TIMED)

    bench.gate.step()
    bench.run()
    await ms(200)

    assert bench.recorded.lines == [Triggered(1, 0), Complete(1, 0, {})]
    assert not bench.mails.mailbox.order.has_mail()


@virtual_time
async def test_a_timer_that_fires_before_the_clock_is_there_waits_for_it() -> None:
    clock = LateClock()
    bench = Bench(AlternatingBarriers(2), 2, clock=clock)
    bench.send(0, TIMED)
    bench.run()

    clock.by = 3
    await ms(102)
    too_early = bench.mails.mailbox.order.has_mail()
    await ms(2)
    bench.mails.run_mails()

    assert not too_early
    assert bench.recorded.lines[0] == Triggered(1, 0, unaligned=True)


@virtual_time
async def test_closing_the_timers_of_the_task_cancels_the_alignment_timeout() -> None:
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, TIMED)
    bench.run()

    bench.timers.close()
    await ms(200)

    assert not bench.mails.mailbox.order.has_mail()


@virtual_time
async def test_announcements_and_timers_of_an_ended_task_are_ignored() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    bench = Bench(AlternatingBarriers(2), 2)
    bench.send(0, TIMED)
    bench.run()

    bench.mails.mailbox.order.close()
    await ms(200)
    bench.send(1, TIMED)

    assert (bench.recorded.lines, errors) == ([], [])
