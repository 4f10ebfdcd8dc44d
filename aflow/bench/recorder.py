"""Sinks that measure: each result belongs to the batch of records that it was made of, which has the intended times.

What is measured, and its error. The latency of a result is the time from the intended time of its record until a
recorder received it, or until the writer of a kept sink has written it. The ``k``-th result of a batch is compared with
the ``k``-th record of the batch. That is exact for steps that emit one result for each record in their order. Otherwise
the error is at most the time between the first and the last record of the batch, which is the time that the pipeline
took to ask for it. Results of timers, watermarks and windows are made of many records and belong to no batch: for those
the latency markers of the runtime measure the way from source to sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutine
from typing import Any, Final

from aflow.bench.load_source import RecordBatch
from aflow.connect import Committable, Sink, Writer, WriterContext
from aflow.model.batch import Batch
from aflow.model.questions import current_correlation

#: Bits of a latency that are kept: a precision of one in a thousand.
_BITS: Final = 11


class SinkRecord:
    """Measurements of one sink, of all its writers."""

    def __init__(self, name: str, number: int, *, keeps_values: bool = False) -> None:
        self.name = name
        self._number = number
        #: Results that the sink has received.
        self.results = 0
        #: Latencies since they were drained, by the name of the source and a number of bits: counted in units of two to
        #: the power of that number of microseconds, so that each counter has some 2,000 different values at most.
        self._latencies: dict[tuple[str, int], Counter[int]] = {}
        #: The longest time between the first and the last record of a batch (s): the bound of the error.
        self.longest_batch = 0.0
        self.values: list[Any] | None = [] if keeps_values else None
        self.steady: Callable[[], float] = lambda: 0.0
        #: Records that were intended before it do not count (s, steady clock).
        self.counted_from = 0.0

    def receive(self, batch: Batch[Any], correlation: object) -> None:
        """Count the results of ``batch``, and the latencies if they belong to a batch of records."""
        # Hot path (benchmark `generator`): once for each batch; the comprehension once for each record.
        count = len(batch.values)
        self.results += count
        if self.values is not None:
            self.values += batch.values
        if type(correlation) is not RecordBatch:
            return
        now = self.steady()
        intended = whole = correlation.intended
        first = correlation.taken.get(self._number, 0)
        if first or count != len(intended):
            correlation.taken[self._number] = first + count
            last = intended[-1]
            intended = intended[first : first + count]
            intended += [last] * (count - len(intended))
        start = self.counted_from
        if intended[-1] < start:
            return
        bits = max(0, int((now - intended[-1]) * 1e6).bit_length() - _BITS)
        latencies = self._latencies.get((correlation.source, bits))
        if latencies is None:
            latencies = self._latencies[correlation.source, bits] = Counter()
        units = 1e6 / (1 << bits)
        if intended[0] >= start:
            latencies.update([int((now - one) * units) for one in intended])
        else:
            latencies.update([int((now - one) * units) for one in intended if one >= start])
        # Of the whole batch: results in another order may be those of any of its records.
        if (span := whole[-1] - whole[0]) > self.longest_batch:
            self.longest_batch = span

    def drain(self) -> dict[str, Counter[int]]:
        """Return the latencies since the last call, counted by microseconds, by the name of the source."""
        drained: dict[str, Counter[int]] = {}
        for (source, bits), counts in self._latencies.items():
            micros = drained.setdefault(source, Counter())
            for value, count in counts.items():
                micros[value << bits] += count
        self._latencies = {}
        return drained


class RecorderSink(Sink[Any]):
    """Counts results, measures their latencies, and drops them."""

    def __init__(self, record: SinkRecord) -> None:
        self._record = record

    async def writer(self, context: WriterContext) -> Writer[Any]:
        return _RecorderWriter(self._record)


class _RecorderWriter(Writer[Any]):
    def __init__(self, record: SinkRecord) -> None:
        self._receive = record.receive

    def write(self, batch: Batch[Any]) -> Awaitable[None] | None:
        self._receive(batch, current_correlation())
        return None


class MeasuredSink(Sink[Any]):
    """A sink of the pipeline, whose results are counted once they are written."""

    def __init__(self, sink: Sink[Any], record: SinkRecord) -> None:
        self.delivery = sink.delivery
        self._sink = sink
        self._record = record

    async def writer(self, context: WriterContext) -> Writer[Any]:
        return _MeasuredWriter(await self._sink.writer(context), self._record)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        await self._sink.recover(name, committables)


class _MeasuredWriter(Writer[Any]):
    def __init__(self, writer: Writer[Any], record: SinkRecord) -> None:
        self._writer = writer
        self._receive = record.receive
        #: The last awaitable of the writer.
        self._writing: Awaitable[None] | None = None

    def write(self, batch: Batch[Any]) -> Awaitable[None] | None:
        correlation = current_correlation()
        writing = self._writer.write(batch)
        if writing is not None:
            self._writing = writing
            return self._receive_later(writing, batch, correlation)
        self._receive(batch, correlation)
        return None

    async def _receive_later(
        self, writing: Awaitable[None], batch: Batch[Any], correlation: object
    ) -> None:
        await writing
        self._receive(batch, correlation)

    async def flush(self) -> None:
        await self._writer.flush()

    def prepare(self, checkpoint: int) -> Awaitable[Committable | None]:
        return self._writer.prepare(checkpoint)

    async def commit(self, committable: Committable) -> None:
        await self._writer.commit(committable)

    async def close(self) -> None:
        """Close a coroutine that was not awaited because the job has ended, and the writer."""
        if iscoroutine(self._writing):
            self._writing.close()
        await self._writer.close()
