"""Where records get their timestamps and watermarks begin.

Rule: the watermark that a record meets downstream is the one that the records *before* it have earned, whatever the batches
are. A batch is therefore cut in front of a record that is behind the watermark (which the batch so far has advanced) and the
watermark is sent in the gap; a batch without such a record goes out whole, with the watermark behind it. So what is late
depends on the order of the records alone, and a replay with other batches decides the same (docs/decisions/002).

Each split of a source has its own generator and its own idleness; the ``SplitMultiplexer`` combines them. Behind an exchange
there are no splits, and one generator follows the mixed stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from aflow.errors import OperatorError
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Idleness,
    WatermarkGenerator,
)
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, Timestamp, to_timestamp
from aflow.operators.base import Operator, OperatorContext

#: The split that stands for a stream that comes through an exchange.
_MIXED: Final = ""

#: Milliseconds of processing time between two calls of a generator's ``on_periodic``.
PERIOD: Final = 200


@dataclass(frozen=True, slots=True)
class TimeStrategy:
    """How event time advances: a generator for each split, and after how many ms without a record a split is idle."""

    generator: Callable[[], WatermarkGenerator[Any]]
    idle_after: int | None = None


class EventTimeOperator(Operator):
    """Stamps records and sends watermarks between them."""

    def __init__(self, time: Callable[[Any], Instant] | None, strategy: TimeStrategy) -> None:
        self._time = time
        self._strategy = strategy
        self.g = strategy.generator()

    def process(self, batch: Batch[Any]) -> None:
        fn = self._time
        left = iter(batch.values)
        stamps = [fn(v) for v in left]
        wm = self.g.on_batch(stamps)
        self.output.emit(Batch(batch.values, stamps))
        if wm > self.watermark:
            self.watermark = wm
            self.output.watermark(wm)
    def on_watermark(self, timestamp):
        if timestamp == MAX_TIMESTAMP: super().on_watermark(timestamp)
