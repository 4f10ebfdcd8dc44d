"""The triggers that aflow has; their contract is in ``trigger``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.windows.evictors import check_delta
from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp, positive_millis
from aflow.model.windows import TimeWindow

S = TypeVar("S")


class TriggerScope:
    """A context with a prefix for names, so that each part of a composed trigger has memory of its own. Timers are
    shared.
    """

    __slots__ = ("_ctx", "_prefix")

    def __init__(self, prefix: str, ctx: TriggerContext) -> None:
        self._prefix = prefix
        self._ctx = ctx

    @property
    def watermark(self) -> Timestamp:
        return self._ctx.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._ctx.processing_time

    def set_event_timer(self, at: Timestamp) -> None:
        self._ctx.set_event_timer(at)

    def delete_event_timer(self, at: Timestamp) -> None:
        self._ctx.delete_event_timer(at)

    def set_processing_timer(self, at: Timestamp) -> None:
        self._ctx.set_processing_timer(at)

    def delete_processing_timer(self, at: Timestamp) -> None:
        self._ctx.delete_processing_timer(at)

    def get(self, name: str, default: S) -> S:
        return self._ctx.get(f"{self._prefix}.{name}", default)

    def put(self, name: str, value: object) -> None:
        self._ctx.put(f"{self._prefix}.{name}", value)

    def drop(self, name: str) -> None:
        self._ctx.drop(f"{self._prefix}.{name}")

    def merged(self, name: str, default: S) -> list[S]:
        """Return the values of the former windows; only within ``on_merge``, whose context has them."""
        return cast("MergeContext", self._ctx).merged(f"{self._prefix}.{name}", default)


T = TypeVar("T")

CONTINUE: Final = TriggerResult.CONTINUE
FIRE: Final = TriggerResult.FIRE

#: Names in the memory of triggers.
_NEXT: Final = "next"
_COUNT: Final = "count"
_LAST: Final = "last"


@dataclass(frozen=True)
class EventTime(Trigger[T], Generic[T]):
    """Fire once when the watermark has reached the window's end, and again for each late record within the lateness.

    ``early`` may fire the window before its end: until then it is called for each record and each of its timers.
    ``late`` replaces the firing for each late record. Each has memory of its own until the window is cleaned up;
    ``early`` is not called after the end: a record that it counted does not count for ``late``. When windows merge, the
    memory of ``early`` is kept if the merged window has not ended, else that of ``late``. Contents that ``early``
    purges are not in the result at the end.
    """

    early: Trigger[T] | None = None
    late: Trigger[T] | None = None

    def __post_init__(self) -> None:
        for name, trigger in (("early", self.early), ("late", self.late)):
            if trigger is not None and not isinstance(trigger, Trigger):
                raise FlowDefinitionError(
                    f"{name}= takes an aflow.triggers.Trigger, not {shown(trigger)}"
                )

    @property
    def merges(self) -> bool:
        return all(trigger is None or trigger.merges for trigger in (self.early, self.late))

    @property
    def periods(self) -> tuple[int, ...]:
        return tuple(period for _, trigger in self._parts() for period in trigger.periods)

    def on_element(
        self, value: T, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        end = window.max_timestamp
        if end <= ctx.watermark:
            if self.late is None:
                return FIRE
            return self.late.on_element(value, timestamp, window, TriggerScope("late", ctx))
        ctx.set_event_timer(end)
        if self.early is None:
            return CONTINUE
        return self.early.on_element(value, timestamp, window, TriggerScope("early", ctx))

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        end = window.max_timestamp
        if at == end:
            return FIRE
        name, trigger = ("early", self.early) if at < end else ("late", self.late)
        return (
            CONTINUE
            if trigger is None
            else trigger.on_event_time(at, window, TriggerScope(name, ctx))
        )

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        over = window.max_timestamp <= ctx.watermark
        name, trigger = ("late", self.late) if over else ("early", self.early)
        return (
            CONTINUE
            if trigger is None
            else trigger.on_processing_time(at, window, TriggerScope(name, ctx))
        )

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        # The memory of the other trigger is dropped. In particular, `late` may have stored that it set a timer. In a
        # window that has grown beyond the watermark that timer is not for `late`, and `late` would set no other.
        name, trigger = ("late", self.late)
        if window.max_timestamp > ctx.watermark:
            ctx.set_event_timer(window.max_timestamp)
            name, trigger = ("early", self.early)
        if trigger is not None:
            trigger.on_merge(window, TriggerScope(name, ctx))

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_timer(window.max_timestamp)
        for name, trigger in self._parts():
            trigger.clear(window, TriggerScope(name, ctx))

    def _parts(self) -> list[tuple[str, Trigger[T]]]:
        parts = (("early", self.early), ("late", self.late))
        return [(name, trigger) for name, trigger in parts if trigger is not None]


@dataclass(frozen=True)
class ProcessingTime(Trigger[Any]):
    """Fire once when the clock has reached the window's end: the default for windows of processing time.

    The end is exclusive, so a record that arrives in the last millisecond is in the window.
    """

    def on_element(
        self, value: Any, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.set_processing_timer(window.end)
        return CONTINUE

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return FIRE if at == window.end else CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        if window.end > ctx.processing_time:
            ctx.set_processing_timer(window.end)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_processing_timer(window.end)


@dataclass(frozen=True)
class _ContinuousTrigger(Trigger[Any]):
    """Base of triggers that fire at a multiple of ``every`` if a record was added since the last firing.

    So a window without new records does not emit the same result at each multiple.
    """

    every: timedelta
    _millis: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        what = f"triggers.{type(self).__name__} every"
        object.__setattr__(self, "_millis", positive_millis(self.every, what=what))

    def _after(self, time: Timestamp) -> Timestamp:
        """Return the first multiple of ``every`` after ``time``, at most the end of time."""
        return min(time - time % self._millis + self._millis, MAX_TIMESTAMP)


@dataclass(frozen=True)
class ContinuousEventTime(_ContinuousTrigger):
    """Fire when the watermark reaches a multiple of ``every`` since 1970-01-01T00:00Z, and at the window's end.

    It fires at a multiple only if a record was added since it last fired at one. The multiple is the first after the
    current watermark, whatever the timestamp of the record; before the first watermark it is the first after the
    timestamp. At the window's end it always fires. Late records fire at once. When a window is cleared before its end,
    as in a merge, its timer for the end is not deleted; it has no effect then. Raises ``FlowDefinitionError`` unless
    every > 0.
    """

    @property
    def periods(self) -> tuple[int, ...]:
        return (self._millis,)

    def on_element(
        self, value: Any, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp <= ctx.watermark:
            return FIRE
        if window.max_timestamp < MAX_TIMESTAMP:
            # A window without end needs none: all records precede a multiple before that, and the timer would not be
            # cleared.
            ctx.set_event_timer(window.max_timestamp)
        known = _next_firing(ctx)
        before_all = ctx.watermark == MIN_TIMESTAMP
        following = self._after(timestamp if before_all else ctx.watermark)
        if known is None or following < known:
            if known is not None:
                ctx.delete_event_timer(known)
            ctx.put(_NEXT, following)
            ctx.set_event_timer(following)
        return CONTINUE

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if _next_firing(ctx) == at:
            ctx.drop(_NEXT)
            return FIRE if at <= window.max_timestamp else CONTINUE
        return FIRE if at == window.max_timestamp else CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        if window.max_timestamp > ctx.watermark:
            ctx.set_event_timer(window.max_timestamp)
        following = _earliest_firing(ctx)
        # `EventTime` does not call its `early` trigger for a multiple after the end of a former window. The record that
        # merged the windows sets the next one.
        if following is not None and following > ctx.watermark:
            ctx.put(_NEXT, following)
            ctx.set_event_timer(following)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        following = _next_firing(ctx)
        if following is not None:
            ctx.delete_event_timer(following)
            ctx.drop(_NEXT)


@dataclass(frozen=True)
class ContinuousProcessingTime(_ContinuousTrigger):
    """Fire when the clock reaches a multiple of ``every`` since 1970-01-01T00:00Z, and the end of its window.

    It fires only if a record was added since the last firing. The end is that of windows of processing time: a window
    of event time does not fire at its end. For results before that end use it as the ``early`` trigger of
    ``EventTime``. Raises ``FlowDefinitionError`` unless every > 0.
    """

    def on_element(
        self, value: Any, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if _next_firing(ctx) is None:
            following = self._after(ctx.processing_time)
            ctx.put(_NEXT, following)
            ctx.set_processing_timer(following)
        return CONTINUE

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        following = _next_firing(ctx)
        if following is None or at not in (following, window.end):
            return CONTINUE
        if at != following:
            ctx.delete_processing_timer(following)
        ctx.drop(_NEXT)
        return FIRE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        following = _earliest_firing(ctx)
        if following is not None:
            ctx.put(_NEXT, following)
            ctx.set_processing_timer(following)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        following = _next_firing(ctx)
        if following is not None:
            ctx.delete_processing_timer(following)
            ctx.drop(_NEXT)


@dataclass(frozen=True)
class Count(Trigger[Any]):
    """Fire at each ``n``-th record of a window, and not at the window's end.

    The counts of merged windows are added, and compared with ``n`` at the next record. Raises ``FlowDefinitionError``
    unless n ≥ 1.
    """

    n: int

    def __post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise FlowDefinitionError(
                f"triggers.Count takes a number of records from 1 on, not {shown(self.n)}"
            )

    def on_element(
        self, value: Any, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        count = ctx.get(_COUNT, 0) + 1
        if count < self.n:
            ctx.put(_COUNT, count)
            return CONTINUE
        ctx.drop(_COUNT)
        return FIRE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        count = sum(ctx.merged(_COUNT, 0))
        if count:
            ctx.put(_COUNT, count)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.drop(_COUNT)


@dataclass(frozen=True)
class Delta(Trigger[T], Generic[T]):
    """Fire when a record differs from the last one that fired: ``delta(last, value) > threshold``.

    Until the first firing the window's first record takes its place. The record is stored unchanged, so snapshots need
    it to be a plain Python value. Windows that merge are rejected: their last records could not be merged.
    """

    threshold: float
    delta: Callable[[T, T], float]

    def __post_init__(self) -> None:
        check_delta(self.threshold, self.delta, "triggers.Delta")

    def on_element(
        self, value: T, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        # In a tuple, since a record may be None.
        last = ctx.get(_LAST, cast("tuple[T, ...]", ()))
        if last and not self.delta(last[0], value) > self.threshold:
            return CONTINUE
        ctx.put(_LAST, (value,))
        return FIRE if last else CONTINUE

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.drop(_LAST)


@dataclass(frozen=True)
class Purging(Trigger[T], Generic[T]):
    """Apply ``trigger``, and clear the window's contents whenever it fires."""

    trigger: Trigger[T]

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Trigger):
            raise FlowDefinitionError(
                f"Purging takes an aflow.triggers.Trigger, not {shown(self.trigger)}"
            )

    @property
    def merges(self) -> bool:
        return self.trigger.merges

    @property
    def periods(self) -> tuple[int, ...]:
        return self.trigger.periods

    def on_element(
        self, value: T, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return _purged(self.trigger.on_element(value, timestamp, window, ctx))

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return _purged(self.trigger.on_event_time(at, window, ctx))

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return _purged(self.trigger.on_processing_time(at, window, ctx))

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        self.trigger.on_merge(window, ctx)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self.trigger.clear(window, ctx)


@dataclass(frozen=True)
class Never(Trigger[Any]):
    """Never fire."""

    def on_element(
        self, value: Any, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        """Do nothing: there is no memory."""


def _purged(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is FIRE else result


def _next_firing(ctx: TriggerContext) -> Timestamp | None:
    """Return the time of the next firing of a continuous trigger."""
    return ctx.get(_NEXT, cast("Timestamp | None", None))


def _earliest_firing(ctx: MergeContext) -> Timestamp | None:
    former = ctx.merged(_NEXT, cast("Timestamp | None", None))
    return min((following for following in former if following is not None), default=None)
