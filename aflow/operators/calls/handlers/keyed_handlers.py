"""The part of ``AsyncOperator`` for async handlers with state and timers for each key.

Theory. Handlers are calls of the operator, and slots make them as they make others. The effects of a handler are
collected in ``Effects``: a transaction on the state of its key, changes of timers, side outputs. They wait with its
results. ``emit`` applies all of them in the task's own coroutine: state, timers, results, side outputs. Only then does
the key proceed, to a waiting record or to a timer that is due (see ``key_queues`` for the order). So a checkpoint
contains all effects of a handler, or none of them and its record.

A watermark waits for all handlers before it, and for the timers that are due at it, which fire before it too: the
fences of ``epochs``. Handlers of other keys after it do not wait.
"""

from __future__ import annotations

import copy
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from aflow.errors import FlowDefinitionError, OperatorError, described, readable, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import call_failed
from aflow.machines.calls.scheduler import CallScheduler
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.machines.calls.step_functions import StepFunctions
from aflow.machines.calls.user_limiter import LimiterError
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
    running_handlers,
    timer_call,
)
from aflow.operators.calls.handlers.timers import HandlerTimers
from aflow.operators.calls.stored import StoredCalls
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.handler_results import iterable
from aflow.operators.keyed_state import BackendState, keyed_backend, stored_backend
from aflow.operators.pieces import slices
from aflow.state.keyed_entries import CapturedRows, KeyedRows
from aflow.state.layouts import descriptions
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import Captured, OperatorSnapshot
from aflow.state.specs import declared_states
from aflow.state.transactions import Transactions


