"""The one alarm of a machine: how a machine sets it, the event when it goes off, and the time to set it to.

A machine has one alarm at most, however many moments it waits for: it sets the alarm to the earliest of them. (One
physical timer for each would cost a million entries in the event loop for a million idle keys.) Times are epoch ms of
processing time.
"""

from __future__ import annotations

from dataclasses import dataclass

from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class SetAlarm:
    """Instruction: let the alarm go off at ``at``, and at no time that was set before."""

    at: Timestamp


@dataclass(frozen=True, slots=True)
class CancelAlarm:
    """Instruction: no alarm is needed."""


@dataclass(frozen=True, slots=True)
class AlarmFired:
    """Event: the time of the last ``SetAlarm`` was reached. One that is early or late does no harm."""


class EarliestAlarm:
    """Decides when to set the alarm, so that it is set to the earliest timer."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        #: The time that the alarm is set to; None if it is not set.
        self._at: Timestamp | None = None

    def update(self, earliest: Timestamp | None) -> SetAlarm | CancelAlarm | None:
        """Return the instruction for an earliest timer at ``earliest`` (None: no timer), or None for no change."""
        if earliest == self._at:
            return None
        self._at = earliest
        return CancelAlarm() if earliest is None else SetAlarm(earliest)

    def on_fired(self) -> None:
        """Record that the alarm went off: it is not set any more."""
        self._at = None
