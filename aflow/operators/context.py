"""Contexts of process functions: time, key, state, timers and side outputs.

One context object serves all calls in a subtask, so it describes a record (or timer) only until the handler returns; a
context that is kept and used later raises ``OperatorError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import FlowDefinitionError
from aflow.model.tags import Tag
from aflow.model.time import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Clock,
    Instant,
    TimeDomain,
    Timestamp,
    to_timestamp,
)
from aflow.operators.side_outputs import SideOutputs
from aflow.state.backend import KeyedBackend, KeyTimerQueue
from aflow.state.specs import StateSpec

K = TypeVar("K")
S = TypeVar("S")
C = TypeVar("C")

#: Before the time of any timer.
_NEVER: Final = MIN_TIMESTAMP - 1


class ProcessContext:
    """Context of a ``ProcessFunction``: time and side outputs."""

    __slots__ = (
        "_clock",
        "_met",
        "_records",
        "_sides",
        "_soon",
        "_watermark",
        "is_soon",
        "timestamp",
    )

    timestamp: Timestamp | None
    """Timestamp of the current record (epoch ms); None without event time, and in a processing timer."""

    def __init__(self, *, clock: Clock, sides: SideOutputs) -> None:
        self.timestamp = None
        self._clock = clock
        self._sides = sides
        self.reach(MIN_TIMESTAMP)

    def reach(self, watermark: Timestamp) -> None:
        """Set the watermark of all handlers from now on; called by the step."""
        self._watermark = watermark
        self._met: Sequence[Timestamp] | None = None
        self._records: Iterator[object] | None = None
        self.begin_interval(_NEVER)

    def reach_each(
        self, watermark: Timestamp, met: Sequence[Timestamp], records: Iterator[object]
    ) -> None:
        """Set the watermark of the handler of each of ``records``, a list iterator: that in ``met``, at least
        ``watermark``."""
        self._watermark, self._met, self._records = watermark, met, records

    def at_least(self, watermark: Timestamp) -> None:
        """Set the smallest watermark of the next handlers."""
        self._watermark = watermark

    def begin_interval(self, watermark: Timestamp) -> None:
        """Begin an interval of records that meet at most ``watermark``."""
        self._soon = watermark
        #: True once an event timer was registered that is due within the interval.
        self.is_soon = False

    def expect(self, timer: Timestamp) -> None:
        """Notice that an event timer was registered for the time ``timer``."""
        if timer <= self._soon:
            self.is_soon = True

    @property
    def watermark(self) -> Timestamp:
        """The watermark of this subtask (epoch ms); ``MIN_TIMESTAMP`` before the first one."""
        if self._met is None:
            return self._watermark
        # Only few handlers read it, so it is looked up.
        return max(self._met[-1 - length_hint(self._records)], self._watermark)

    @property
    def processing_time(self) -> Timestamp:
        """The time of the clock (epoch ms)."""
        return self._clock.now()

    def side(self, tag: Tag[S], value: S) -> None:
        """Emit ``value`` to side output ``tag``, with the timestamp of the current record."""
        self._sides.add(tag.name, value, self.timestamp, self.watermark)


class Context(ProcessContext, Generic[K]):
    """Context of a ``KeyedProcess``: time, key, state, timers and side outputs."""

    __slots__ = (
        "_backend",
        "_cells",
        "_clocked",
        "_event_timers",
        "_processing_timers",
        "timer_domain",
    )

    timer_domain: TimeDomain | None
    """In ``on_timer``, the clock of the timer. None in ``process``."""

    def __init__(
        self,
        *,
        clock: Clock,
        sides: SideOutputs,
        backend: KeyedBackend,
        cells: Mapping[Any, Any],
        timers: Mapping[TimeDomain, KeyTimerQueue],
        clocked: bool = True,
    ) -> None:
        super().__init__(clock=clock, sides=sides)
        self.timer_domain = None
        self._backend = backend
        self._cells: Final = cells
        self._event_timers: Final = timers[TimeDomain.EVENT]
        self._processing_timers: Final = timers[TimeDomain.PROCESSING]
        self._clocked: Final = clocked

    @property
    def key(self) -> K:
        """The key of the current record or timer."""
        key = self._backend.key
        hash(key)  # raises outside a handler, as cells do
        return cast("K", key)  # key_by made it: the stream's type says so

    def state(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declaration, bound to the current key: ``ctx.state(self.last).get()``.

        Raises ``FlowDefinitionError`` for a declaration that is no attribute of the process function.
        """
        try:
            cell: C = self._cells[spec]
        except KeyError:
            raise undeclared(spec, self._cells) from None
        return cell

    def set_event_timer(self, at: Instant) -> None:
        """Have ``on_timer`` called for this key once the watermark reaches ``at`` (aware ``datetime`` or epoch ms).

        Setting the same time again changes nothing. A timer that the watermark has passed fires when it next advances.

        It fires before the first record that meets a watermark at or after ``at``. The watermark that a record meets is
        determined by the preceding records, so the size of batches does not matter.
        """
        # Hot path (benchmark `timers`): an int is in most cases what it has to be.
        if type(at) is not int or at > MAX_TIMESTAMP:
            at = timer_moment(at)
        self._event_timers.register(at, self._backend.key, None)
        if at <= self._soon:
            self.is_soon = True

    def set_processing_timer(self, at: Instant) -> None:
        """Have ``on_timer`` called for this key once the clock reaches ``at`` (aware ``datetime`` or epoch ms).

        Setting the same time again changes nothing. A timer that is not due when the input ends does not fire. Raises
        ``FlowDefinitionError`` over history, which has no clock.
        """
        if not self._clocked:
            raise no_clock()
        self._processing_timers.register(timer_moment(at), self._backend.key, None)

    def delete_event_timer(self, at: Instant) -> None:
        """Delete the event timer of this key at ``at``, if there is one."""
        if type(at) is not int or at > MAX_TIMESTAMP:
            at = timer_moment(at)
        self._event_timers.delete(at, self._backend.key, None)

    def delete_processing_timer(self, at: Instant) -> None:
        """Delete the processing timer of this key at ``at``, if there is one."""
        self._processing_timers.delete(timer_moment(at), self._backend.key, None)


def timer_moment(at: Instant) -> Timestamp:
    """Return the time of a timer for ``at``; one beyond the largest timestamp fires when event time ends."""
    return min(to_timestamp(at, what="the time of a timer"), MAX_TIMESTAMP)


def no_clock() -> FlowDefinitionError:
    """Return the error for a processing timer over history."""
    return FlowDefinitionError(
        "set_processing_timer() waits for the clock, and a backfill has no clock; set an event "
        "timer, or run this step live only"
    )


def undeclared(spec: object, cells: Mapping[Any, Any]) -> FlowDefinitionError:
    """Return the error for a ``spec`` that is not in ``cells``, which are by declaration."""
    if isinstance(spec, str):
        return FlowDefinitionError(
            f"state() takes a declaration, not its name: ctx.state(self.…) instead of ctx.state({spec!r})"
        )
    known = ", ".join(repr(known.name) for known in cells) or "none"
    return FlowDefinitionError(
        f"{spec!r} is not declared; make it an attribute of the process function, so that snapshots include it "
        f"(declared: {known})"
    )
