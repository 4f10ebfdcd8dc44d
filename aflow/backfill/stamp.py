"""Event time over history: records are stamped as in the live job; those behind the end of history stay out."""

from __future__ import annotations

from typing import Any

from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.pass_through import PassThroughOperator


class StampOperator(Operator):
    """Stamps records as ``event_time`` does, which is asked for the timestamps, and sends no watermarks.

    History is put into the order of event time behind the next exchange, and has the watermark of that order there; a
    function before it that asks for the watermark is told that there was none yet. Records from ``until`` (epoch ms) on
    are left out: the live job has them, which leaves out those before, by the same timestamps. ``left_out`` counts
    them.
    """

    def __init__(self, event_time: EventTimeOperator, until: Timestamp | None) -> None:
        self._event_time = event_time
        self._until = until
        self.left_out = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time.context = context

    def process(self, batch: Batch[Any]) -> None:
        times = self._event_time.stamps(batch)
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
    """A union inside of a fragment: its inputs come one after the other, and no step behind it waits for the time.

    A function behind it that asks for the watermark is told that there was none yet.
    """

    def on_watermark(self, timestamp: Timestamp) -> None:
        self.watermark = timestamp
