"""Instructions of the scheduler for its caller, and the interface between its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aflow.machines.calls.call import Call
from aflow.model.time import Timestamp


@dataclass(slots=True)
class Instructions:
    """Tasks of the caller after an event."""

    failure: Exception | None = None
    """Let the job fail with this error."""
    cancelled: list[Call] = field(default_factory=list[Call])
    """Cancel these calls, which run and are of no use; the caller clears the list."""
    wake_at: Timestamp | None = None
    """Report ``on_time`` at this time or earlier (epoch ms); the caller sets None when it has noted it."""
    makes_room: bool = False
    """Let the task look whether the step is still full; the caller sets False."""
    wakes: bool = False
    """Wake ``waiting`` slots, which take calls; the caller sets False."""

    def wake_by(self, at: Timestamp) -> None:
        """Set ``wake_at`` unless it is earlier."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at


class CallOwner(Protocol):
    """The part of the scheduler that owns records: it gets the outcome of their last attempt."""

    def on_result(self, call: Call, result: Any) -> None:
        """The call gave a result, which counts."""
        ...

    def on_given_up(self, call: Call, error: BaseException) -> None:
        """The call failed, and no attempt is left."""
        ...

    def on_too_late(self, call: Call, error: TimeoutError) -> None:
        """The time of this record is over, whatever becomes of others that share its call."""
        ...

    def followers(self, call: Call) -> Sequence[Call]:
        """Return the calls that share the result of ``call``."""
        ...

    def leads(self, call: Call) -> bool:
        """Return True unless ``call`` waits for the result of another call."""
        ...

    def more_may_come(self) -> bool:
        """Return True if other calls may become ready soon."""
        ...
