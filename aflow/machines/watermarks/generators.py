"""Where watermarks come from: what the timestamps of records say about how far event time has come.

Theory. A watermark ``t`` says that no record with a timestamp of ``t`` or less is expected any more. A *bounded*
generator believes that no record is more than ``max_delay`` older than the newest one seen, so its watermark is
``newest - max_delay - 1``: one less, since another record of just that age may still come. Before the first record
it knows nothing (``MIN_TIMESTAMP``).

A generator follows one split (or one stream without splits) and has state, so each gets its own. It may speak
behind a record (punctuated) or when asked from time to time (periodic). Whether it goes back does not matter: what
combines generators (``multiplexer.py``) never does.

Idleness is a matter of processing time and therefore apart: ``Idleness`` is told ``now`` (ms) and says whether a
split has been silent for too long. Its clock starts with the first question, not when it is made (there may be a
long restore between the two), starts anew with each record, and stands still while the split could not have
delivered: paused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from aflow.errors import FlowDefinitionError
from aflow.model.time import MIN_TIMESTAMP, Timestamp

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class WatermarkGenerator(Protocol[T_contra]):
    """What users supply to say how far event time has come. Has state: one for each split."""

    def on_event(self, value: T_contra, timestamp: Timestamp) -> Timestamp | None:
        """See a record; a watermark to send right behind it, or None."""
        ...

    def on_periodic(self) -> Timestamp | None:
        """The watermark as it is now, or None for no news. Called regularly, also while no records come."""
        ...


class BoundedOutOfOrderness:
    """For records that are at most ``max_delay`` ms older than the newest one before them.

    Raises ``FlowDefinitionError`` for a negative delay.
    """

    __slots__ = ("behind", "watermark")

    def __init__(self, max_delay: int) -> None:
        if max_delay < 0:
            raise FlowDefinitionError(f"max_delay must be 0 ms or more, not {max_delay} ms")
        #: How far the watermark is behind the newest record, in ms.
        self.behind = max_delay + 1
        #: The newest timestamp minus the delay minus 1; ``MIN_TIMESTAMP`` before the first record and never below it.
        self.watermark: Timestamp = MIN_TIMESTAMP

    def on_batch(self, timestamps: Sequence[Timestamp]) -> Timestamp:
        """See the records of a batch at once; the watermark behind them."""
        # Hot path: once for each batch of a source.
        watermark = max(timestamps, default=MIN_TIMESTAMP) - self.behind
        if watermark > self.watermark:
            self.watermark = watermark
        return self.watermark

    def on_event(self, value: object, timestamp: Timestamp) -> Timestamp | None:
        """See a record. Says nothing: ``on_periodic`` does."""
        watermark = timestamp - self.behind
        if watermark > self.watermark:
            self.watermark = watermark
        return None

    def on_periodic(self) -> Timestamp:
        return self.watermark


class Monotonic(BoundedOutOfOrderness):
    """For records whose timestamps never go back within a split; equal ones may follow each other."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0)


class Punctuated(Generic[T]):
    """For streams in which some records say how far time has come.

    ``Punctuated(lambda reading, at: at if reading.last else None)``:
    ``watermark_of(value, timestamp)`` is called for each record and returns a watermark (epoch ms) or None.
    """

    __slots__ = ("_watermark_of",)

    def __init__(self, watermark_of: Callable[[T, Timestamp], Timestamp | None]) -> None:
        self._watermark_of = watermark_of

    def on_event(self, value: T, timestamp: Timestamp) -> Timestamp | None:
        return self._watermark_of(value, timestamp)

    def on_periodic(self) -> None:
        return None


class Periodic:
    """A watermark computed from time to time from the newest timestamp: ``Periodic(lambda newest: newest - 5_000)``.

    ``watermark_at(newest)`` takes and returns epoch ms; it may return None for no news, and is not called before
    the first record.
    """

    __slots__ = ("_newest", "_watermark_at")

    def __init__(self, watermark_at: Callable[[Timestamp], Timestamp | None]) -> None:
        self._watermark_at = watermark_at
        #: The newest timestamp so far; None before the first record.
        self._newest: Timestamp | None = None

    def on_event(self, value: object, timestamp: Timestamp) -> None:
        """See a record. Says nothing: ``on_periodic`` does."""
        if self._newest is None or timestamp > self._newest:
            self._newest = timestamp

    def on_periodic(self) -> Timestamp | None:
        return None if self._newest is None else self._watermark_at(self._newest)


class Idleness:
    """Tells whether a split has been silent for longer than ``timeout`` ms.

    Raises ``FlowDefinitionError`` unless that is above 0.
    """

    __slots__ = ("_paused_at", "_silent_since", "_timeout")

    def __init__(self, timeout: int) -> None:
        if timeout <= 0:
            raise FlowDefinitionError(f"idle_after must be longer than 0 ms, not {timeout} ms")
        self._timeout = timeout
        #: Since when the silence counts, moved forward by the pauses within it; None before the first question or
        #: record.
        self._silent_since: Timestamp | None = None
        #: When the present pause began; None while there is none.
        self._paused_at: Timestamp | None = None

    def active(self, now: Timestamp) -> None:
        """Take note that there was a record."""
        self._silent_since = now
        if self._paused_at is not None:
            self._paused_at = now  # what was paused before belongs to a silence that is over

    def is_idle(self, now: Timestamp) -> bool:
        """True if the silence has lasted for more than the timeout, pauses not counted."""
        if self._silent_since is None:
            self.active(now)
            return False
        until = now if self._paused_at is None else self._paused_at
        return until - self._silent_since > self._timeout

    @property
    def due(self) -> Timestamp | None:
        """When ``is_idle`` will be true unless a record comes; None while paused, and before it was first asked."""
        if self._silent_since is None or self._paused_at is not None:
            return None
        return self._silent_since + self._timeout + 1

    def pause(self, now: Timestamp) -> None:
        """Stop counting: the split is blocked or backpressured. Changes nothing while paused."""
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: Timestamp) -> None:
        """Count again. Changes nothing unless paused."""
        if self._paused_at is not None and self._silent_since is not None:
            self._silent_since += now - self._paused_at
        self._paused_at = None
