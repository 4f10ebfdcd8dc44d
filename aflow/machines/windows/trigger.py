"""When a window gives its result.

Theory. A trigger is asked for each record that comes into a window, and whenever a timer that it set is due; it
answers with a ``TriggerResult``. One trigger object serves all keys and windows of a step, so what it has to remember
of a window it keeps in the ``TriggerContext``, which belongs to one key and window and is part of snapshots.

Contract.

- ``on_element`` is called after the record was put into the window's contents, so ``FIRE`` includes it.
- Timers are those of the key and window: setting the same moment twice sets one, and deleting one that is not there
  does nothing. The clean-up timer of a window (its end plus the allowed lateness) belongs to the step, and when it is
  due the trigger is asked too; a trigger that sets a timer for that very moment shares it.
- A window of event time ends when the watermark reaches ``window.max_timestamp``, one of processing time when the clock
  reaches ``window.end``: until then records of its last millisecond may arrive.
- A timer that is set for a moment which has come is due at once, in the same pass. So a trigger that answers each timer
  by setting one for the same moment never comes to an end; set a later one.
- ``PURGE`` empties the contents. What the trigger remembers, and its timers, stay until ``clear``.
- ``clear`` is called when the window goes: forget what is remembered and delete the timers that may still be set.
- Where windows merge, ``on_merge`` is called for the merged window, with what the former windows remembered still to be
  read; then ``clear`` for each of the former ones. For one that takes in others and stays what it was ``clear`` comes
  before ``on_merge``: its timers are the merged window's. Merging windows take no trigger without ``on_merge``.

Times are epoch ms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Generic, Protocol, TypeVar

from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow

S = TypeVar("S")
T_contra = TypeVar("T_contra", contravariant=True)


class TriggerResult(Enum):
    """What becomes of a window now."""

    CONTINUE = "continue"
    """Nothing."""
    FIRE = "fire"
    """It gives its result and keeps its contents."""
    PURGE = "purge"
    """Its contents are dropped without a result."""
    FIRE_AND_PURGE = "fire and purge"
    """It gives its result, then its contents are dropped."""

    @property
    def fires(self) -> bool:
        """True if the window gives its result."""
        return self is TriggerResult.FIRE or self is TriggerResult.FIRE_AND_PURGE

    @property
    def purges(self) -> bool:
        """True if the window's contents are dropped."""
        return self is TriggerResult.PURGE or self is TriggerResult.FIRE_AND_PURGE


class TriggerContext(Protocol):
    """Time, timers and memory of one key and window."""

    @property
    def watermark(self) -> Timestamp:
        """How far event time has come; ``MIN_TIMESTAMP`` before the first watermark."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """What the clock says."""
        ...

    def set_event_timer(self, at: Timestamp) -> None:
        """Have ``on_event_time`` called once the watermark reaches ``at``."""
        ...

    def delete_event_timer(self, at: Timestamp) -> None: ...

    def set_processing_timer(self, at: Timestamp) -> None:
        """Have ``on_processing_time`` called once the clock reaches ``at``."""
        ...

    def delete_processing_timer(self, at: Timestamp) -> None: ...

    def get(self, name: str, default: S) -> S:
        """What is remembered under ``name``; ``default`` if nothing is."""
        ...

    def put(self, name: str, value: object) -> None:
        """Remember a plain value (int, float, str, bool, tuple, list, dict …) under ``name``."""
        ...

    def drop(self, name: str) -> None:
        """Forget what is remembered under ``name``; nothing if nothing is."""
        ...


class MergeContext(TriggerContext, Protocol):
    """What ``on_merge`` sees: the merged window's context, and what the former windows remembered."""

    def merged(self, name: str, default: S) -> list[S]:
        """What each of the former windows remembers under ``name``; ``default`` for those that remember nothing."""
        ...


class Trigger(ABC, Generic[T_contra]):
    """Decides when a window gives its result; see the module's comment for the contract. Frozen: it has no state."""

    @property
    def merges(self) -> bool:
        """True if windows with this trigger may merge: then ``on_merge`` is there."""
        return False

    @property
    def periods(self) -> tuple[int, ...]:
        """Periods in ms: watermarks stop at each multiple of each of them, so that batches make no difference.

        A watermark is sent after a batch. A trigger that fires at multiples of a period would otherwise find more
        records in a window the larger batches are.
        """
        return ()

    @abstractmethod
    def on_element(
        self, value: T_contra, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """A record came into ``window``. ``timestamp`` is that of the clock for windows of processing time."""

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """The watermark has reached ``at``, for which a timer was set (or at which the window is cleaned up)."""
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """The clock has reached ``at``, for which a timer was set (or at which the window is cleaned up)."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        """``window`` has come of several: take over what they remembered, set what timers it needs."""
        raise NotImplementedError(f"{type(self).__name__} says that it merges and has no on_merge")

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """``window`` goes: forget what is remembered of it and delete its timers."""
