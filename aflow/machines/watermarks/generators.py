"""Watermark generators: the watermark that the timestamps of records justify.

Theory. A watermark ``t`` says that no record with a timestamp of ``t`` or less is expected any more. A *bounded*
generator assumes that no record is more than ``max_delay`` older than the newest one seen, so its watermark is
``newest - max_delay - 1``: one less, since another record of exactly that age may still arrive. Before the first record
it has no information (``MIN_TIMESTAMP``).

A generator follows one split (or one stream without splits) and has state, so each gets its own. It may emit after a
record (punctuated) or at intervals (periodic). It may go back: the combination of generators (``multiplexer.py``) never
does.

Idleness depends on processing time and is therefore separate: ``Idleness`` takes ``now`` (ms) and detects a split that
has had no record for too long. Its clock starts with the first question, not with its creation (a long restore may lie
between the two), is reset by each record, and is paused while the split could not have delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from aflow.errors import FlowDefinitionError
from aflow.model.time import MIN_TIMESTAMP, Timestamp

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class WatermarkGenerator(Protocol[T_contra]):
    """Emits watermarks for the records of one split; supplied by users. Has state: one for each split."""

    def on_event(self, value: T_contra, timestamp: Timestamp) -> Timestamp | None:
        """Observe a record. Return a watermark to emit directly after it, or None."""
        ...

    def on_periodic(self) -> Timestamp | None:
        """Return the present watermark, or None for no change. Called at intervals, also while no records arrive."""
        ...


class BoundedOutOfOrderness:
    """Watermarks for records that are at most ``max_delay`` ms older than the newest preceding one.

    Raises ``FlowDefinitionError`` for a negative delay.
    """

    __slots__ = ("lag", "watermark")

    def __init__(self, max_delay: int) -> None:
        if max_delay < 0:
            raise FlowDefinitionError(f"max_delay must be 0 ms or more, not {max_delay} ms")
        #: Distance of the watermark from the newest timestamp (ms).
        self.lag = max_delay + 1
        #: The newest timestamp minus the lag; ``MIN_TIMESTAMP`` before the first record and never below it.
        self.watermark: Timestamp = MIN_TIMESTAMP

    def on_batch(self, timestamps: Sequence[Timestamp]) -> Timestamp:
        """Observe the records of a batch, and return the watermark after them."""
        # Hot path: once for each batch of a source.
        watermark = max(timestamps, default=MIN_TIMESTAMP) - self.lag
        if watermark > self.watermark:
            self.watermark = watermark
        return self.watermark

    def on_event(self, value: object, timestamp: Timestamp) -> Timestamp | None:
        """Observe a record. Returns None: ``on_periodic`` emits."""
        watermark = timestamp - self.lag
        if watermark > self.watermark:
            self.watermark = watermark
        return None

    def on_periodic(self) -> Timestamp:
        return self.watermark


class Monotonic(BoundedOutOfOrderness):
    """Watermarks for records with ascending timestamps within a split; equal ones may follow each other."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0)


class Punctuated(Generic[T]):
    """Watermarks of streams in which some records mark the progress of time.

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
    """Watermarks computed at intervals from the newest timestamp: ``Periodic(lambda newest: newest - 5_000)``.

    ``watermark_at(newest)`` takes and returns epoch ms; it may return None for no change, and is not called before
    the first record.
    """

    __slots__ = ("_newest", "_watermark_at")

    def __init__(self, watermark_at: Callable[[Timestamp], Timestamp | None]) -> None:
        self._watermark_at = watermark_at
        #: The newest timestamp so far; None before the first record.
        self._newest: Timestamp | None = None

    def on_event(self, value: object, timestamp: Timestamp) -> None:
        """Observe a record. Returns None: ``on_periodic`` emits."""
        if self._newest is None or timestamp > self._newest:
            self._newest = timestamp

    def on_periodic(self) -> Timestamp | None:
        return None if self._newest is None else self._watermark_at(self._newest)


class FromSource:
    """Generates no watermarks: the source emits them."""

    __slots__ = ()

    def on_event(self, value: object, timestamp: Timestamp) -> None:
        """Do nothing. Returns None."""

    def on_periodic(self) -> None:
        return None


class Idleness:
    """Detects a split that has had no record for longer than ``timeout`` ms.

    Raises ``FlowDefinitionError`` unless that is above 0.
    """

    __slots__ = ("_paused_at", "_silent_since", "_timeout")

    def __init__(self, timeout: int) -> None:
        if timeout <= 0:
            raise FlowDefinitionError(f"idle_after must be longer than 0 ms, not {timeout} ms")
        self._timeout = timeout
        #: Start of the time without records, moved forward by the pauses within it; None before the first question or
        #: record.
        self._silent_since: Timestamp | None = None
        #: Start of the present pause; None without one.
        self._paused_at: Timestamp | None = None

    def active(self, now: Timestamp) -> None:
        """Record that there was a record."""
        self._silent_since = now
        if self._paused_at is not None:
            self._paused_at = now  # an earlier pause belongs to a time without records that is over

    def is_idle(self, now: Timestamp) -> bool:
        """Return True if there was no record for more than the timeout, without pauses."""
        if self._silent_since is None:
            self.active(now)
            return False
        until = now if self._paused_at is None else self._paused_at
        return until - self._silent_since > self._timeout

    @property
    def due(self) -> Timestamp | None:
        """Time at which ``is_idle`` is true without a record; None while paused, and before the first question."""
        if self._silent_since is None or self._paused_at is not None:
            return None
        return self._silent_since + self._timeout + 1

    def pause(self, now: Timestamp) -> None:
        """Stop the clock: the split is blocked or backpressured. Changes nothing while paused."""
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: Timestamp) -> None:
        """Start the clock again. Changes nothing unless paused."""
        if self._paused_at is not None and self._silent_since is not None:
            self._silent_since += now - self._paused_at
        self._paused_at = None
