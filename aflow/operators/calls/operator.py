"""The step that calls an async function for each record, and goes on while calls are under way.

The operator never waits. Records that come in become calls in a queue, which knows in which order results leave. The
runtime has *slots*, coroutines that each make one call at a time: a slot asks for the next call (``take``), awaits it
(``invoke``), and says what came of it (``returned``, ``raised``). What may leave then is emitted by a mail, in the
task's own coroutine, many results at once. So a call costs no task, no timer of its own, no hop through the mailbox.

State are the inputs of all calls whose results were not emitted. A checkpoint neither waits for calls nor loses them: a
restored step calls for those records again, before all others, and each result is emitted once. What a call does in
the world outside it may do twice.

One moment wakes the step: the earliest deadline or retry. The time of an attempt begins when a slot has taken the call,
so it does not run while the call waits for a slot or a limit. An attempt whose time is up has failed with a
``TimeoutError``, and the retry policy decides. A record's time is up ``timeout`` after its first attempt
began, whatever retries are left; its slot is free at once. What an attempt says after that counts no more. As the time
runs, nothing of the step's own may use it up: a call that is to be made again goes before those that were not made yet,
and does not wait for room behind the step. There are no more of them than records here, so that is bounded too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final

from aflow.errors import OperatorError
from aflow.machines.calls.breaker import CircuitOpen
from aflow.machines.calls.call import Call
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.deadlines import Deadlines
from aflow.machines.calls.retry import Attempt, pause
from aflow.machines.calls.settings import CallResults, CallSettings
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, OperatorContext, StateSize
from aflow.operators.calls.in_flight import RecordsInFlight, calls_of, nobody
from aflow.operators.calls.leaving import attempt_timed_out, not_awaited, timed_out
from aflow.operators.calls.limited import StepLimits
from aflow.operators.handler_results import iterable

#: To look it up in its enum takes 0.1 µs on Python 3.11, and that is done for each call.
_MANY: Final = CallResults.MANY

#: How many records that no call is made for are dealt with before others have the loop.
_AT_ONCE: Final = 100

#: Of an adaptive step, calls for which records may be here however few may be under way: a limit that is low for now
#: should not stop the input.
_AT_LEAST: Final = 500

#: Stands for a line in which nobody is.
_NOBODY: Final[deque[Call]] = deque(maxlen=0)

#: What calls give that forgot to await, or yield where one result is wanted.
NOT_AWAITED: Final = frozenset({CoroutineType, AsyncGeneratorType})


class AsyncOperator(RecordsInFlight):
    """Calls for each record, in a subtask. Everything but ``take``, ``returned`` and ``raised`` runs in its task.

    Those three are called by slots, between two awaits of theirs: they only move calls within the operator, and what
    leaves it leaves by ``emit``.
    """

    def __init__(self, settings: CallSettings) -> None:
        super().__init__(settings)
        #: How many slots are making a call whose result counts.
        self.running = 0
        #: Called when calls may begin that nobody has asked for; given by the runtime, as the next one is.
        self.on_ready: Callable[[], None] = nobody
        #: Called with a call that is under way and counts no more.
        self.on_cancel: Callable[[Call], None] = nobody
        #: Calls that may be made now, in order.
        self._ready: deque[Call] = deque()
        #: Calls that are to be made again now. Their time runs, so they go first, and also while the step is held.
        self._repeats: deque[Call] = deque()
        #: How many records and fences may be here, for each call that may be under way.
        self._share = 2
        #: None for a step whose calls are limited by their number only.
        self._limits: StepLimits | None = None
        #: True if more has to be done for each attempt than to make it.
        self._watched = (
            settings.timeout is not None
            or settings.attempt_timeout is not None
            or settings.deadline is not None
            or settings.retry is not None
        )
        #: True if the retry policy wants to see what calls have returned.
        self._sees_results = getattr(settings.retry, "on_result", None) is not None
        self._deadlines: Deadlines[Call] = Deadlines()
        self._retries: Deadlines[Call] = Deadlines()
        #: When the attempts under way have to end; None if their time is not limited.
        self._attempts: Deadlines[Call] | None = (
            None if settings.attempt_timeout is None else Deadlines()
        )
        #: Since when each call waits in a job that stops (epoch ms); None while the job does not stop.
        self._since: dict[Call, Timestamp] | None = None
        #: What the alarm is set to (epoch ms).
        self._alarm_at: Timestamp | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        settings = self.settings
        if settings.adaptive or settings.rate or settings.breaker:
            self._limits = StepLimits(settings, context)

    # ------------------------------------------------------------------------------------ told by the task

    @property
    def full(self) -> bool:
        """True while the task should take no more input."""
        calls = max(self._capacity, min(self.settings.capacity, _AT_LEAST))
        return self._queue.full(self._share * calls)

    @property
    def waiting(self) -> int:
        """How many calls could begin now, if somebody asked for them."""
        return self._wanted(len(self._repeats) + (0 if self.held else len(self._ready)))

    def _wanted(self, ready: int) -> int:
        """How many slots are to ask, with so many calls ready. With limits one, who has the next one ask in turn."""
        if self._failure is not None:
            return 0
        most = self._room() if self._limits is None else min(1, self._room())
        return max(0, min(ready, most))

    @property
    def _capacity(self) -> int:
        """How many calls may be under way now."""
        return self.settings.capacity if self._limits is None else self._limits.capacity

    def counted(self) -> CallCounters:
        """What was counted until now, and how many calls are under way now."""
        calls = self.calls
        calls.in_flight = self.running
        calls.waiting = len(self._queue.calls) - self.running
        calls.limit = self._capacity
        return calls

    def process(self, batch: Batch[Any]) -> None:
        self._put(calls_of(batch, None if self._turns is None else self._keys_of(batch)))
        self.on_ready()

    def _put(self, calls: Sequence[Call]) -> None:
        if self._watched:
            for call in calls:
                call.attempt = 0
            if self._since is not None:
                self._since.update(dict.fromkeys(calls, self.context.clock.now()))
        super()._put(calls)

    def _make_ready(self, calls: Iterable[Call]) -> None:
        """Let ``calls`` be made as soon as there is a slot: it is their turn."""
        self._ready.extend(calls)

    def _make_again(self, calls: Iterable[Call]) -> None:
        """Let ``calls``, which have waited for their next attempt, be made before all others."""
        self._repeats.extend(calls)

    def on_input_end(self) -> None:
        """The input has ended, and the task waits for the calls. Said again and again until none is left."""

    def on_stop(self) -> None:
        """The job stops. From now on the time of calls runs also while the circuit breaker keeps them waiting.

        Until the service answers again that wait has no end, and neither would the stop.
        """
        if self._since is None and self.settings.breaker is not None:
            self._since = dict.fromkeys(self._queue.calls, self.context.clock.now())
            self.on_ready()

    def on_processing_time(self, now: Timestamp) -> None:
        """Time is up for some calls, others are to be made again."""
        self._alarm_at = None
        for call in self._deadlines.due(now):
            self._time_is_up(call)
        for call in [] if self._attempts is None else self._attempts.due(now):
            self._attempt_is_up(call)
        self._make_again(self._retries.due(now))
        for waiting in (self._deadlines, self._retries, self._attempts):
            if waiting is not None and (earliest := waiting.earliest) is not None:
                self._wake_at(earliest)
        self.on_ready()
        if self._limits is not None and not self.waiting:
            self._limits.leave()

    def resume(self) -> None:
        """There is room behind the step again."""
        if self.held and self._failure is None:
            self.held = False
            self.on_ready()

    # ------------------------------------------------------------------------------------- asked by slots

    def take(self) -> Call | None:
        """The next call to make; None if none may begin now."""
        # Hot path (benchmark `async`), as are `returned` and `_settle`.
        if self._limits is not None:
            return self._take_limited(self._limits)
        while self.running < self.settings.capacity:
            ready = self._line_up() if self.held or self._repeats else self._ready
            if not ready:
                return None
            call = ready.popleft()
            if not self._watched or self._begins(call):
                self.running += 1
                self.calls.calls += 1
                if self._attempts is not None:
                    self._begin_attempt(call, self._attempts)
                return call
        return None

    def _begin_attempt(self, call: Call, attempts: Deadlines[Call]) -> None:
        """The time of an attempt begins."""
        until = self.context.clock.now() + (self.settings.attempt_timeout or 0)
        attempts.set(call, until)
        self._wake_at(until)

    def _take_limited(self, limits: StepLimits) -> Call | None:
        refused = 0
        while self._room() > 0 and (ready := self._line_up()):
            if refused == _AT_ONCE:
                self.on_ready()
                return None
            refused += 1
            call = ready[0]
            if self._is_late(call):
                ready.popleft()
                continue
            try:
                if not self._may_begin(limits, call):
                    return None
            except CircuitOpen as exc:
                ready.popleft()
                self._fail_fast(call, exc)
                continue
            ready.popleft()
            if not self._watched or self._begins(call):
                self.running += 1
                self.calls.calls += 1
                if self._attempts is not None:
                    self._begin_attempt(call, self._attempts)
                self.on_ready()  # only one asks at a time
                return call
            limits.ended(call, None, self.running + 1, withdrawn=True)
        limits.leave()
        return None

    def _line_up(self) -> deque[Call]:
        """Those of whom the first one is next. A held step begins with no record, and goes on with those begun."""
        if self._failure is not None:
            return _NOBODY
        return self._repeats or (_NOBODY if self.held else self._ready)

    def _may_begin(self, limits: StepLimits, call: Call) -> bool:
        """Whether the limits let the next call begin now; if not, they are asked again in time."""
        try:
            wait = limits.wait(call, self.running, self._cost(limits, call))
        except CircuitOpen:
            raise
        except RAISED as exc:
            self._fail(self._error(call, exc), exc)
            return False
        if wait:
            self._wake_at(self.context.clock.now() + wait)
        if wait != 0 and self._since is not None and limits.is_open:
            while self._expire_waiting(self._since):
                pass
        return wait == 0

    def _expire_waiting(self, since: dict[Call, Timestamp]) -> bool:
        """Let the time of calls run that wait for their first attempt; True if it was up for some of them.

        The next calls of their keys wait then.
        """
        now = self.context.clock.now()
        expired = False
        for call in self._waiting_calls():
            if call.done or self._time_runs(call) or call in self._deadlines:
                continue
            try:
                until = self._until(call, since.get(call, now))
            except RAISED as exc:
                self._fail(self._error(call, exc), exc)
                return False
            if until is None:
                continue
            self._deadlines.set(call, until)
            if until <= now:
                self._deadlines.discard(call)
                self._time_is_up(call)
                expired = True
            else:
                self._wake_at(until)
        return expired

    def _waiting_calls(self) -> list[Call]:
        """Return the calls whose turn it is, and that wait for a slot or a limit."""
        return list(self._ready)

    def _until(self, call: Call, begin: Timestamp) -> Timestamp | None:
        """When the time for a record is up that begins at ``begin``; None: never. Raises what users' code raises."""
        return self.settings.time_until(call.value, begin)

    def _cost(self, limits: StepLimits, call: Call) -> float:
        return limits.cost(call.value)

    def _fail_fast(self, call: Call, error: CircuitOpen) -> None:
        """The circuit breaker has a call fail, instead of having it wait."""
        if not self._watched or self._begins(call):
            self._failed(call, error)

    def invoke(self, call: Call) -> Awaitable[Any]:
        """What a slot awaits for ``call``. What it raises, and what awaiting it raises, goes to ``raised``."""
        settings = self.settings
        if settings.uses_resource:
            return settings.call(call.value, self.context.resource)
        return settings.call(call.value)

    def returned(self, call: Call, result: Any) -> None:
        """The call has given ``result``. It counts unless the time for the record was up."""
        if call.done:
            return
        if self._limits is None and self._attempts is None:
            self.running -= 1
        else:
            self._is_over(call, None)
        self._came(call, result)

    def _is_over(self, call: Call, error: BaseException | None) -> None:
        """A call is not under way any more."""
        if self._attempts is not None:
            self._attempts.discard(call)
        limits = self._limits
        if limits is not None:
            before = limits.capacity
            try:
                limits.ended(call, error, self.running)
            except RAISED as exc:
                self._fail(self._error(call, exc), exc)
            if limits.capacity > before:
                self._tell_of_room()
        self.running -= 1

    def _came(self, call: Call, result: Any) -> None:
        if self.settings.results is _MANY:
            try:
                result = list(iterable(result))
            except RAISED as exc:
                self._failed(call, exc)
                return
        if self._sees_results and self._again(call, None, result):
            return
        if type(result) in NOT_AWAITED:
            self.misused(call, not_awaited(result))
            return
        self._settle(call, result)

    def raised(self, call: Call, error: BaseException) -> None:
        """The call has failed. It counts unless the time for the record was up."""
        if not call.done:
            self._is_over(call, error)
            self._failed(call, error)

    def misused(self, call: Call, error: BaseException) -> None:
        """The function of the step is none that can be awaited: the job fails, whatever the policy."""
        self._fail(OperatorError.of(self.name, error, record=call.value))

    # ------------------------------------------------------------------------------------------- attempts

    def _room(self) -> int:
        """How many calls more may be under way."""
        return self._capacity - self.running

    def _begins(self, call: Call) -> bool:
        """An attempt is about to begin; False if the time for the record is up already."""
        call.attempt += 1
        if call.attempt > 1:
            self.calls.retries += 1
            return True
        return self._begin_time(call)

    def _time_runs(self, call: Call) -> bool:
        """True from the first attempt on."""
        return call.attempt > 0

    def _begin_time(self, call: Call) -> bool:
        """The time for a record begins; False if it is up already."""
        in_time, until = self._time_for(call)
        if in_time and until is not None:
            self._deadlines.set(call, until)
            self._wake_at(until)
        return in_time

    def _is_late(self, call: Call) -> bool:
        """True if no time is left for the next call: it is decided what becomes of it, and takes nothing of limits."""
        if self.settings.deadline is None or call.attempt:
            return False
        in_time, _ = self._time_for(call)
        return not in_time

    def _time_for(self, call: Call) -> tuple[bool, Timestamp | None]:
        """Whether there is time for a first attempt, and until when; if not, what becomes of the record is decided."""
        now = self.context.clock.now()
        try:
            until = self._until(call, now)
        except RAISED as exc:
            call.attempt = 0
            self._fail(self._error(call, exc), exc)
            return False, None
        if until is not None and until <= now:
            call.attempt = 0
            self._too_late(call, TimeoutError("its deadline had passed before it was called"))
            return False, until
        return True, until

    def _again(self, call: Call, error: BaseException | None, result: object = None) -> bool:
        """Have a call made again that gave ``error`` or ``result``; False if it is not to be."""
        retry = self.settings.retry
        if retry is None:
            return False
        try:
            millis = pause(
                retry,
                Attempt(number=call.attempt, error=error, result=result),
                self.context.random(),
            )
        except RAISED as exc:
            self._fail(self._error(call, exc), exc)
            return True
        if millis is None:
            return False
        at = self.context.clock.now() + millis
        self._retries.set(call, at)
        self._wake_at(at)
        return True

    def _failed(self, call: Call, error: BaseException) -> None:
        if not (self._watched and self._again(call, error)):
            self._give_up(call, error)

    def _time_is_up(self, call: Call) -> None:
        """Its retries are off, and its slot is free for another call."""
        self.calls.timeouts += 1
        if call in self._retries:
            self._retries.discard(call)
            under_way = False
        else:
            under_way = self._withdraw(call)
        self._too_late(call, timed_out(self.settings, call.attempt))
        if under_way:
            self._cancel(call)

    def _attempt_is_up(self, call: Call) -> None:
        """The attempt has failed. Its slot is free at once; whether there is another attempt is up to the policy."""
        if not call.done:
            self.on_cancel(call)
            self.raised(call, attempt_timed_out(self.settings))

    def _too_late(self, call: Call, error: TimeoutError) -> None:
        """The time for this record is up, whatever becomes of others that need the same result."""
        self._give_up(call, error)

    def _cancel(self, call: Call) -> None:
        """What comes of a call that is under way is of no use."""
        self._is_over(call, TimeoutError())
        self.on_cancel(call)

    def _withdraw(self, call: Call) -> bool:
        """Take a call out of those that wait for a slot; False if it did, True if it is under way."""
        for line in (self._repeats, self._ready):
            if call in line:
                line.remove(call)
                return False
        return True

    def _decided(self, call: Call) -> None:
        self._deadlines.discard(call)
        if self._since is not None:
            self._since.pop(call, None)

    def size(self) -> StateSize:
        """Each record whose results were not emitted is an entry, and each moment that one waits for is a timer."""
        timers = len(self._deadlines) + len(self._retries)
        timers += 0 if self._attempts is None else len(self._attempts)
        return StateSize(entries=len(self._queue.calls), processing_timers=timers)

    def _wake_at(self, at: Timestamp) -> None:
        if self._alarm_at is None or at < self._alarm_at:
            self._alarm_at = at
            self.context.alarm.set(at)
