"""What triggers see: the timers and the memory of one key and window."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar, cast

from aflow.errors import shown
from aflow.model.time import MAX_TIMESTAMP, Clock, TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.context import no_clock
from aflow.operators.windows.contents import KeyWindow
from aflow.operators.windows.horizon import Horizon
from aflow.operators.windows.timers import DomainTimers

S = TypeVar("S")


class KeyWindowContext:
    """A ``MergeContext`` and ``EvictorContext`` that is made once and set to each key and window in turn.

    A timer at the clean-up time is the clean-up timer, which asks the trigger in any case: setting it is nothing new,
    and it cannot be deleted. One beyond the end of time would never ring and is not set.
    """

    __slots__ = ("_clock", "_clocked", "_event", "_former", "_horizon", "_processing", "at")

    at: KeyWindow
    """Whose timers and memory they are."""

    def __init__(
        self, horizon: Horizon, clock: Clock, timers: DomainTimers, *, clocked: bool = True
    ) -> None:
        self._horizon = horizon
        self._clock = clock
        self._clocked = clocked
        self._event = timers.event
        self._processing = timers.processing
        #: During a merge: what the former windows remember.
        self._former: Sequence[dict[str, object] | None] = ()

    @property
    def key(self) -> Hashable:
        return self.at.key

    @property
    def watermark(self) -> Timestamp:
        return self._horizon.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._clock.now()

    # Hot path: asked once for each record by most triggers.

    def set_event_timer(self, at: Timestamp) -> None:
        here = self.at
        if at == here.cleanup and self._horizon.domain is TimeDomain.EVENT:
            return
        if here.cleanup is None and self._horizon.watermark == MAX_TIMESTAMP:
            # No watermark will come that could ring it. Set in a timer of this very watermark it would ring, and a
            # trigger that goes on for as long as its window would go on until the end of time.
            return
        if _never(at):
            return
        here.timers += self._event.set(at, here.window, here.key)

    def delete_event_timer(self, at: Timestamp) -> None:
        here = self.at
        if at != here.cleanup or self._horizon.domain is not TimeDomain.EVENT:
            here.timers -= self._event.delete(at, here.window, here.key)

    def set_processing_timer(self, at: Timestamp) -> None:
        if not self._clocked:
            raise no_clock()
        here = self.at
        if at == here.cleanup and self._horizon.domain is TimeDomain.PROCESSING:
            return
        if not _never(at):
            here.timers += self._processing.set(at, here.window, here.key)

    def delete_processing_timer(self, at: Timestamp) -> None:
        here = self.at
        if at != here.cleanup or self._horizon.domain is not TimeDomain.PROCESSING:
            here.timers -= self._processing.delete(at, here.window, here.key)

    def get(self, name: str, default: S) -> S:
        memory = self.at.memory
        # What is remembered under a name has the type of what was put there: the trigger's own.
        return default if memory is None else cast("S", memory.get(name, default))

    def put(self, name: str, value: object) -> None:
        memory = self.at.memory
        if memory is None:
            self.at.memory = {name: value}
        else:
            memory[name] = value

    def drop(self, name: str) -> None:
        memory = self.at.memory
        if memory is not None:
            memory.pop(name, None)
            if not memory:
                self.at.memory = None

    def merged(self, name: str, default: S) -> list[S]:
        return [
            default if memory is None else cast("S", memory.get(name, default))
            for memory in self._former
        ]

    def merging(self, former: Sequence[KeyWindow]) -> None:
        """``merged`` is about those windows from here on."""
        self._former = [each.memory for each in former]


def window_text(window: TimeWindow) -> str:
    """A window in an error."""
    return f"window [{window.start}, {window.end})"


def _never(at: Timestamp) -> bool:
    if type(at) is not int:
        raise TypeError(f"a trigger sets its timers in epoch ms, not to {shown(at)}")
    return at > MAX_TIMESTAMP
