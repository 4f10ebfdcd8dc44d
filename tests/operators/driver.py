"""Drives one operator without a loop, in the modes of the harness."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol

from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.key_groups import ranges
from aflow.model.time import Timestamp
from aflow.operators.base import Operator, OperatorContext
from aflow.state.snapshot import OperatorSnapshot, replay
from aflow.testing import Mode

Emitted = Batch[Any] | Watermark | Idle | Active


@dataclass
class RecordingOutput:
    """Keeps what an operator emits, in order; side outputs apart, by tag."""

    emitted: list[Emitted] = field(default_factory=list[Emitted])
    sides: dict[str, list[Batch[Any]]] = field(default_factory=dict[str, list[Batch[Any]]])

    def emit(self, batch: Batch[Any]) -> None:
        assert batch.values, "an empty batch was emitted"
        self.emitted.append(batch)

    def watermark(self, timestamp: Timestamp) -> None:
        self.emitted.append(Watermark(timestamp))

    def idle(self) -> None:
        self.emitted.append(IDLE)

    def active(self) -> None:
        self.emitted.append(ACTIVE)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        assert batch.values, "an empty batch was emitted"
        self.sides.setdefault(tag, []).append(batch)


@dataclass
class ManualTime:
    """A clock and the alarm on it; both stand still until the driver moves them."""

    at: Timestamp = 0
    alarm: Timestamp | None = None

    def now(self) -> Timestamp:
        return self.at

    def set(self, at: Timestamp | None) -> None:
        self.alarm = at


class Driver:
    """One operator in one subtask, in a mode as of the harness."""

    def __init__(
        self,
        make: Callable[[], Operator],
        *,
        mode: Mode = Mode.STRAIGHT,
        subtask: int = 0,
        parallelism: int = 1,
        key_group_count: int = 128,
    ) -> None:
        self.output = RecordingOutput()
        self.time = ManualTime()
        self._make = make
        self._mode = mode
        self._chain: list[OperatorSnapshot] = []
        self._steps = 0
        self._context = OperatorContext(
            name="step",
            output=self.output,
            clock=self.time,
            alarm=self.time,
            subtask=subtask,
            parallelism=parallelism,
            key_groups=ranges(key_group_count, parallelism)[subtask],
            key_group_count=key_group_count,
        )
        self.operator = make()
        self.operator.open(self._context)

    def push(
        self,
        *values: object,
        at: Sequence[Timestamp] | None = None,
        keys: Sequence[Hashable] | None = None,
    ) -> Driver:
        self.operator.process(Batch(list(values), None if at is None else list(at), keys))
        return self._step()

    def watermark(self, timestamp: Timestamp) -> Driver:
        self.operator.on_watermark(timestamp)
        return self._step()

    def clock(self, now: Timestamp) -> Driver:
        """Let the clock say ``now`` and ring the alarm if that is due, as often as it is."""
        self.time.at = now
        while self.time.alarm is not None and self.time.alarm <= now:
            self.time.alarm = None
            self.operator.on_processing_time(now)
            self._step()
        return self

    def snapshot(self) -> OperatorSnapshot:
        return self.operator.snapshot() or OperatorSnapshot()

    def restore(self, snapshot: OperatorSnapshot) -> Driver:
        self._chain = [snapshot]
        self.operator.restore(snapshot)
        return self

    def take(self) -> list[Emitted]:
        """What was emitted since the last call."""
        emitted, self.output.emitted = self.output.emitted, []
        return emitted

    def values(self) -> list[Any]:
        """The values emitted since the last call."""
        return [value for item in self.take() if isinstance(item, Batch) for value in item.values]

    def records(self) -> list[tuple[Any, Timestamp | None]]:
        """The values emitted since the last call, with their timestamps."""
        return [
            record for item in self.take() if isinstance(item, Batch) for record in _records(item)
        ]

    def side(self, tag: str) -> list[tuple[Any, Timestamp | None]]:
        """All values that went to a side output, with their timestamps."""
        return [record for batch in self.output.sides.get(tag, []) for record in _records(batch)]

    def _step(self) -> Driver:
        self._steps += 1
        if self._mode is Mode.RESTORING:
            self._replace(self.operator.snapshot())
        elif self._mode is Mode.INCREMENTAL:
            self._capture()
            if self._chain and self._steps % 2 == 0:
                self._replace(replay(self._chain))
        return self

    def _capture(self) -> None:
        captured = self.operator.capture(changes=True)
        if captured is not None:
            snapshot = captured.encoded()
            if snapshot.complete:
                self._chain.clear()
            self._chain.append(snapshot)

    def _replace(self, snapshot: OperatorSnapshot | None) -> None:
        self.operator.close()
        self.time.alarm = None
        self.operator = self._make()
        self.operator.open(self._context)
        if snapshot is not None:
            self.operator.restore(snapshot)


def _records(batch: Batch[Any]) -> Iterator[tuple[Any, Timestamp | None]]:
    return zip(batch.values, batch.timestamps or repeat(None), strict=False)


class Drive(Protocol):
    """Starts a driver in the mode of the test."""

    def __call__(self, make: Callable[[], Operator], /) -> Driver: ...


def subtasks(
    make: Callable[[], Operator], parallelism: int, restored: OperatorSnapshot | None = None
) -> list[Driver]:
    """A driver for each subtask, going on from ``restored``."""
    drivers = [
        Driver(make, subtask=subtask, parallelism=parallelism) for subtask in range(parallelism)
    ]
    if restored is not None:
        for driver in drivers:
            driver.restore(restored)
    return drivers


def emitted_values(drivers: Iterable[Driver]) -> list[Any]:
    return [value for driver in drivers for value in driver.values()]
