"""The watermarks that the records of one batch meet in a process function (docs/decisions/045).

Theory. The records of a batch with the column ``watermarks`` are handled in *stretches*. A stretch ends before a record
that meets a watermark at which an event timer is due. Then the step advances to this watermark, which fires the timer,
and the next stretch begins with that record. Within a stretch the watermark advances in the context of the handlers
alone: nothing is due, so nothing is emitted for it. A handler may register a timer that is due at once, so the end of a
stretch is known only when the preceding record was handled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from aflow.model.batch import Batch
from aflow.model.time import Timestamp

R = TypeVar("R", bound=tuple[Any, ...])


class EventTimers(Protocol):
    """The event timers of a step."""

    @property
    def earliest(self) -> Timestamp | None:
        """The time of the next one; None without one."""
        ...


class HasWatermark(Protocol):
    """The context of the handlers."""

    watermark: Timestamp


class WatermarkReader(Protocol):
    """The step whose handlers meet the watermarks."""

    def meet(self, watermark: Timestamp) -> None:
        """Set the watermark of all handlers that are called from now on."""
        ...

    def advance_between_records(self, before: Timestamp, watermark: Timestamp) -> None:
        """Fire the timers that are due at ``watermark``; the preceding records have met ``before``."""
        ...


class RecordWatermarks(Generic[R]):
    """Handles the records of one batch in stretches. ``records`` iterates over all of them, and ends with the batch."""

    def __init__(
        self,
        reader: WatermarkReader,
        batch: Batch[Any],
        records: Iterator[R],
        reached: Timestamp,
        *,
        timers: EventTimers | None = None,
        touch: Callable[[R], None] | None = None,
        meets_each: bool = False,
        carries: bool = True,
    ) -> None:
        """``reached`` is the watermark that the step has met. ``touch`` is called with each record after a firing.

        With ``meets_each`` the reader is told each watermark, otherwise the last one of each stretch. Results carry
        the watermarks that they meet if ``carries``.
        """
        self._reader = reader
        self._met: Iterator[Timestamp] = iter(batch.watermarks or ())
        self._records = records
        self._reached = reached
        self._timers = timers
        self._touch = touch
        self._meets_each = meets_each
        self._carries = carries
        #: The watermark at which a timer is due, which the next record meets.
        self._due: Timestamp | None = None
        #: True once the step has advanced between two records of the batch.
        self._has_fired = False
        #: True if the step has advanced to the watermark that the next record meets.
        self._has_advanced = False
        self.is_over = False

    def stretch(
        self, ctx: HasWatermark, values: Sequence[Any], of_results: list[Timestamp]
    ) -> Iterator[R]:
        """Yield the records of the next stretch, and set the watermark that each meets in ``ctx``.

        The caller appends their results to ``values``, and this the watermarks that those carry to ``of_results``, up
        to the results of the preceding record.
        """
        # Hot path of steps with timers: once for each record.
        records, timers, carries = self._records, self._timers, self._carries
        touch = self._touch if self._has_fired else None
        reached = ctx.watermark = self._reached
        if self._has_advanced:
            self._has_advanced = False
            record = next(records)
            if touch is not None:
                touch(record)
            yield record
        for watermark in self._met:
            if carries and len(values) > len(of_results):
                of_results.extend([reached] * (len(values) - len(of_results)))
            if watermark > reached:
                if timers is not None:
                    earliest = timers.earliest
                    if earliest is not None and earliest <= watermark:
                        self._due = watermark
                        return
                self._reached = reached = ctx.watermark = watermark
                if self._meets_each:
                    self._reader.meet(watermark)
            record = next(records)
            if touch is not None:
                touch(record)
            yield record
        self.is_over = True

    def filled(self, values: Sequence[Any], of_results: list[Timestamp]) -> list[Timestamp] | None:
        """Return ``of_results`` with the watermarks of the results of the last record; None if they carry none."""
        if not self._carries:
            return None
        of_results.extend([self._reached] * (len(values) - len(of_results)))
        return of_results

    def advance(self) -> None:
        """End a stretch: fire the timers that are due before the next record, if it has ended there."""
        self._reader.meet(self._reached)
        watermark, self._due = self._due, None
        if watermark is not None:
            self._has_fired = self._has_advanced = True
            self._reader.advance_between_records(self._reached, watermark)
            self._reached = watermark
