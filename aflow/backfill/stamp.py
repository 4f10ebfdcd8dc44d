"""Event time over history: assigns timestamps as the live job does, and excludes records after the end of history."""

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
    them, and excludes earlier ones by the same timestamps. ``left_out`` counts them.
    """

    def __init__(self, event_time: EventTimeOperator, until: Timestamp | None) -> None:
        self._event_time = event_time
        self._until = until
        self.left_out = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time.context = context
        self._event_time.output = context.output

    def process(self, batch: Batch[Any]) -> None:
        batch, times, failure = self._event_time.stamped(batch)
        if times:
            self._emit(batch, times)
        if failure is not None:
            raise failure

    def _emit(self, batch: Batch[Any], times: list[Timestamp]) -> None:
        newest, until = max(times), self._until
        if newest > MAX_TIMESTAMP or min(times) < MIN_TIMESTAMP:
            self._event_time.check_range(batch, times)
        if until is not None and newest >= until:
            kept = [index for index, time in enumerate(times) if time < until]
            self.left_out += len(times) - len(kept)
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