class KeyedHandlers:
    """The handlers of an ``AsyncKeyedProcess`` in one subtask.

    The operator calls the methods in its task, and carries out the instructions of the scheduler afterwards.
    ``key_type`` is the type of the keys, which snapshots need unless keys are plain Python values.
    """

    def __init__(
        self, function: AsyncKeyedProcess[Any, Any, Any], key_type: type[Hashable] | None = None
    ) -> None:
        self._function: Final = copy.copy(function)
        self._resource: Final = resource_of(function)
        self._states: Final = declared_states(function)
        self._key_type = key_type
        self._to_close: Final = ExitStack()
        self._ended = False
        #: The effects of running attempts, and of handlers whose results were not emitted.
        self._effects: dict[Call, Effects] = {}
        #: The queue of the scheduler; replaced by ``restore``.
        self.queue = WatermarkEpochs(MIN_TIMESTAMP)

    # ---------------------------------------------------------------------------------------------- set-up

    def adapt(self, settings: CallSettings) -> CallSettings:
        """Return the settings of the operator: order, kind of results and ``into`` have no effect."""
        return replace(settings, order=CallOrder.UNORDERED, results=CallResults.MANY, into=None)

    def functions(self, functions: StepFunctions) -> StepFunctions:
        """Return ``functions`` of the operator with those that handlers replace."""
        return replace(
            functions, describe=_failure, is_fatal=self._is_fatal, convert=_handler_results
        )

    def _is_fatal(self, error: BaseException) -> bool:
        """Return True for errors of what a handler uses: state on disk, or a wrong use of it."""
        own = isinstance(error, OperatorError) and error.operator == self._context.name
        return own or isinstance(error, FlowDefinitionError)

    def open(self, context: OperatorContext, scheduler: CallScheduler, stored: StoredCalls) -> None:
        """Raises ``OperatorError`` if the function's own ``open`` fails."""
        self._context = context
        self._scheduler = scheduler
        self._stored = stored
        self._backend = keyed_backend(context, self._key_type)
        self._timers = HandlerTimers(self._backend.timers)
        self._key_queues = KeyQueues(self._timers.due)
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
        step = self._context.name
        return OperatorError(
            f"step {step!r} failed in {type(self._function).__name__}.{where}: {described(cause)}",
            operator=step,
        )

    def close(self) -> None:
        """Raises ``OperatorError`` if the function's own ``close`` fails."""
        self._to_close.close()

    # ----------------------------------------------------------------------------------------------- input

    def put(self, calls: Sequence[Call]) -> None:
        """Add calls for records, or for processing timers, to the open epoch."""
        self._put_in(calls, self.queue.last)
        self._scheduler.make_ready(self._key_queues.admit(calls))

    def _put_in(self, calls: Sequence[Call], epoch: Epoch) -> None:
        """Put calls into ``epoch``; they are not made ready."""
        self._scheduler.register(calls)
        for call in calls:
            self.queue.put_in(call, epoch)

    def on_watermark(self, timestamp: Timestamp, emitted: Timestamp) -> Generator[int, None, bool]:
        """Return True if ``timestamp`` was queued, after handlers that run and timers that are due at it.

        In pieces, between which nothing may be emitted. ``emitted`` is the last watermark that the operator emitted
        (epoch ms).
        """
        self._ahead = self._ahead.after(emitted)
        keys = yield from self._timers.reached(timestamp)
        if not keys and not len(self.queue):
            self.queue.passed(timestamp)
            return False
        closed = self.queue.last
        self.queue.put_fence(Watermark(timestamp))
        for some in slices(keys):
            self._start_next(key for key in some if self._key_queues.begin(key, closed))
            yield 0
        return True

    def on_time(self, now: Timestamp) -> Iterator[int]:
        """Put the handlers of processing timers that the clock has reached, in pieces."""
        if not self._ended:
            for fired in self._timers.fired(now):
                self.put([timer_call(TimeDomain.PROCESSING, at, key) for at, key in fired])
                yield 0
            self._scheduler.instructions.wakes = True
            self._set_alarm()

    def on_input_end(self) -> None:
        """No processing timer fires from now on."""
        self._ended = True

    def _set_alarm(self) -> None:
        if (at := self._timers.alarm) is not None and not self._ended:
            self._scheduler.instructions.wake_by(at)

    # -------------------------------------------------------------------------------------------- handlers

    def invoke(self, call: Call) -> Awaitable[Any]:
        """Return what a slot awaits: the handler, with a context of its own."""
        context = self._context
        effects = Effects(context.name, self._transactions.open(call.key), clocked=context.clocked)
        self._effects[call] = effects
        clock, epoch = context.clock, call.segment
        resource = (self._resource, context.resource)
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

    def on_returned(self, call: Call) -> None:
        """The handler has returned: its effects are complete."""
        if not call.done:
            self._effects[call].transaction.end()

    def discard(self, call: Call) -> None:
        """Discard the effects of an attempt that failed or was cancelled."""
        effects = self._effects.pop(call, None)
        if effects is not None:
            effects.transaction.drop()

    # ---------------------------------------------------------------------------------------------- output

    def emit(self, run: list[Call], emit_results: Callable[[list[Call]], None]) -> None:
        """Apply the effects of ``run``, emit its results and side outputs, and let the keys proceed."""
        sides = _Sides()
        for call in run:
            self._apply(call, sides)
        emit_results(run)
        sides.emit(self._context.output.side)
        self._start_next(call.key for call in run)
        self._set_alarm()

    def _apply(self, call: Call, sides: _Sides) -> None:
        timers, key = self._timers, call.key
        if isinstance(call, TimerCall):
            timers.delete(call.timer.domain, call.timer.at, key)
        if call.error is not None:
            self.discard(call)
            return
        effects = self._effects.pop(call)
        effects.transaction.commit()
        for change in effects.timers:
            (timers.set if change.there else timers.delete)(change.domain, change.at, key)
        for tag, value in effects.sides:
            sides.add(tag, value, call.timestamp)

    def _start_next(self, keys: Iterable[Hashable]) -> None:
        """Make the next handler of each key ready."""
        self._scheduler.make_ready(call for key in keys if (call := self._next(key)) is not None)
        self._scheduler.instructions.wakes = True

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
            self.queue.withdraw(following)  # the timer was deleted meanwhile

    # ---------------------------------------------------------------------------------------------- state

    def size(self) -> StateSize:
        """Each state of a key is an entry, and each record whose handler did not take effect."""
        states = sum(len(list(self._backend.keys(spec.name))) for spec in self._states)
        records = sum(not isinstance(call, TimerCall) for call in self.queue.calls)
        return StateSize(
            entries=states + records,
            event_timers=self._timers.count(TimeDomain.EVENT),
            processing_timers=self._timers.count(TimeDomain.PROCESSING),
        )

    def readable_state(self) -> ReadableState:
        """As ``Operator.readable_state``: the committed state, without that of running handlers."""
        return BackendState(self._backend, [state.name for state in self._states])

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        """As ``Operator.stored_state``."""
        return stored_backend(snapshot, context, self._states, self._key_type)

    def declares(self) -> dict[str, bytes]:
        return dict(descriptions(self._states))

    def capture(self, received: Timestamp, emitted: Timestamp, *, changes: bool) -> Captured:
        """Capture state, timers and running handlers, given the last watermarks received and emitted (epoch ms).

        Raises ``CheckpointError`` for a value that cannot be encoded.
        """
        backend = self._backend
        rows = backend.capture(changes=changes)
        if changes and not self._states:
            rows = KeyedRows({}, ())  # the keys are not stored
        timers = self._timers.capture(changes=rows.keys is not None, beside=rows.keys or ())
        if timers is None:
            del rows  # otherwise it would be completed at once
            return self.capture(received, emitted, changes=False)
        # The end of time is not stored: calls have to be emitted before it.
        watermark = emitted if received == MAX_TIMESTAMP else received
        ahead = self._ahead.stored(watermark, self._context.key_groups)
        captured = CapturedRows(backend.key_codec, rows, timers, ahead, more=self._timers.gather)
        return CapturedHandlers(
            captured, self._stored, self._context.subtask, running_handlers(self.queue.calls)
        )

    def restore_in_pieces(
        self, snapshot: OperatorSnapshot, received: Timestamp
    ) -> Generator[None, None, Timestamp]:
        """Run handlers again that had not taken effect, before all others. Return the watermark that was received.

        It is the smallest one of the former subtasks, or ``received``; each key keeps that of its own subtask.
        """
        watermark, self._ahead = restored_watermarks(snapshot, received, self._context)
        self._begin_epochs(watermark)
        yield from self._backend.restore_in_pieces(snapshot.keyed)
        home = first = self.queue.last
        if watermark > MIN_TIMESTAMP:
            # It may not have been emitted.
            self.queue.put_fence(Watermark(watermark))
            first = self.queue.last
        own = restored(snapshot, self._stored, self._context, home, first)
        queued = {call.key for call, _ in own.records} | {key for key, _ in own.firing}
        horizon = max([watermark, *(epoch.ends for epoch in own.epochs if epoch.ends is not None)])
        yield from self._timers.restore_in_pieces(
            self._backend.key_codec, snapshot.keyed, horizon, queued
        )
        firing = [key for key, epoch in own.firing if self._key_queues.begin(key, epoch)]
        for call, epoch in own.records:
            self._put_in((call,), epoch)
            self._scheduler.make_ready(self._key_queues.admit((call,)))
        self._start_next(firing)
        if not self.queue.calls and HANDLERS not in snapshot.operator:
            self._begin_epochs(watermark)  # all subtasks had emitted their watermarks
        self._set_alarm()
        return watermark

    def _begin_epochs(self, watermark: Timestamp) -> None:
        self._scheduler.queue = self.queue = WatermarkEpochs(watermark)


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


def _handler_results(given: Any) -> list[Any]:
    return [] if given is None else list(iterable(given))


def _failure(step: str, call: Call, error: BaseException) -> Exception:
    """Return the error that the job fails with: for a timer, one that names it."""
    if isinstance(error, OperatorError) and error.operator == step:
        return error
    if not isinstance(call, TimerCall) or isinstance(error, LimiterError):
        return call_failed(step, call, error)
    timer = call.timer
    return OperatorError(
        f"step {step!r} failed in the {timer.domain.value} timer at {timer.at} ({readable(timer.at)}) of key "
        f"{shown(timer.key)}: {described(error)}",
        operator=step,
        key=timer.key,
        timestamp=timer.at,
    )
