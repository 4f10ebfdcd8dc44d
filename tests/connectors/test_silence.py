"""``Silence`` by times that the tests choose."""

from __future__ import annotations

from aflow_connectors.silence import Silence


def begun(idle_after: float | None = 5.0, *, at: float = 10.0) -> Silence:
    one = Silence(idle_after)
    one.begin(at)
    return one


def test_an_input_without_records_becomes_idle_once() -> None:
    one = begun()

    found = [one.becomes_idle(now) for now in (10.0, 14.9, 15.0, 15.2)]
    one.on_records()
    one.begin(20.0)
    again = [one.becomes_idle(now) for now in (20.0, 25.0)]

    assert found == [False, False, True, False]
    assert again == [False, True]


def test_an_outage_is_no_silence() -> None:
    one = begun()

    one.on_outage(11.0, 100.0)

    assert one.remaining(100.0) == 4.0
    assert [one.becomes_idle(now) for now in (103.9, 104.0)] == [False, True]


def test_the_records_of_an_outage_have_two_seconds_to_arrive() -> None:
    one = begun()

    one.on_outage(14.5, 100.0)

    assert one.remaining(100.0) == 2.0
    assert [one.becomes_idle(now) for now in (101.9, 102.0)] == [False, True]


def test_they_have_no_more_than_the_time_of_idleness() -> None:
    one = begun(0.5)

    one.on_outage(10.4, 100.0)

    assert one.remaining(100.0) == 0.5


def test_connections_that_are_lost_often_do_not_keep_an_input_active() -> None:
    one = begun()

    for number in range(1, 4):
        one.on_outage(10.0 + 3 * number - 0.5, 10.0 + 3 * number)

    assert one.remaining(19.0) == 2.0


def test_an_outage_before_the_silence_changes_only_the_time_of_arrival() -> None:
    one = begun(at=10.0)

    one.on_outage(3.0, 12.0)

    assert one.remaining(12.0) == 5.0


def test_an_idle_input_remains_idle_after_an_outage() -> None:
    one = begun()
    assert one.becomes_idle(15.0)

    one.on_outage(16.0, 17.0)

    assert one.remaining(17.0) is None
    assert not one.becomes_idle(100.0)


def test_an_input_without_a_time_is_never_idle() -> None:
    assert begun(None).remaining(1000.0) is None


def test_a_silence_that_is_forgotten_begins_anew() -> None:
    one = begun(at=10.0)

    one.restart()
    assert (one.since, one.remaining(14.0)) == (None, None)
    one.begin(14.0)

    assert [one.becomes_idle(now) for now in (15.0, 18.9, 19.0)] == [False, False, True]


def test_an_idle_input_remains_idle_when_its_silence_is_forgotten() -> None:
    one = begun()
    assert one.becomes_idle(15.0)

    one.restart()
    one.begin(20.0)

    assert not one.becomes_idle(100.0)
