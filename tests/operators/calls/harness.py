"""The harness of async steps: the test makes the calls by hand, in virtual time, without an event loop.

Slots behave as in the runtime: ``on_ready`` wakes as many as ``waiting`` says. A slot takes one call when it is woken,
and the next one when its call has ended. So a call that no slot is woken for is not made here either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Self

from aflow.machines.calls.call import Call
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.rate import SharedBuckets
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import Timestamp
from aflow.operators.base import Operator
from aflow.operators.calls.async_process import AsyncKeyedProcess
from aflow.operators.calls.handlers.keyed_handlers import KeyedHandlers
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.backend_choice import InMemory, StateBackend
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import declared_states
from aflow.testing import Mode
from tests.operators.driver import Driver


def unused(value: Any) -> Awaitable[Any]:
    """Stands for the function of the step: nothing awaits it here."""
    raise AssertionError(f"called for {value!r}")


class Pause:
    """An awaitable of handlers: the test decides when they resume."""

    def __await__(self) -> Generator[None]:
        yield


class CallHarness(Driver):
    """One async step in one subtask. ``options`` are fields of ``CallSettings``, in place of ``settings``.

    ``key`` returns the key of a value that is pushed without keys. Mails run at once unless ``mails_wait``.
    """

    def __init__(
        self,
        settings: CallSettings | None = None,
        *,
        handlers: AsyncKeyedProcess[Any, Any, Any] | None = None,
        key: Callable[[Any], Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        name: str = "step",
        subtask: int = 0,
        parallelism: int = 1,
        now: Timestamp = 0,
        restored: OperatorSnapshot | None = None,
        backend: StateBackend | None = None,
        buckets: SharedBuckets | None = None,
        **options: Any,
    ) -> None:
        self.handlers = handlers
        #: The running calls, in the order of their start.
        self.under_way: list[Call] = []
        #: The values of all calls, in the order of their start.
        self.made: list[Any] = []
        #: The values of cancelled calls.
        self.cancelled: list[Any] = []
        #: The running handlers, and those that were cancelled.
        self.coroutines: dict[Call, Coroutine[Any, Any, Any]] = {}
        self.cancelled_handlers: list[Coroutine[Any, Any, Any]] = []
        #: True to let mails wait until ``emit``.
        self.mails_wait = False
        #: Called after each mail.
        self.on_emitted: Callable[[], None] = lambda: None
        #: Called when an operator is replaced by one that is restored.
        self.on_replaced: Callable[[], None] = lambda: None
        self._key = key
        self._has_mail = False
        #: Slots that were woken and have not taken a call.
        self._awake = 0
        self._backend: StateBackend = backend or InMemory()
        self._buckets = buckets or SharedBuckets()
        call = unused if handlers is None else handlers.process
        made = settings or CallSettings(call=call, **options)
        super().__init__(
            lambda: AsyncOperator(made, None if handlers is None else KeyedHandlers(handlers)),
            mode=mode,
            name=name,
            start=now,
            subtask=subtask,
            parallelism=parallelism,
        )
        if restored is None:
            self._start()
        else:
            self.restore(restored)

    @property
    def step(self) -> AsyncOperator:
        assert isinstance(self.operator, AsyncOperator)
        return self.operator

    # ----------------------------------------------------------------------------------------------- input

    def push(
        self,
        *values: object,
        at: Sequence[Timestamp] | None = None,
        keys: Sequence[Hashable] | None = None,
    ) -> Self:
        if keys is None and self._key is not None:
            keys = [self._key(value) for value in values]
        return super().push(*values, at=at, keys=keys)

    def idle(self) -> Self:
        self._step(self.step.on_idle)
        return self

    def active(self) -> Self:
        self._step(self.step.on_active)
        return self

    def end_input(self) -> Self:
        """The input has ended, and the task waits for the calls."""
        self._step(self.step.on_input_end)
        return self

    # ----------------------------------------------------------------------------------------------- calls

    def returns(self, value: object, result: object) -> Self:
        """The oldest call for ``value`` returns ``result``."""
        return self.end(self._call_for(value), lambda call: self.step.returned(call, result))

    def raises(self, value: object, error: BaseException) -> Self:
        """The oldest call for ``value`` fails."""
        return self.end(self._call_for(value), lambda call: self.step.raised(call, error))

    def end(self, call: Call, how: Callable[[Call], None]) -> Self:
        """The slot of ``call`` reports its end by ``how``, and takes the next call."""
        self.under_way.remove(call)
        self._awake += 1
        self._step(lambda: how(call))
        return self

    def resume(self, key: Hashable) -> Self:
        """The handler of ``key`` runs to its next pause, or to its end."""
        call = next(call for call in self.under_way if call.key == key)
        self._step(lambda: self._send(call))
        return self

    def finish(self) -> Self:
        """All handlers run to their end."""
        for _ in range(100_000):
            if not self.under_way:
                return self
            self.resume(self.under_way[0].key)
        raise AssertionError("handlers do not end")

    def emit(self) -> None:
        """The mail runs."""
        while self._has_mail:
            self._has_mail = False
            self.step.emit()
            self.on_emitted()

    # ---------------------------------------------------------------------------------------------- output

    @property
    def asked(self) -> list[Any]:
        """The values of the running calls."""
        return [call.value for call in self.under_way]

    @property
    def keys(self) -> list[Hashable]:
        """The keys of the running handlers."""
        return [call.key for call in self.under_way]

    @property
    def calls(self) -> CallCounters:
        return self.step.calls

    def new_items(self) -> list[Any]:
        """Return values with their timestamps, and watermarks, that were emitted since the last call."""
        found: list[Any] = []
        for one in self.batches():
            if isinstance(one, Batch):
                found += zip(one.values, one.timestamps or repeat(None), strict=False)
            else:
                found.append(one.timestamp if isinstance(one, Watermark) else one)
        return found

    def side_values(self, tag: str) -> list[Any]:
        """Return all values that were sent to a side output."""
        return [value for value, _ in self.side_records(tag)]

    def state(self, name: str, key: Hashable) -> object:
        """Return the state ``name`` of ``key``, as a snapshot stores it."""
        everything = KeyGroupCodec(
            operator="step", key_groups=KeyGroupRange(0, 128), key_group_count=128
        )
        backend = MemoryBackend(everything)
        for spec in declared_states(self.handlers):
            backend.cell(spec)
        backend.restore(self.snapshot().keyed)
        return backend.get(name, key)

    # --------------------------------------------------------------------------------------- the runtime

    def restore(self, *snapshots: OperatorSnapshot) -> None:
        super().restore(*snapshots)
        self._start()

    def close(self) -> None:
        self._close_handlers()
        super().close()

    def _steady(self) -> float:
        return self.now / 1000

    def _new(self) -> Operator:
        self._context = replace(
            self._context, steady=self._steady, backend=self._backend, buckets=self._buckets
        )
        operator = super()._new()
        assert isinstance(operator, AsyncOperator)
        self._close_handlers()
        self.under_way = []
        self._awake, self._has_mail = 0, False
        operator.on_ready = self._wake
        operator.on_settled = self._post
        operator.on_cancel = self._cancel
        return operator

    def _close_handlers(self) -> None:
        for handler in (*self.coroutines.values(), *self.cancelled_handlers):
            handler.close()
        self.coroutines = {}

    def _replace(self, snapshot: OperatorSnapshot | None) -> None:
        super()._replace(snapshot)
        self.on_replaced()
        self._start()

    def _start(self) -> None:
        self.step.on_start()
        self._wake()
        self._run()

    def _stepped(self) -> None:
        if not self.mails_wait:
            self.emit()
        super()._stepped()
        self._run()

    def _run(self) -> None:
        """Run mails and slots until none has anything to do."""
        while True:
            if self._has_mail and not self.mails_wait:
                self.emit()
            elif self._awake:
                self._awake -= 1
                self._take()
            else:
                return

    def _wake(self) -> None:
        self._awake = max(self._awake, self.step.waiting)

    def _post(self) -> None:
        self._has_mail = True

    def _take(self) -> None:
        call = self.step.take()
        if call is not None:
            self.under_way.append(call)
            self.made.append(call.value)
            self._on_call_started(call)

    def _on_call_started(self, call: Call) -> None:
        if self.handlers is None:
            return
        try:
            handler: Any = self.step.invoke(call)
        except Exception as exc:
            self._on_handler_ended(call)
            self.step.raised(call, exc)
        else:
            self.coroutines[call] = handler
            self._send(call)

    def _send(self, call: Call) -> None:
        try:
            self.coroutines[call].send(None)
        except StopIteration as end:
            self._on_handler_ended(call)
            self.step.returned(call, end.value)
        except Exception as exc:
            self._on_handler_ended(call)
            self.step.raised(call, exc)

    def _on_handler_ended(self, call: Call) -> None:
        self.under_way.remove(call)
        self.coroutines.pop(call, None)
        self._awake += 1

    def _cancel(self, call: Call) -> None:
        self.under_way.remove(call)
        self.cancelled.append(call.value)
        if call in self.coroutines:
            self.cancelled_handlers.append(self.coroutines.pop(call))
        self._awake += 1

    def _call_for(self, value: object) -> Call:
        return next(call for call in self.under_way if call.value == value)
