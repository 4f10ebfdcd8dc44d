"""The step with async handlers, state and timers for each key.

Theory. Handlers are calls, and slots make them as they make those of ``AsyncOperator``. The effects of a handler are
collected in ``Effects``: a transaction on the state of its key, changes of timers, side outputs. They wait with its
results. ``emit`` applies all of them in the task's own coroutine: state, timers, results, side outputs. Only then does
the key proceed, to a waiting record or to a timer that is due (see ``key_queues`` for the order). So a checkpoint
contains all effects of a handler, or none of them and its record.

A watermark waits for all handlers before it, and for the timers that are due at it, which fire before it too: the
fences of ``epochs``. Handlers of other keys after it do not wait.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from aflow.errors import FlowDefinitionError, OperatorError, readable, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import call_failed
from aflow.machines.calls.queues import CallQueue
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.machines.calls.step_functions import StepFunctions
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.base import RAISED, OperatorContext, StateSize
from aflow.operators.calls.async_process import (
    AsyncContext,
    AsyncKeyedProcess,
    Effects,
    resource_of,
)
from aflow.operators.calls.handlers.epochs import Epoch, WatermarkEpochs
from aflow.operators.calls.handlers.key_queues import KeyQueues
from aflow.operators.calls.handlers.stored import (
    HANDLERS,
    CapturedHandlers,
    TimerCall,
    restored,
    standing,
    timer_call,
)
from aflow.operators.calls.handlers.timers import HandlerTimers
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.handler_results import iterable
from aflow.operators.keyed_state import keyed_backend
from aflow.state.keyed_entries import CapturedRows, KeyedRows
from aflow.state.layouts import descriptions
from aflow.state.snapshot import Captured, OperatorSnapshot
from aflow.state.specs import declared_states
from aflow.state.transactions import Transactions


class AsyncProcessOperator(AsyncOperator):
    """Run an ``AsyncKeyedProcess``. Order, results, ``into``, cache and groups of ``settings`` have no effect.

    ``key_type`` is the type of the keys, which snapshots need unless keys are plain Python values.
    """

    def __init__(
        self,
        function: AsyncKeyedProcess[Any, Any, Any],
        settings: CallSettings,
        key_type: type[Hashable] | None = None,
    ) -> None:
        super().__init__(
            replace(settings, order=CallOrder.UNORDERED, results=CallResults.MANY, into=None)
        )
        self._is_keyed = True
        self._function: Final = copy.copy(function)
        self._resource: Final = resource_of(function)
        self._states: Final = declared_states(function)
        self._key_type = key_type
        self._to_close: Final = ExitStack()
        self._ended = False
        #: The effects of running attempts, and of handlers whose results were not emitted.
        self._effects: dict[Call, Effects] = {}
        self._timers: Final = HandlerTimers()
        self._key_queues: Final = KeyQueues(self._timers.due)
        self._epochs = WatermarkEpochs(MIN_TIMESTAMP)

    def _new_queue(self) -> CallQueue:
        return self._epochs

    def _functions(self) -> StepFunctions:
        return replace(
            super()._functions(),
            describe=_failure,
            is_fatal=self._is_fatal,
            convert=_results,
        )

    def _is_fatal(self, error: BaseException) -> bool:
        """Return True for errors of what a handler uses: state on disk, or a wrong use of it."""
        own = isinstance(error, OperatorError) and error.operator == self.name
        return own or isinstance(error, FlowDefinitionError)

    def _begin_epochs(self, watermark: Timestamp) -> None:
        self.scheduler.queue = self._epochs = WatermarkEpochs(watermark)

    def open(self, context: OperatorContext) -> None:
        """Raises ``OperatorError`` if the function's own ``open`` fails."""
        super().open(context)
        self._backend = keyed_backend(context, self._key_type)
        #: The watermarks of key groups that were restored from a subtask which was ahead of this one.
        self._ahead = no_group_ahead(context)
        self._to_close.callback(self._backend.close)
        self._transactions = Transactions(self._backend, self._states)
        try:
            self._function.open()
        except RAISED as exc:
            raise self._failed_in("open()", exc) from exc
        self._to_close.callback(self._close_function)

    def _close_function(self) -> None:
        try:
            self._function.close()
        except RAISED as exc:
            raise self._failed_in("close()", exc) from exc

    def _failed_in(self, where: str, cause: BaseException) -> OperatorError:
        return OperatorError(
            f"step {self.name!r} failed in {type(self._function).__name__}.{where}: {type(cause).__name__}: {cause}",
            operator=self.name,
        )

    def close(self) -> None:
        """Raises ``OperatorError`` if the function's own ``close`` fails."""
        with self._to_close:
            super().close()

    # ------------------------------------------------------------------------------------ told by the task

    def _put(self, calls: Sequence[Call]) -> None:
        self._set_time()
        self._put_in(calls, self._epochs.last)
        self.scheduler.make_ready(self._key_queues.admit(calls))

    def _put_in(self, calls: Sequence[Call], epoch: Epoch) -> None:
        """Put calls into a epoch; they are not made ready."""
        self.scheduler.register(calls)
        for call in calls:
            self._epochs.put_in(call, epoch)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self._received:
            return  # after a restore the inputs repeat watermarks that were restored
        self._received = timestamp
        self._ahead = self._ahead.after(
            self.watermark
        )  # the watermark of all handlers that were not emitted
        keys = self._timers.reached(timestamp)
        if not keys and not self.busy:
            self._epochs.passed(timestamp)
            self._emit_fence(Watermark(timestamp))
            return
        closed = self._epochs.last
        self._epochs.put_fence(Watermark(timestamp))
        self._set_time()
        self.scheduler.make_ready(
            following
            for key in keys
            if self._key_queues.begin(key, closed) and (following := self._next(key)) is not None
        )
        self._act()
        self.on_ready()

    def on_processing_time(self, now: Timestamp) -> None:
        super().on_processing_time(now)
        if not self._ended:
            fired = self._timers.fired(now)
            self._put([timer_call(TimeDomain.PROCESSING, at, key) for at, key in fired])
            self._set_alarm()
            self._act()
            self.on_ready()

    def on_input_end(self) -> None:
        self._ended = True

    def _set_alarm(self) -> None:
        if (at := self._timers.alarm) is not None and not self._ended:
            self._wake_at(at)

    # -------------------------------------------------------------------------------------------- handlers

    def invoke(self, call: Call) -> Awaitable[Any]:
        context = self.context
        effects = Effects(self.name, self._transactions.open(call.key), clocked=context.clocked)
        self._effects[call] = effects
        clock, epoch = context.clock, call.segment
        resource = (self._resource, self.context.resource)
        if not isinstance(call, TimerCall):
            watermark = self._watermark_of(call.key, epoch.before)
            ctx = AsyncContext[Any](
                effects, clock, call.timestamp, watermark, None, resource=resource
            )
            return self._function.process(call.value, ctx)
        timer = call.timer
        event = timer.domain is TimeDomain.EVENT
        watermark = self._watermark_of(call.key, epoch.ends if event else epoch.before)
        ctx = AsyncContext[Any](
            effects, clock, call.timestamp, watermark, timer.domain, resource=resource
        )
        return self._function.on_timer(timer.at, ctx)

    def _watermark_of(self, key: Hashable, watermark: Timestamp) -> Timestamp:
        """Return ``watermark``, or that of the former subtask of ``key`` if it was ahead of it."""
        return max(watermark, self._ahead.of(key, watermark)) if self._ahead else watermark

    def returned(self, call: Call, result: Any) -> None:
        if not call.done:
            self._effects[call].transaction.end()
            super().returned(call, result)

    def raised(self, call: Call, error: BaseException) -> None:
        if not call.done:
            self._drop(call)
            super().raised(call, error)

    def _cancel(self, call: Call) -> None:
        self._drop(call)
        super()._cancel(call)

    def _drop(self, call: Call) -> None:
        effects = self._effects.pop(call, None)
        if effects is not None:
            effects.transaction.drop()

    # --------------------------------------------------------------------------------------------- leaving

    def emit(self) -> None:
        """Apply and emit the effects of settled handlers, and let the next handlers of their keys start."""
        while self._epochs.has_out:
            super().emit()
        super().emit()
        self._set_alarm()
        self.on_ready()

    def _emit_run(self, run: list[Call]) -> None:
        sides = _Sides()
        for call in run:
            self._apply(call, sides)
        super()._emit_run(run)
        sides.emit(self.output.side)
        self._set_time()
        for call in run:
            if (following := self._next(call.key)) is not None:
                self.scheduler.make_ready((following,))

    def _apply(self, call: Call, sides: _Sides) -> None:
        timers, key = self._timers, call.key
        if isinstance(call, TimerCall):
            timers.delete(call.timer.domain, call.timer.at, key)
        if call.error is not None:
            self._drop(call)
            return
        effects = self._effects.pop(call)
        effects.transaction.commit()
        for change in effects.timers:
            (timers.set if change.there else timers.delete)(change.domain, change.at, key)
        for tag, value in effects.sides:
            sides.add(tag, value, call.timestamp)

    def _next(self, key: Hashable) -> Call | None:
        """Return the next handler of ``key``, whose last one took effect; None if there is none."""
        while True:
            following = self._key_queues.next(key)
            if following is None:
                self._timers.on_queue_empty(key)
                return None
            if isinstance(following, tuple):
                at, epoch = following
                call = timer_call(TimeDomain.EVENT, at, key)
                self._put_in((call,), epoch)
                return call
            if not isinstance(following, TimerCall) or self._timers.waits(following.timer.at, key):
                return following
            self._epochs.withdraw(following)  # the timer was deleted meanwhile

    # ---------------------------------------------------------------------------------------------- state

    def size(self) -> StateSize:
        """Each state of a key is an entry, and each record whose handler did not take effect."""
        states = sum(len(list(self._backend.keys(spec.name))) for spec in self._states)
        records = sum(not isinstance(call, TimerCall) for call in self._epochs.calls)
        return StateSize(
            entries=states + records,
            event_timers=self._timers.count(TimeDomain.EVENT),
            processing_timers=self._timers.count(TimeDomain.PROCESSING),
        )

    def declares(self) -> dict[str, bytes]:
        return dict(descriptions(self._states))

    def capture(self, *, changes: bool) -> Captured:
        """Raises ``CheckpointError`` for a value that cannot be encoded."""
        backend = self._backend
        rows = backend.capture(changes=changes)
        if changes and not self._states:
            rows = KeyedRows({}, ())  # the keys are not stored
        timers = self._timers.capture(changes=rows.keys is not None, beside=rows.keys or ())
        if timers is None:
            return self.capture(changes=False)
        captured = CapturedRows(backend.key_codec, rows, timers, self._stored_watermark())
        under_way = standing(self._epochs.calls)
        return CapturedHandlers(captured, self._stored, self.context.subtask, under_way)

    def _stored_watermark(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the newest watermark as operator state; not the end of time, before which calls have to be emitted."""
        received = self._received
        newest = self.watermark if received == MAX_TIMESTAMP else received
        return self._ahead.stored(newest, self.context.key_groups)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Run handlers again that had not taken effect, before all others.

        The watermark is the smallest one of the former subtasks; each key keeps that of its own subtask.
        """
        watermark, self._ahead = restored_watermarks(snapshot, self._received, self.context)
        self._received = watermark
        self._begin_epochs(watermark)
        self._backend.restore(snapshot.keyed)
        home = first = self._epochs.last
        if watermark > MIN_TIMESTAMP:
            # It may not have been emitted.
            self._epochs.put_fence(Watermark(watermark))
            first = self._epochs.last
        own = restored(snapshot, self._stored, self.context, home, first)
        in_line = {call.key for call, _ in own.records} | {key for key, _ in own.ringing}
        horizon = max([watermark, *(epoch.ends for epoch in own.epochs if epoch.ends is not None)])
        self._timers.restore(self._backend.key_codec, snapshot.keyed, horizon, in_line)
        ringing = [key for key, epoch in own.ringing if self._key_queues.begin(key, epoch)]
        for call, epoch in own.records:
            self._put_in((call,), epoch)
            self.scheduler.make_ready(self._key_queues.admit((call,)))
        for key in ringing:
            if (following := self._next(key)) is not None:
                self.scheduler.make_ready((following,))
        if not self._epochs.calls and HANDLERS not in snapshot.operator:
            self._begin_epochs(watermark)  # all subtasks had emitted their watermarks
        self._set_alarm()


class _Sides:
    """Values for side outputs, in order; those with timestamps apart from those without."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, bool], tuple[list[Any], list[Any]]] = {}

    def add(self, tag: str, value: object, timestamp: Timestamp | None) -> None:
        values, timestamps = self._columns.setdefault((tag, timestamp is not None), ([], []))
        values.append(value)
        timestamps.append(timestamp)

    def emit(self, send: Callable[[str, Batch[Any]], None]) -> None:
        for (tag, timed), (values, timestamps) in self._columns.items():
            send(tag, Batch(values, timestamps if timed else None))


def _results(given: Any) -> list[Any]:
    return [] if given is None else list(iterable(given))


def _failure(step: str, call: Call, error: BaseException) -> Exception:
    """Return the error that the job fails with: for a timer, one that names it."""
    if isinstance(error, OperatorError) and error.operator == step:
        return error
    if not isinstance(call, TimerCall):
        return call_failed(step, call, error)
    timer = call.timer
    return OperatorError(
        f"step {step!r} failed in the {timer.domain.value} timer at {timer.at} ({readable(timer.at)}) of key "
        f"{shown(timer.key)}: {type(error).__name__}: {error}",
        operator=step,
        key=timer.key,
        timestamp=timer.at,
    )
