"""``stateless``: integers through map, filter, map into a sum."""

from __future__ import annotations

from collections.abc import Callable

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from bench.harness import Measurement, compare, run_async

ADD: Callable[[int], int] = lambda n: n + 1  # noqa: E731
KEEP: Callable[[int], bool] = lambda n: n % 3 != 0  # noqa: E731
DOUBLE: Callable[[int], int] = lambda n: n * 2  # noqa: E731


class SumSink(Sink[int]):
    """Sum of the values of all records."""

    def __init__(self) -> None:
        self.total = 0

    async def writer(self, context: WriterContext) -> Writer[int]:
        return _SumWriter(self)


class _SumWriter(Writer[int]):
    def __init__(self, sink: SumSink) -> None:
        self._sink = sink

    def write(self, batch: Batch[int]) -> None:
        self._sink.total += sum(batch.values)


def measure(records: int, rounds: int) -> Measurement:
    """Measure against a ``for`` loop that calls the same three lambdas."""

    def ours() -> int:
        flow, total = af.Flow("stateless"), SumSink()
        flow.source(range(records)).map(ADD).filter(KEEP).map(DOUBLE).to(total)
        run_async(flow.run())
        return total.total

    def by_hand() -> int:
        total = 0
        for number in range(records):
            more = ADD(number)
            if KEEP(more):
                total += DOUBLE(more)
        return total

    return compare("stateless", records, ours, by_hand, at_least=0.90, rounds=rounds)
