"""The step that assigns the time of arrival: no record is late, and time advances while no records arrive.

The timestamp of a record is the time of the clock when its batch arrived at this step, or the last timestamp if the
clock went back meanwhile. The watermark is one less: another record may arrive in the same millisecond. It is sent
after each batch, and every ``period`` ms without one, so that windows fire while the source is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aflow.errors import RestoreError, shown
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.time_strategy import PERIOD
from aflow.state.snapshot import Captured, OperatorSnapshot, Ready

#: Name of the operator state: the newest timestamp that was assigned.
_STATE: Final = "newest"


class IngestionTimeOperator(Operator):
    """Stamps records with the time of the clock, and drops timestamps and watermarks of upstream except the last one.

    Idleness passes through: while the input is idle no watermark is sent, since readers do not wait for this stream.
    """

    def __init__(self, period: int | None = None) -> None:
        #: The interval of watermarks while no records arrive (ms).
        self._period: Final = PERIOD if period is None else period
        #: The newest timestamp that was assigned, or that the watermark excludes.
        self._newest: Timestamp = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._arm()

    def process(self, batch: Batch[Any]) -> None:
        now = self._now()
        self.output.emit(Batch(batch.values, [now] * len(batch.values), batch.keys))
        self._send(now - 1)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp == MAX_TIMESTAMP:
            super().on_watermark(timestamp)

    def on_idle(self) -> None:
        self.context.alarm.set(None)
        super().on_idle()

    def on_active(self) -> None:
        super().on_active()
        self._arm()

    def on_processing_time(self, now: Timestamp) -> None:
        self._send(self._now() - 1)
        self._arm()

    def capture(self, *, changes: bool) -> Captured:
        """Return the newest timestamp, in case that the clock is behind it after a restore."""
        return Ready(OperatorSnapshot(operator={_STATE: (PLAIN.encode(self._newest),)}))

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Continue at the newest timestamp of all former subtasks: the predecessor of this one is unknown."""
        for part in snapshot.operator.get(_STATE, ()):
            match PLAIN.decode(part):
                case int(newest):
                    self._newest = max(self._newest, newest)
                case other:
                    raise RestoreError(f"step {self.name!r}: {shown(other)} is not a timestamp")
        return iter(())

    def _now(self) -> Timestamp:
        now = self.context.clock.now()
        if now > self._newest:
            self._newest = now
        return self._newest

    def _send(self, watermark: Timestamp) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self.output.watermark(watermark)

    def _arm(self) -> None:
        self.context.alarm.set(self.context.clock.now() + self._period)
