"""An asynchronous step without a loop: the test is its slots, and says what each call gives, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.counters import CallCounters
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.driver import Emitted, ManualTime, RecordingOutput


def unused(value: Any) -> Awaitable[Any]:
    """Stands for the function of the step: nothing awaits it here."""
    raise AssertionError(f"called for {value!r}")


class ByHand:
    """One step, its output, its clock, and the calls that were begun and have given nothing yet."""

    def __init__(
        self, operator: AsyncOperator, restored: OperatorSnapshot | None = None, *, now: int = 0
    ) -> None:
        self.output = RecordingOutput()
        self.time = ManualTime(now)
        #: In the order in which they began.
        self.under_way: list[Call] = []
        #: The values of those that were cancelled.
        self.cancelled: list[Any] = []
        self.operator = operator
        self._settled = False
        operator.open(
            OperatorContext(
                name="step",
                output=self.output,
                clock=self.time,
                alarm=self.time,
                steady=lambda: self.time.at / 1000,
            )
        )
        if restored is not None:
            operator.restore(restored)
        operator.on_ready = self._wake
        operator.on_settled = self._note
        operator.on_cancel = self._cancel
        operator.on_start()
        self._wake()
        self._emit()

    # ------------------------------------------------------------------------------------------ what happens

    def push(
        self,
        *values: object,
        at: Sequence[Timestamp] | None = None,
        keys: Sequence[Hashable] | None = None,
    ) -> ByHand:
        self.operator.process(Batch(list(values), None if at is None else list(at), keys))
        return self._emit()

    def watermark(self, timestamp: Timestamp) -> ByHand:
        self.operator.on_watermark(timestamp)
        return self._emit()

    def clock(self, now: Timestamp) -> ByHand:
        """Let the clock say ``now`` and ring the alarm if that is due."""
        self.time.at = now
        while self.time.alarm is not None and self.time.alarm <= now:
            self.time.alarm = None
            self.operator.on_processing_time(now)
            self._emit()
        return self

    def returns(self, value: object, result: object) -> ByHand:
        """The oldest call for ``value`` gives ``result``, and its slot asks for another one."""
        return self.end(self._call_for(value), lambda call: self.operator.returned(call, result))

    def raises(self, value: object, error: BaseException) -> ByHand:
        return self.end(self._call_for(value), lambda call: self.operator.raised(call, error))

    def end(self, call: Call, how: Callable[[Call], None]) -> ByHand:
        self.under_way.remove(call)
        how(call)
        self._take()
        return self._emit()

    # ------------------------------------------------------------------------------------------ what is seen

    @property
    def asked(self) -> list[Any]:
        """The values of the calls that are under way."""
        return [call.value for call in self.under_way]

    @property
    def calls(self) -> CallCounters:
        return self.operator.calls

    def emitted(self) -> list[Emitted]:
        """Return the elements emitted since the last call."""
        emitted, self.output.emitted = self.output.emitted, []
        return emitted

    def values(self) -> list[Any]:
        """The values emitted since the last time."""
        return [
            value for item in self.emitted() if isinstance(item, Batch) for value in item.values
        ]

    def side(self, tag: str) -> list[Any]:
        """All values that went to a side output."""
        return [value for batch in self.output.sides.get(tag, []) for value in batch.values]

    # -------------------------------------------------------------------------------------------- the slots

    def _call_for(self, value: object) -> Call:
        return next(call for call in self.under_way if call.value == value)

    def _wake(self) -> None:
        for _ in range(self.operator.waiting):
            self._take()

    def _take(self) -> None:
        call = self.operator.take()
        if call is not None:
            self.under_way.append(call)

    def _note(self) -> None:
        self._settled = True

    def _cancel(self, call: Call) -> None:
        self.under_way.remove(call)
        self.cancelled.append(call.value)

    def _emit(self) -> ByHand:
        while self._settled:
            self._settled = False
            self.operator.emit()
        return self
