"""The processing-time alarm of a step with timers: set to the earliest timer, and to no other."""

from __future__ import annotations

from aflow.machines.alarm import CancelAlarm, EarliestAlarm, SetAlarm
from aflow.model.time import Timestamp
from aflow.operators.base import Alarm


class TimerAlarm:
    """Sets ``alarm`` as the machine decides."""

    __slots__ = ("_alarm", "_earliest")

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._earliest = EarliestAlarm()

    def arm(self, earliest: Timestamp | None) -> None:
        """Set the alarm to the earliest timer (epoch ms; None: there is none), if it is not."""
        match self._earliest.update(earliest):
            case SetAlarm(at):
                self._alarm.set(at)
            case CancelAlarm():
                self._alarm.set(None)
            case None:
                pass

    def on_fired(self) -> None:
        """Record that the alarm went off: it is not set any more."""
        self._earliest.on_fired()
