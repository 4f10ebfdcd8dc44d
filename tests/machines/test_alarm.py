"""The time to which an alarm is set."""

from __future__ import annotations

import pytest

from aflow.machines.alarm import CancelAlarm, EarliestAlarm, SetAlarm


@pytest.mark.parametrize(
    ("earliest", "decided"),
    [
        ([None], [None]),
        ([20], [SetAlarm(20)]),
        ([20, 20], [SetAlarm(20), None]),
        ([20, 10], [SetAlarm(20), SetAlarm(10)]),
        ([10, 20], [SetAlarm(10), SetAlarm(20)]),
        ([10, None, None], [SetAlarm(10), CancelAlarm(), None]),
    ],
    ids=[
        "no timer",
        "the first timer",
        "the same timer",
        "an earlier timer",
        "the earliest is deleted",
        "the last is deleted",
    ],
)
def test_the_alarm_is_set_to_the_earliest_timer(
    earliest: list[int | None], decided: list[SetAlarm | CancelAlarm | None]
) -> None:
    alarm = EarliestAlarm()

    assert [alarm.update(each) for each in earliest] == decided


def test_an_alarm_that_went_off_is_set_again_even_for_the_same_time() -> None:
    alarm = EarliestAlarm()
    alarm.update(10)
    alarm.on_fired()

    assert alarm.update(10) == SetAlarm(10)


def test_an_alarm_that_went_off_is_not_cancelled() -> None:
    alarm = EarliestAlarm()
    alarm.update(10)
    alarm.on_fired()

    assert alarm.update(None) is None
