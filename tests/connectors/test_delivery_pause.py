"""``DeliveryPause`` by times that the tests choose."""

from __future__ import annotations

import pytest

from aflow_connectors.delivery_pause import DeliveryPause


def pause(idle_after: float | None = 5.0) -> DeliveryPause:
    return DeliveryPause("the input", prefetch=4, idle_after=idle_after)


def test_an_input_without_messages_becomes_idle_once() -> None:
    one = pause()

    one.begin(10.0)
    found = [one.becomes_idle(0, now) for now in (10.0, 14.9, 15.0, 15.2)]
    one.on_messages()
    one.begin(20.0)
    again = [one.becomes_idle(0, now) for now in (20.0, 25.0)]

    assert found == [False, False, True, False]
    assert again == [False, True]


def test_a_stall_is_no_time_without_messages() -> None:
    one = pause()

    one.begin(10.0)
    stalled = [one.becomes_idle(4, now) for now in (10.2, 16.0, 100.0)]
    after = [one.becomes_idle(0, now) for now in (100.2, 104.9, 105.2, 105.4)]

    assert stalled == [False, False, False]
    assert after == [False, False, True, False]


def test_a_shorter_time_than_a_slice_begins_after_the_stall_too() -> None:
    one = pause(idle_after=0.001)

    one.begin(10.0)
    one.becomes_idle(4, 10.2)

    assert [one.becomes_idle(0, now) for now in (10.4, 10.6)] == [False, True]


def test_the_next_pause_does_not_begin_with_an_earlier_stall() -> None:
    one = pause()

    one.begin(10.0)
    one.becomes_idle(4, 50.0)
    one.on_messages()
    one.begin(60.0)

    assert [one.becomes_idle(0, now) for now in (60.2, 64.9, 65.0)] == [False, False, True]


def test_a_connection_begins_the_pause_anew() -> None:
    one = pause()

    one.begin(10.0)
    one.on_connected()
    one.begin(100.0)

    assert [one.becomes_idle(0, now) for now in (100.2, 105.0)] == [False, True]


def test_an_input_is_never_idle_without_a_time() -> None:
    one = pause(idle_after=None)

    one.begin(10.0)

    assert not one.becomes_idle(0, 1e9)


def test_a_stall_is_reported_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    one = pause()

    one.begin(10.0)
    for now in (10.2, 11.9, 12.0, 30.0, 72.0):
        one.warn_if_stalled(4, now)
        one.becomes_idle(4, now)

    assert [getattr(record, "event", None) for record in caplog.records] == [
        "prefetch_exhausted"
    ] * 2
