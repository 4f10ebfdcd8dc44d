"""The alarm of a step that waits for the clock: set to the earliest of its timers, and to no other."""

from __future__ import annotations

from aflow.machines.timer_queue import Alarm as Decision
from aflow.machines.timer_queue import Arm, Disarm
from aflow.model.time import Timestamp
from aflow.operators.base import Alarm


class TimerAlarm:
    """Does on the clock what the machine decides."""

    __slots__ = ("_alarm", "_decision")

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._decision = Decision()

    def arm(self, earliest: Timestamp | None) -> None:
        """Set the alarm to the earliest timer (epoch ms; None: there is none), if it is not."""
        match self._decision.update(earliest):
            case Arm(at):
                self._alarm.set(at)
            case Disarm():
                self._alarm.set(None)
            case None:
                pass

    def rang(self) -> None:
        """The alarm rang, so it is set to nothing."""
        self._decision.rang()
