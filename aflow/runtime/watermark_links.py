"""Links and outputs of steps that need watermarks between the records of a batch (docs/decisions/045).

The column ``watermarks`` of a batch has the watermark that each record meets. A ``DividingLink`` divides the batch
where the watermark advances, and passes it to the operator in between: so the operator processes records and watermarks
in the order in which they would be emitted if each batch had one record.

Results of a watermark are emitted together, in time order, although time passes each of them: the first may make an
event timer downstream due that fires before the second. ``FiringOutput`` adds the column to such results.

Sessions. A record exactly at the end of a session belongs to it, and it is in time until the watermark has reached its
timestamp. The operators of windows fire a session when the watermark is 1 ms before its end. So the link into a step
with sessions passes watermarks that are 1 ms behind, and the step emits those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, Output
from aflow.runtime.metrics import StepCounters
from aflow.runtime.outputs import OutputLink, StepOutput
from aflow.runtime.pieces import OperatorPieces


class FiringOutput(StepOutput):
    """The outputs of a step whose results, emitted by a watermark, carry the watermarks that they meet.

    A result of time t meets t - 1, or less if the step emits an older one after it. One that is newer than the
    watermark, such as an early result of a window, meets the same as the preceding one.
    """

    __slots__ = ("_sent", "firing")

    def __init__(
        self, counters: StepCounters, targets: Sequence[tuple[Output, str | None]]
    ) -> None:
        super().__init__(counters, targets)
        self._sent: Timestamp = MIN_TIMESTAMP
        #: The watermark that passes the step; None while none does.
        self.firing: Timestamp | None = None

    def emit(self, batch: Batch[Any]) -> None:
        super().emit(self._met(batch))

    def side(self, tag: str, batch: Batch[Any]) -> None:
        super().side(tag, self._met(batch))

    def watermark(self, timestamp: Timestamp) -> None:
        self._sent = timestamp
        super().watermark(timestamp)

    def _met(self, batch: Batch[Any]) -> Batch[Any]:
        """Return ``batch`` with the watermarks that its records meet, if a watermark emits it."""
        until, times = self.firing, batch.timestamps
        if until is None or times is None or batch.watermarks is not None:
            return batch
        met: list[Timestamp] = []
        last = self._sent
        for oldest in reversed(list(accumulate(reversed(times), min))):
            if last < oldest - 1 < until:
                last = oldest - 1
            met.append(last)
        if last == self._sent:
            return batch
        return Batch(batch.values, times, batch.keys, met)


class _Reached:
    """The last watermark that was passed to an operator through any of its links."""

    __slots__ = ("watermark",)

    def __init__(self) -> None:
        self.watermark: Timestamp = MIN_TIMESTAMP


class DividingLink(OutputLink):
    """Applies watermarks between the records of a batch, and tells the output of the operator when a watermark passes.

    ``beside`` is the link into the other input of the operator, which has the same event time.
    """

    __slots__ = ("_delay", "_divides", "_output", "_reached")

    def __init__(
        self,
        operator: Operator,
        counters: StepCounters,
        pieces: OperatorPieces,
        process: Callable[[Batch[Any]], None] | None = None,
        *,
        output: StepOutput,
        divides: bool = True,
        delay: int = 0,
        beside: DividingLink | None = None,
    ) -> None:
        """Watermarks are passed as they are if not ``divides``, and all of them ``delay`` ms behind."""
        super().__init__(operator, counters, pieces, process)
        self._divides = divides
        self._delay = delay
        self._output = output if isinstance(output, FiringOutput) else None
        self._reached: _Reached = _Reached() if beside is None else beside._reached

    def emit(self, batch: Batch[Any]) -> None:
        met = batch.watermarks
        if met is None or not self._divides:
            super().emit(batch)
            return
        start, reached = 0, self._reached
        for index, watermark in enumerate(met):
            if watermark > reached.watermark:
                if index > start:
                    super().emit(batch.slice(start, index).without_watermarks())
                self.watermark(watermark)
                start = index
        rest = batch if start == 0 else batch.slice(start, len(batch))
        super().emit(rest.without_watermarks())

    def watermark(self, timestamp: Timestamp) -> None:
        self._advance(timestamp, waits=self._pieces.unfinished)

    def advance(self, timestamp: Timestamp) -> None:
        """Pass a watermark between two records that the operator is processing: it overtakes what waits."""
        self._advance(timestamp, waits=False)

    def _advance(self, timestamp: Timestamp, *, waits: bool) -> None:
        if timestamp <= self._reached.watermark:
            return
        self._reached.watermark = timestamp
        if MIN_TIMESTAMP < timestamp < MAX_TIMESTAMP:
            timestamp -= self._delay
        if waits:
            self._pieces.put(partial(self._pass_watermark, timestamp))
        else:
            self._pass_watermark(timestamp)

    def _pass_watermark(self, timestamp: Timestamp) -> None:
        output = self._output
        if output is None:
            super()._pass_watermark(timestamp)
            return
        output.firing = timestamp
        try:
            super()._pass_watermark(timestamp)
        finally:
            output.firing = None
