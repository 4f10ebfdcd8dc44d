"""An asynchronous process without a loop: the test is its slots, and says which handler goes on, and when."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Hashable, Sequence
from itertools import repeat
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.on_error import Fail, OnError
from aflow.machines.calls.retry import RetryPolicy
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.model.time import Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.async_process import AsyncKeyedProcess
from aflow.operators.calls.handlers.keyed_handlers import KeyedHandlers
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.backend_choice import InMemory, StateBackend
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import declared_states
from tests.operators.driver import Emitted, ManualTime, RecordingOutput


class Pause:
    """An awaitable of handlers: the test decides when they resume."""

    def __await__(self) -> Generator[None]:
        yield


def settings(
    function: AsyncKeyedProcess[Any, Any, Any],
    *,
    capacity: int = 100,
    timeout: int | None = None,
    retry: RetryPolicy | None = None,
    on_error: OnError[Any] | None = None,
) -> CallSettings:
    return CallSettings(
        call=function.process,
        capacity=capacity,
        timeout=timeout,
        retry=retry,
        on_error=on_error or Fail(),
    )


class Awaiting:
    """One subtask, its output, its clock, and the handlers that wait in it."""

    def __init__(
        self,
        function: AsyncKeyedProcess[Any, Any, Any],
        how: CallSettings | None = None,
        *,
        restored: OperatorSnapshot | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        now: Timestamp = 0,
        backend: StateBackend | None = None,
    ) -> None:
        self._function = function
        self.output = RecordingOutput()
        self.time = ManualTime(now)
        #: In the order in which they began.
        self.waiting: dict[Call, Coroutine[Any, Any, Any]] = {}
        #: Handlers that were cancelled.
        self.cancelled: list[Coroutine[Any, Any, Any]] = []
        self._told = False
        self.operator = AsyncOperator(how or settings(function), KeyedHandlers(function))
        self.operator.open(
            OperatorContext(
                name="step",
                output=self.output,
                clock=self.time,
                alarm=self.time,
                subtask=subtask,
                parallelism=parallelism,
                key_groups=ranges(128, parallelism)[subtask],
                backend=backend or InMemory(),
            )
        )
        if restored is not None:
            self.operator.restore(restored)
        self.operator.on_ready = self._wake
        self.operator.on_settled = self._note
        self.operator.on_cancel = self._cancel
        self.operator.on_start()
        self._wake()
        self._emit()

    # ------------------------------------------------------------------------------------------ what happens

    def push(
        self,
        *values: object,
        keys: Sequence[Hashable],
        at: Sequence[Timestamp] | None = None,
    ) -> Awaiting:
        self.operator.process(Batch(list(values), None if at is None else list(at), keys))
        return self._emit()

    def watermark(self, timestamp: Timestamp) -> Awaiting:
        self.operator.on_watermark(timestamp)
        return self._emit()

    def clock(self, now: Timestamp) -> Awaiting:
        """Let the clock say ``now`` and ring the alarm if that is due."""
        self.time.at = now
        while self.time.alarm is not None and self.time.alarm <= now:
            self.time.alarm = None
            self.operator.on_processing_time(now)
            self._emit()
        return self

    def go_on(self, key: Hashable) -> Awaiting:
        """The handler of ``key`` goes on to where it waits next, or to its end."""
        self._step(next(call for call in self.waiting if call.key == key))
        return self._emit()

    def finish(self) -> Awaiting:
        """All handlers go on until none waits."""
        for _ in range(100_000):
            if not self.waiting:
                return self
            self.go_on(next(iter(self.waiting)).key)
        raise AssertionError("handlers do not come to their end")

    # ------------------------------------------------------------------------------------------ what is seen

    @property
    def keys(self) -> list[Hashable]:
        """The keys whose handlers wait."""
        return [call.key for call in self.waiting]

    def emitted(self) -> list[Emitted]:
        """Return the elements emitted since the last call."""
        emitted, self.output.emitted = self.output.emitted, []
        return emitted

    def items(self) -> list[Any]:
        """Values with their timestamps, and watermarks, since the last time."""
        found: list[Any] = []
        for one in self.emitted():
            if isinstance(one, Batch):
                found += zip(one.values, one.timestamps or repeat(None), strict=False)
            else:
                found.append(one.timestamp if isinstance(one, Watermark) else one)
        return found

    def values(self) -> list[Any]:
        return [value for one in self.emitted() if isinstance(one, Batch) for value in one.values]

    def snapshot(self) -> OperatorSnapshot:
        """Return the snapshot of the operator."""
        return self.operator.snapshot() or OperatorSnapshot()

    def state(self, name: str, key: Hashable) -> object:
        """Return the state ``name`` of ``key``, as a snapshot stores it."""
        everything = KeyGroupCodec(
            operator="step", key_groups=KeyGroupRange(0, 128), key_group_count=128
        )
        backend = MemoryBackend(everything)
        for spec in declared_states(self._function):
            backend.cell(spec)
        backend.restore(self.snapshot().keyed)
        return backend.get(name, key)

    def side(self, tag: str) -> list[Any]:
        """All values that went to a side output."""
        return [value for batch in self.output.sides.get(tag, []) for value in batch.values]

    # -------------------------------------------------------------------------------------------- the slots

    def _wake(self) -> None:
        for _ in range(self.operator.waiting):
            self._take()

    def _take(self) -> None:
        call = self.operator.take()
        if call is None:
            return
        try:
            awaitable: Any = self.operator.invoke(call)
        except Exception as exc:
            self.operator.raised(call, exc)
            self._take()
            return
        self.waiting[call] = awaitable
        self._step(call)

    def _step(self, call: Call) -> None:
        handler = self.waiting[call]
        try:
            handler.send(None)
        except StopIteration as end:
            del self.waiting[call]
            self.operator.returned(call, end.value)
            self._take()
        except Exception as exc:
            del self.waiting[call]
            self.operator.raised(call, exc)
            self._take()

    def _note(self) -> None:
        self._told = True

    def _cancel(self, call: Call) -> None:
        self.cancelled.append(self.waiting.pop(call))

    def _emit(self) -> Awaiting:
        while self._told:
            self._told = False
            self.operator.emit()
        return self

    def close(self) -> None:
        for handler in (*self.waiting.values(), *self.cancelled):
            handler.close()
        self.operator.close()
