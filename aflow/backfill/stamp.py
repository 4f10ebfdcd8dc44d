"""Event time over history: assigns timestamps as the live job does, and excludes records outside of the history."""

from __future__ import annotations

from typing import Any

from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.stateless import PassThroughOperator


class StampOperator(Operator):
    """Assigns timestamps by the given ``event_time`` operator, and emits no watermarks.

    History is sorted by event time at the next exchange, which has the watermark of that order; a function upstream of
    it that reads the watermark sees none. Records from ``until`` (epoch ms) on are excluded: the live job processes
    them, and excludes earlier ones by the same timestamps. ``left_out`` counts them. So are records before ``begins``,
    and ``skipped`` counts those: an earlier backfill has processed all that its rows held of them. ``newest`` is for
    the watermark of the next epoch of a stream.
    """

    def __init__(
        self,
        event_time: EventTimeOperator,
        until: Timestamp | None,
        *,
        begins: Timestamp | None = None,
    ) -> None:
        self._event_time = event_time
        self._until = MAX_TIMESTAMP + 1 if until is None else until
        self._begins = MIN_TIMESTAMP if begins is None else begins
        self.left_out = 0
        #: Newest timestamp, of records that are excluded too, by split of the source; "" is the source without splits.
        self.newest: dict[str, Timestamp] = {}
        self._split = ""
        self.skipped = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time.context = context
        self._event_time.output = context.output

    def on_split(self, split: str) -> None:
        self._split = split

    def process(self, batch: Batch[Any]) -> None:
        batch, times, failure = self._event_time.stamped(batch)
        if times:
            self._emit(batch, times)
        if failure is not None:
            raise failure

    def _emit(self, batch: Batch[Any], times: list[Timestamp]) -> None:
        oldest, newest, begins, until = min(times), max(times), self._begins, self._until
        self.newest[self._split] = max(newest, self.newest.get(self._split, newest))
        if newest > MAX_TIMESTAMP or oldest < MIN_TIMESTAMP:
            self._event_time.check_range(batch, times)
        if newest >= until or oldest < begins:
            kept = [index for index, time in enumerate(times) if begins <= time < until]
            skipped = sum(time < begins for time in times)
            self.skipped += skipped
            self.left_out += len(times) - len(kept) - skipped
            if not kept:
                return
            batch, times = batch.pick(kept), [times[index] for index in kept]
        self.output.emit(Batch(batch.values, times))

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.watermark = timestamp


class TimelessOperator(PassThroughOperator):
    """A union inside a fragment: its inputs are read one after the other, and no downstream step waits for time.

    A downstream function that reads the watermark sees none.
    """

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.watermark = timestamp
