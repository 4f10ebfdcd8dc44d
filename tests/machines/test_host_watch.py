"""The decision whether a host is active, from what was read at both ends of a pass of the loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.host_watch import HostWatch, Observed

LONG = 0.002
REQUEST = 0.0005


def at(steady: float, *, own: float = 0.0, cpu: float | None = None, gc: int = 0) -> Observed:
    return Observed(steady, own, cpu, (gc, 0))


def test_work_of_others_shortens_the_turns() -> None:
    watch = HostWatch(LONG)

    watch.on_yielded(at(1.0))
    watch.on_renewed(at(1.0 + REQUEST))

    assert watch.turn.is_short


def test_own_work_does_not() -> None:
    watch = HostWatch(LONG)

    watch.on_yielded(at(1.0))
    watch.on_renewed(at(1.0 + REQUEST, own=REQUEST))

    assert not watch.turn.is_short


def test_time_of_other_programs_does_not() -> None:
    watch = HostWatch(LONG)

    watch.on_yielded(at(1.0, cpu=3.0))
    watch.on_renewed(at(1.0 + REQUEST, cpu=3.00001))

    assert not watch.turn.is_short


def test_a_collection_of_garbage_does_not() -> None:
    watch = HostWatch(LONG)

    watch.on_yielded(at(1.0))
    watch.on_renewed(at(1.0 + REQUEST, gc=1))

    assert not watch.turn.is_short


def test_calls_that_complete_do_not() -> None:
    watch = HostWatch(LONG)
    watch.has_calls = True

    watch.on_yielded(at(1.0))
    watch.on_call_completed(at(1.00001))
    watch.on_renewed(at(1.0 + REQUEST))

    assert not watch.turn.is_short


def test_a_request_before_a_call_completes_does() -> None:
    watch = HostWatch(LONG)
    watch.has_calls = True

    watch.on_yielded(at(1.0))
    watch.on_call_completed(at(1.0 + REQUEST))
    watch.on_renewed(at(1.0 + 2 * REQUEST))

    assert watch.turn.is_short


def test_timers_of_the_calls_that_complete_next_do_not() -> None:
    watch = HostWatch(LONG)
    watch.has_calls = True

    watch.on_yielded(at(1.0))
    watch.on_renewed(at(1.0 + REQUEST))
    watch.on_results(250)

    assert not watch.turn.is_short


def test_a_request_beside_few_timers_does() -> None:
    watch = HostWatch(LONG)
    watch.has_calls = True

    watch.on_yielded(at(1.0))
    watch.on_renewed(at(1.0 + REQUEST))
    watch.on_results(10)

    assert watch.turn.is_short


def test_a_request_is_found_although_no_call_completes() -> None:
    watch = HostWatch(LONG)
    watch.has_calls = True

    for now in (1.0, 1.002, 1.004):
        watch.on_yielded(at(now))
        watch.on_renewed(at(now + REQUEST))

    assert watch.turn.is_short


EVENTS = st.lists(st.sampled_from(["yielded", "completed", "renewed", "results"]))


@given(EVENTS, st.booleans())
def test_without_work_of_others_turns_keep_their_length(events: list[str], has_calls: bool) -> None:
    watch, now = HostWatch(LONG), 0.0
    watch.has_calls = has_calls

    for event in events:
        now += LONG
        seen = at(now, own=now)
        match event:
            case "yielded":
                watch.on_yielded(seen)
            case "completed" if watch.expects_call:
                watch.on_call_completed(seen)
            case "renewed":
                watch.on_renewed(seen)
            case _:
                watch.on_results(3)
        assert watch.turn.seconds == LONG
