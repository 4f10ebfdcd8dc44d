"""The contract of triggers, which decide when a window fires.

Theory. A trigger is called for each record that is added to a window, and for each timer that it set; it returns a
``TriggerResult``. One trigger object serves all keys and windows of a step. So it keeps its memory of a window in the
``TriggerContext``, which belongs to one key and window and is part of snapshots.

Contract.

- ``on_element`` is called after the record was added to the window's contents, so ``FIRE`` includes it.
- Timers belong to the key and window: setting the same time twice sets one timer, and deleting one that is not set has
  no effect. The clean-up timer of a window (its end plus the allowed lateness) belongs to the step. The trigger is
  called for it too; a timer that the trigger sets for the same time is the same timer.
- A window of event time ends when the watermark reaches ``window.max_timestamp``, one of processing time when the clock
  reaches ``window.end``: until then records of its last millisecond may arrive.
- A timer that is set for a past time is due at once, in the same pass. So a trigger that sets a timer for the same time
  in each timer never terminates; set a later one.
- ``PURGE`` clears the contents. The trigger's memory and its timers are kept until ``clear``.
- ``clear`` is called when the window is cleaned up: clear the memory and delete the timers that may be set.
- When windows merge, ``on_merge`` is called for the merged window, and can read the memory of the former windows; then
  ``clear`` is called for each of the former ones. If one of them equals the merged window, ``clear`` is called for it
  before ``on_merge``: its timers are the merged window's. Merging windows require a trigger with ``on_merge``.

Times are epoch ms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow

S = TypeVar("S")
T_contra = TypeVar("T_contra", contravariant=True)


class TriggerResult(Enum):
    """The decision of a trigger about a window."""

    CONTINUE = "continue"
    """No action."""
    FIRE = "fire"
    """Emit the result and keep the contents."""
    PURGE = "purge"
    """Clear the contents without a result."""
    FIRE_AND_PURGE = "fire and purge"
    """Emit the result, then clear the contents."""

    @property
    def fires(self) -> bool:
        """Return True if the window fires."""
        return self is TriggerResult.FIRE or self is TriggerResult.FIRE_AND_PURGE

    @property
    def purges(self) -> bool:
        """Return True if the window's contents are cleared."""
        return self is TriggerResult.PURGE or self is TriggerResult.FIRE_AND_PURGE


class TriggerContext(Protocol):
    """Time, timers and memory of one key and window."""

    @property
    def watermark(self) -> Timestamp:
        """Return the current watermark; ``MIN_TIMESTAMP`` before the first one."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """Return the current time of the clock."""
        ...

    def set_event_timer(self, at: Timestamp) -> None:
        """Have ``on_event_time`` called when the watermark reaches ``at``."""
        ...

    def delete_event_timer(self, at: Timestamp) -> None: ...

    def set_processing_timer(self, at: Timestamp) -> None:
        """Have ``on_processing_time`` called when the clock reaches ``at``."""
        ...

    def delete_processing_timer(self, at: Timestamp) -> None: ...

    def get(self, name: str, default: S) -> S:
        """Return the value stored under ``name``, or ``default``."""
        ...

    def put(self, name: str, value: object) -> None:
        """Store a plain value (int, float, str, bool, tuple, list, dict …) under ``name``."""
        ...

    def drop(self, name: str) -> None:
        """Clear the value stored under ``name``, if any."""
        ...


class MergeContext(TriggerContext, Protocol):
    """The context of ``on_merge``: that of the merged window, with the memory of the former windows."""

    def merged(self, name: str, default: S) -> list[S]:
        """Return the value of each former window under ``name``; ``default`` for those without."""
        ...


class Trigger(ABC, Generic[T_contra]):
    """Decides when a window fires; the contract is in the module's docstring. It is immutable: memory is in the
    context.
    """

    @property
    def merges(self) -> bool:
        """Return True if the trigger supports windows that merge: by default, if it defines ``on_merge``."""
        return type(self).on_merge is not Trigger[Any].on_merge

    @property
    def periods(self) -> tuple[int, ...]:
        """Return periods (ms): a watermark is emitted at each multiple of each period, whatever the batches.

        The built-in triggers use this. A trigger of your own needs no periods: it gets the watermark that each record
        meets before the record.
        """
        return ()

    @abstractmethod
    def on_element(
        self, value: T_contra, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return the result for a record added to ``window``; in processing time ``timestamp`` is that of the clock."""

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return the result for a watermark that reached ``at``, the time of a timer or of the clean-up."""
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Return the result for a clock that reached ``at``, the time of a timer or of the clean-up."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        """Take over the memory of the windows that were merged into ``window``, and set its timers."""
        raise NotImplementedError(
            f"{type(self).__name__}.merges is True, but it has no on_merge; define it"
        )

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Clear the memory of ``window`` and delete its timers, because it is cleaned up."""
