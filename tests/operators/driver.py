"""The harness of operators in terms of batches and columns of keys, for tests of the operators themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol, Self

from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import Operator
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing.step_harness import Emitted, ManualTime, RecordingOutput, StepHarness
from tests.operators.backends import backend, close_unused, created

__all__ = [
    "Drive",
    "Driver",
    "Emitted",
    "ManualTime",
    "RecordingOutput",
    "emitted_values",
    "subtasks",
]


class Driver(StepHarness[Operator, Any]):
    """A harness whose input and output are batches. Its calls can be chained. State is in the backend of the test."""

    def __init__(self, make: Callable[[], Operator], **options: Any) -> None:
        options.setdefault("backend", backend())
        super().__init__(make, **options)
        created(self)

    def __del__(self) -> None:
        close_unused(self)

    @property
    def time(self) -> ManualTime:
        return self._time

    @property
    def recorder(self) -> RecordingOutput:
        return self._recorder

    def push(
        self,
        *values: object,
        at: Sequence[Timestamp] | None = None,
        keys: Sequence[Hashable] | None = None,
    ) -> Self:
        batch = Batch(list(values), None if at is None else list(at), keys)
        self._step(lambda: self.operator.process(batch))
        return self

    def watermark(self, timestamp: Timestamp) -> Self:
        self._step(lambda: self.operator.on_watermark(timestamp))
        return self

    def clock(self, now: Timestamp) -> Self:
        """Let the clock jump to ``now``; alarms up to then go off late."""
        self._time.at = now
        self._fire_until(now)
        return self

    def restored(self, snapshot: OperatorSnapshot) -> Self:
        self.restore(snapshot)
        return self

    def snapshot(self) -> OperatorSnapshot:
        return super().snapshot() or OperatorSnapshot()

    def batches(self) -> list[Emitted]:
        """Return the elements emitted since the last call."""
        emitted, self._recorder.emitted = self._recorder.emitted, []
        return emitted

    def new_values(self) -> list[Any]:
        """Return the values emitted since the last call."""
        return [one for item in self.batches() if isinstance(item, Batch) for one in item.values]

    def new_records(self) -> list[tuple[Any, Timestamp | None]]:
        """Return the values emitted since the last call, with their timestamps."""
        return [
            record
            for item in self.batches()
            if isinstance(item, Batch)
            for record in _records(item)
        ]

    def side_records(self, tag: str) -> list[tuple[Any, Timestamp | None]]:
        """Return all values sent to a side output, with their timestamps."""
        return [record for batch in self._recorder.sides.get(tag, []) for record in _records(batch)]


def _records(batch: Batch[Any]) -> Iterator[tuple[Any, Timestamp | None]]:
    return zip(batch.values, batch.timestamps or repeat(None), strict=False)


class Drive(Protocol):
    """Starts a driver in the mode of the test."""

    def __call__(self, make: Callable[[], Operator], /) -> Driver: ...


def subtasks(
    make: Callable[[], Operator], parallelism: int, restored: OperatorSnapshot | None = None
) -> list[Driver]:
    """Return a driver for each subtask, restored from ``restored``."""
    drivers = [
        Driver(make, subtask=subtask, parallelism=parallelism) for subtask in range(parallelism)
    ]
    if restored is not None:
        for driver in drivers:
            driver.restore(restored)
    return drivers


def emitted_values(drivers: Iterable[Driver]) -> list[Any]:
    return [value for driver in drivers for value in driver.new_values()]
