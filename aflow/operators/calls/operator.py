"""The step that calls an async function for each record and does not wait for the calls.

The operator never awaits. It hands records to the ``CallScheduler``, which decides which call starts when and what each
record gets. The runtime has *slots*, coroutines that make one call at a time: a slot asks for a call (``take``), awaits
it (``invoke``), and reports its end (``returned``, ``raised``). Results are emitted by a mail, in the task's own
coroutine, many at once. So a call costs no task, no timer of its own and no mail.

State are the inputs of all calls whose results were not emitted, and those results that are there. A checkpoint neither
waits for calls nor loses them: a restored step emits the stored results, and calls for the other records again, before
all new ones. Each result is emitted once. The external effects of a call that was under way may happen twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aflow.machines.calls.cache import check_cache_key
from aflow.machines.calls.call import Call, calls_of
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.failures import call_failed
from aflow.machines.calls.limits import StepLimits
from aflow.machines.calls.queues import CallQueue, OrderedCalls, UnorderedCalls
from aflow.machines.calls.scheduler import CallScheduler
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Marker, Watermark
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, Operator, OperatorContext, StateSize
from aflow.operators.calls.emit import send_results, send_with_failures
from aflow.operators.calls.followed_calls import FollowedCalls
from aflow.operators.calls.functions import no_time, step_functions, with_resource
from aflow.operators.calls.handlers.keyed_handlers import KeyedHandlers
from aflow.operators.calls.markers import WaitingMarkers
from aflow.operators.calls.stored import StoredCalls
from aflow.operators.calls.stored_fences import CapturedCalls, StoredFences, restored_queue
from aflow.operators.calls.stored_results import ResultStore
from aflow.operators.calls.valid_keys import ValidKeys
from aflow.operators.first_call import FirstCall
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import Captured, OperatorSnapshot


def _noop(*_: object) -> None:
    """Do nothing: the callback that the runtime replaces."""


class AsyncOperator(Operator):
    """Call for each record of a subtask. All methods but ``take``, ``returned`` and ``raised`` run in its task.

    Those three are called by slots between two awaits. They only move calls within the scheduler; ``emit`` emits.
    """

    def __init__(self, settings: CallSettings, handlers: KeyedHandlers | None = None) -> None:
        self.settings = settings = handlers.adapt(settings) if handlers else settings
        #: The part for handlers with state and timers; None for calls of a function.
        self._handlers: Final = handlers
        #: True if records have keys.
        self._is_keyed = settings.order is CallOrder.BY_KEY or handlers is not None
        #: Called when calls may start that no slot has asked for; set by the runtime, as the next two are.
        self.on_ready: Callable[[], None] = _noop
        #: Called with a running call whose result does not count any more.
        self.on_cancel: Callable[[Call], None] = _noop
        #: Called when ``emit`` has something to do.
        self.on_settled: Callable[[], None] = _noop
        #: Set by the task when it starts to wait until the step is no longer full.
        self.input_waits = False
        #: True from ``on_settled`` to ``emit``.
        self.is_emit_requested = False
        #: The last watermark received or restored (epoch ms).
        self._received = MIN_TIMESTAMP
        #: True while the input is idle.
        self._idle = False
        self._valid_keys: Final = ValidKeys()
        self._markers: Final = WaitingMarkers()
        #: Set by the runtime: its tracer.
        self.followed: Final = FollowedCalls()
        #: The time to which the alarm is set (epoch ms).
        self._alarm_at: Timestamp | None = None
        cache = settings.cache
        self._cache_key: Callable[[Any], Any] | None = (
            None
            if cache is None or cache.key is None
            else FirstCall(self, "_cache_key", cache.key, "Cache(key=…)")
        )

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        settings = self.settings
        limited = settings.adaptive or settings.rate or settings.breaker
        #: True if the starts of calls are limited by more than the capacity.
        self.is_limited = bool(limited)
        self._stored = StoredCalls(context.name, settings.codec, settings.typed, self._is_keyed)
        self._results = ResultStore(context.name, settings, context.warn)
        functions = step_functions(settings, context)
        if self._handlers is not None:
            functions = self._handlers.functions(functions)
        self.scheduler: CallScheduler = CallScheduler(
            settings,
            self._new_queue(),
            limits=StepLimits(settings, context.buckets) if limited else None,
            functions=functions,
            has_handlers=self._handlers is not None,
        )
        if self._handlers is not None:
            self._handlers.open(context, self.scheduler, self._stored)
        self._is_timed = self.scheduler.is_timed
        #: True if slots may use ``scheduler.plain_parts`` in place of ``take`` and ``returned``.
        self.is_plain = self.scheduler.is_plain
        self._steady = context.steady if limited else no_time

    def close(self) -> None:
        """Raises ``OperatorError`` if ``close`` of the function with handlers fails."""
        self.scheduler.close()
        if self._handlers is not None:
            self._handlers.close()

    def _new_queue(self) -> CallQueue:
        if self._handlers is not None:
            return self._handlers.queue
        return OrderedCalls() if self.settings.order is CallOrder.ORDERED else UnorderedCalls()

    # ------------------------------------------------------------------------------------------- state

    @property
    def calls(self) -> CallCounters:
        """The counters, without the present numbers of calls."""
        return self.scheduler.counters

    @property
    def running(self) -> int:
        """The number of running calls whose results count."""
        return self.scheduler.running

    @property
    def started(self) -> int:
        """The number of attempts that had started when ``waiting`` was read last."""
        return self.scheduler.attempts.counters.calls

    @property
    def has_handlers(self) -> bool:
        """True if calls are those of handlers, for records and timers."""
        return self._handlers is not None

    @property
    def busy(self) -> bool:
        """True while the step holds records or watermarks."""
        return len(self.scheduler.queue) > 0

    @property
    def full(self) -> bool:
        """True while the task should read no more input."""
        return self.scheduler.full

    @property
    def waiting(self) -> int:
        """The number of calls that could start if slots asked for them."""
        self._set_time()
        return self.scheduler.waiting

    @property
    def held(self) -> bool:
        """True while no call may start for another record: its result would have no room downstream."""
        return self.scheduler.blocked

    @held.setter
    def held(self, held: bool) -> None:
        self.scheduler.blocked = held

    def counted(self) -> CallCounters:
        """Return the counters, with the present numbers of calls."""
        return self.scheduler.count()

    def size(self) -> StateSize:
        """Each record whose result was not emitted is an entry, and each moment that a call waits for is a timer."""
        if self._handlers is not None:
            return self._handlers.size()
        return StateSize(len(self.scheduler.queue.calls), processing_timers=self.scheduler.timers)

    def declares(self) -> Mapping[str, bytes] | None:
        return None if self._handlers is None else self._handlers.declares()

    def readable_state(self) -> ReadableState | None:
        return None if self._handlers is None else self._handlers.readable_state()

    def stored_state(
        self, snapshot: OperatorSnapshot, context: OperatorContext
    ) -> ReadableState | None:
        return None if self._handlers is None else self._handlers.stored_state(snapshot, context)

    # ----------------------------------------------------------------------------- called by the task

    def on_start(self) -> None:
        """The runtime can emit: request ``emit`` for restored watermarks that no call precedes.

        A request that was made while the task was built was not received: a source without splits ends event time
        then.
        """
        self.is_emit_requested = False
        self._look_for_output()

    def process(self, batch: Batch[Any]) -> None:
        calls = calls_of(batch, self._keys_of(batch) if self._is_keyed else None)
        self.followed.arrived(calls, self.name)
        self._put(calls)
        self._act()
        self.on_ready()

    def _put(self, calls: Sequence[Call]) -> None:
        self._set_time()
        self._set_cache_keys(calls)
        if self._handlers is None:
            self.scheduler.put(calls)
        else:
            self._handlers.put(calls)

    def _set_cache_keys(self, calls: Iterable[Call]) -> None:
        if self.settings.cache is not None:
            for call in calls:
                call.cache_key = self._key_for_cache(call)

    def _key_for_cache(self, call: Call) -> object:
        try:
            key = call.value if self._cache_key is None else self._cache_key(call.value)
            check_cache_key(key)
        except RAISED as exc:
            raise call_failed(self.name, call, exc) from exc
        return key

    def _keys_of(self, batch: Batch[Any]) -> Sequence[Any]:
        keys = self.keys_of(batch)
        if (invalid := self._valid_keys.first_invalid(keys)) is not None:
            index, error = invalid
            raise self.failure_at(error, batch, index) from error
        return keys

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self._received:
            return  # after a restore the inputs repeat watermarks that were restored
        self._received = timestamp
        self._set_time()
        if self._handlers is not None:
            self.pieces.run(self._fire_handlers(self._handlers, timestamp))
        elif self.busy:
            self._put_fence(Watermark(timestamp))
        else:
            super().on_watermark(timestamp)

    def _fire_handlers(self, handlers: KeyedHandlers, timestamp: Timestamp) -> Iterator[int]:
        if not (yield from handlers.on_watermark(timestamp, self.watermark)):
            super().on_watermark(timestamp)
        self._act()

    def on_idle(self) -> None:
        self._idle = True
        self.scheduler.on_quiet(True)
        if self.busy:
            self._put_fence(IDLE)
        else:
            super().on_idle()
        self._act()

    def on_active(self) -> None:
        self._idle = False
        self.scheduler.on_quiet(False)
        if self.busy:
            self._put_fence(ACTIVE)
        else:
            super().on_active()

    def on_marker(self, marker: Marker) -> None:
        if calls := [one for one in self.scheduler.queue.calls if not one.is_timer]:
            self._markers.put(marker, calls)
        else:
            super().on_marker(marker)

    def _put_fence(self, fence: Watermark | Idle | Active) -> None:
        self.scheduler.queue.put_fence(fence)
        self._look_for_output()

    def on_input_end(self) -> None:
        """The input has ended, and the task waits for the calls. Repeated until none is left."""
        if self._handlers is not None:
            self._handlers.on_input_end()
        self.scheduler.on_quiet(True)
        self._act()

    def on_stop(self) -> None:
        """The job stops. From now on the time of calls runs also while the circuit breaker delays them.

        Until the service answers again that wait has no bound, and neither would the stop.
        """
        self._set_time()
        self.scheduler.on_stop()
        self._act()

    def on_processing_time(self, now: Timestamp) -> None:
        self._alarm_at = None
        self._set_time()
        self.scheduler.on_time()
        if self._handlers is not None:
            self.pieces.run(self._fire_on_time(self._handlers, now))
        else:
            self._act()

    def _fire_on_time(self, handlers: KeyedHandlers, now: Timestamp) -> Iterator[int]:
        yield from handlers.on_time(now)
        self._act()

    def resume(self) -> None:
        """There is room downstream again."""
        self.scheduler.unblock()
        self._act()

    # ------------------------------------------------------------------------------- called by slots

    def take(self) -> Call | None:
        """Start and return the next call; None if none may start now."""
        # Hot path (benchmark `async`), as are `returned` and `emit`.
        if not self._is_timed:
            return self.scheduler.take()
        self._set_time()
        call = self.scheduler.take()
        self._act()
        return call

    def invoke(self, call: Call) -> Awaitable[Any]:
        """Return what a slot awaits for ``call``. Errors of this, and of awaiting it, are reported to ``raised``."""
        if self._handlers is not None:
            return self._handlers.invoke(call)
        settings = self.settings
        if settings.uses_resource:
            return settings.call(call.value, self.context.resource)
        return settings.call(call.value)

    def invoke_followed(self, call: Call) -> Awaitable[Any]:
        """As ``invoke``, in a job that traces some calls."""
        return self.followed.invoke(call, partial(self.invoke, call))

    @property
    def plain_call(self) -> Callable[[Any], Awaitable[Any]]:
        """The function of a record's value that a slot awaits in a plain step."""
        settings = self.settings
        if settings.uses_resource:
            return partial(with_resource, settings.call, self.context.resource)
        return settings.call

    def returned(self, call: Call, result: Any) -> None:
        """The call returned ``result``. It counts unless the time of the record is over."""
        self._set_time()
        if self._handlers is not None:
            self._handlers.on_returned(call)
        self.scheduler.returned(call, result)
        self._act()

    def raised(self, call: Call, error: BaseException) -> None:
        """The call failed. It counts unless the time of the record is over."""
        self._set_time()
        if self._handlers is not None:
            self._handlers.discard(call)
        self.scheduler.raised(call, error)
        self._act()

    def misused(self, call: Call, error: BaseException) -> None:
        """The function of the step returns nothing that can be awaited: the job fails, whatever the policy."""
        self.scheduler.fail(call, error)
        self._act()

    # ------------------------------------------------------------------------------------ instructions

    def _set_time(self) -> None:
        if self._is_timed:
            self.scheduler.advance(self.context.clock.now(), self._steady())

    def _act(self) -> None:
        """Carry out the instructions of the scheduler."""
        instructions = self.scheduler.instructions
        if instructions.cancelled:
            cancelled, instructions.cancelled = instructions.cancelled, []
            for call in cancelled:
                if self._handlers is not None:
                    self._handlers.discard(call)
                self.on_cancel(call)
        if (at := instructions.wake_at) is not None:
            instructions.wake_at = None
            self._wake_at(at)
        if instructions.wakes:
            instructions.wakes = False
            self.on_ready()
        if not self.is_emit_requested:
            self._look_for_output()
        instructions.makes_room = False

    def _wake_at(self, at: Timestamp) -> None:
        if self._alarm_at is None or at < self._alarm_at:
            self._alarm_at = at
            self.context.alarm.set(at)

    def _look_for_output(self) -> None:
        """Request ``emit`` if there is something to emit, to raise, or room for input that waits."""
        if self.is_emit_requested:
            return
        scheduler = self.scheduler
        if scheduler.instructions.failure is not None or scheduler.queue.has_out:
            self.request_emit()
        elif scheduler.instructions.makes_room or (self.input_waits and not scheduler.full):
            self.input_waits = False
            self.request_emit()

    def request_emit(self) -> None:
        """Request ``emit``."""
        self.is_emit_requested = True
        self.on_settled()

    # ---------------------------------------------------------------------------------------- emission

    def emit(self) -> None:
        """Emit the results of settled calls, and the watermarks between them. Raises the failure of the job."""
        self.is_emit_requested = False
        scheduler = self.scheduler
        scheduler.settle_completed()
        if scheduler.instructions.failure is not None:
            raise scheduler.instructions.failure
        for one in scheduler.queue.take():
            if isinstance(one, list):
                self.followed.emit(one, self._emit_run, self.settings.on_error)
                if self._markers:
                    self._emit_markers(one)
            else:
                self._emit_fence(one)
        if self._handlers is not None:
            self._act()
        elif scheduler.in_groups:
            self.on_ready()  # if the step is still full, no record joins the group

    def _emit_run(self, run: list[Call]) -> None:
        if self._handlers is None:
            self._emit_results(run)
        else:
            self._set_time()
            self._handlers.emit(run, self._emit_results)

    def _emit_markers(self, run: list[Call]) -> None:
        for marker in self._markers.emitted(run, lambda: self.scheduler.queue.calls):
            super().on_marker(marker)

    def _emit_results(self, run: list[Call]) -> None:
        if self.scheduler.without_results:
            self.scheduler.without_results -= send_with_failures(
                run, self.settings, self.output, self.name, self.context.clock.now
            )
        else:
            send_results(run, self.settings, self.output, self.name)

    def _emit_fence(self, fence: Watermark | Idle | Active) -> None:
        match fence:
            case Watermark(timestamp):
                super().on_watermark(timestamp)
            case Idle():
                super().on_idle()
            case Active():
                super().on_active()

    # --------------------------------------------------------------------------------------- snapshots

    def capture(self, *, changes: bool) -> Captured:
        """Return the records whose results were not emitted, those results, and the watermarks between the records.

        They are few, so all of them are captured each time.
        """
        if self._handlers is not None:
            return self._handlers.capture(self._received, self.watermark, changes=changes)
        self.scheduler.settle_completed()  # which converts results
        queue, subtask = self.scheduler.queue, self.context.subtask
        calls = queue.calls
        fences = StoredFences.of(
            queue.fences, self.context, received=self._received, idle=self._idle
        )
        results = self._results.capture(subtask, calls)
        return CapturedCalls(self._stored, subtask, calls, fences, results)

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Call for the restored records without results before all others. Their watermarks follow them again."""
        if self._handlers is not None:
            self._received = yield from self._handlers.restore_in_pieces(snapshot, self._received)
            self._act()
            return
        results = self._results.restored(snapshot)
        for one in restored_queue(snapshot, self._stored, results, self.context):
            if isinstance(one, Watermark):
                self._received = one.timestamp
                self.scheduler.queue.put_fence(one)  # emitted from ``on_start`` on
            else:
                self._set_time()
                self._set_cache_keys(call for call in one if not call.has_outcome)
                self.scheduler.restore(one)
            yield
        self._act()
