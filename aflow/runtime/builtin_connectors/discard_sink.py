"""A sink that drops all records."""

from __future__ import annotations

from aflow.connect import Delivery, Sink, Writer, WriterContext
from aflow.model.batch import Batch


class DiscardSink(Sink[object]):
    """Drops all records: for flows whose steps have the effect, such as calls, and for benchmarks.

    The metrics of its step count the records, and records that are written again after a restart change nothing.
    """

    delivery = Delivery.IDEMPOTENT

    async def writer(self, context: WriterContext) -> Writer[object]:
        return _DiscardWriter()


class _DiscardWriter(Writer[object]):
    def write(self, batch: Batch[object]) -> None:
        """Drop the batch."""
