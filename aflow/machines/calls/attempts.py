"""Attempts: which call starts now, and whether a failed one is retried.

Theory. A call is *ready* (``ReadyQueue``), *running* (an attempt), or *waiting for a retry*. ``take`` starts the next
ready call if it is admitted: the capacity has room, and ``StepLimits`` (breaker, adaptive limit, rate) admit it. An
attempt ends with ``returned`` or ``raised``, or is cancelled. What follows is decided here as long as it is another
attempt; the end of the last one is reported to the ``CallOwner``.

Time. A record's time starts with its first attempt and ends ``timeout`` later or at its deadline, whatever retries are
left. An attempt's time starts when a slot has taken the call. So neither runs while a first attempt waits for a slot or
for a limit. The exception is a job that stops while the circuit breaker is open: that wait has no bound, so the time of
the record starts with the stop.

Blocked. While there is no room downstream (``blocked``) no record starts, but records whose time runs are retried:
otherwise backpressure would use up their time. Their results wait in the queue, which holds no more than before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from aflow.machines.calls.breaker import CircuitOpen
from aflow.machines.calls.call import Call
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.deadlines import CallTimes, Deadlines
from aflow.machines.calls.failures import (
    NOT_AWAITED,
    attempt_timed_out,
    not_awaited,
    timed_out,
)
from aflow.machines.calls.groups import Group, results_of
from aflow.machines.calls.instructions import CallOwner, Instructions
from aflow.machines.calls.limits import StepLimits
from aflow.machines.calls.ready import ReadyGroups, ReadyQueue, ready_calls
from aflow.machines.calls.retry import Attempt, pause
from aflow.machines.calls.settings import CallSettings
from aflow.machines.calls.step_functions import StepFunctions
from aflow.model.time import Timestamp

#: Calls that ``take`` may refuse in a row before it returns, so that the event loop is not blocked.
_REFUSALS: Final = 100

#: A line without calls.
_EMPTY: Final[deque[Call]] = deque(maxlen=0)


class Attempts:
    """Start, time and retry the calls of one subtask."""

    def __init__(
        self,
        settings: CallSettings,
        owner: CallOwner,
        instructions: Instructions,
        *,
        limits: StepLimits | None,
        functions: StepFunctions,
    ) -> None:
        self.counters: Final = CallCounters()
        #: The number of running calls.
        self.running = 0
        #: True while there is no room downstream, and after a failure.
        self.blocked = False
        #: The time of the present event (epoch ms, and seconds of a steady clock).
        self.now: Timestamp = 0
        self.steady = 0.0
        #: True if records have a time that ends.
        self.has_deadlines: Final = settings.has_deadlines
        #: True if ``Call.attempt`` is counted.
        self.are_counted: Final = settings.counts_attempts
        #: True if events need the time.
        self.is_timed: Final = self.are_counted or limits is not None
        self._settings: Final = settings
        self._owner: Final = owner
        self._instructions: Final = instructions
        self._limits: Final = limits
        self._functions: Final = functions
        self._ready: ReadyQueue = ready_calls(
            settings, more_may_come=owner.more_may_come, time_runs=self.time_runs
        )
        self.first: Final = self._ready.first
        self._most: Final = settings.capacity
        self._retries_results: Final = getattr(settings.retry, "on_result", None) is not None
        self._times: Final[CallTimes[Call]] = CallTimes(
            limits_attempts=settings.attempt_timeout is not None
        )
        #: Groups whose calls are running.
        self._groups: set[Group] = set()
        #: Since when each call waits in a job that stops (epoch ms); None while the job does not stop.
        self._waiting_since: dict[Call, Timestamp] | None = None

    # ------------------------------------------------------------------------------------------- state

    @property
    def capacity(self) -> int:
        """The number of calls that may run now."""
        return self._settings.capacity if self._limits is None else self._limits.capacity

    @property
    def waiting(self) -> int:
        """The number of slots that should ask for a call. At most one with limits: it wakes the next one in turn."""
        if self._instructions.failure is not None:
            return 0
        ready = self._ready.waiting(self.now, blocked=self.blocked)
        room = self.capacity - self.running
        return max(0, min(ready, room if self._limits is None else min(1, room)))

    @property
    def in_groups(self) -> bool:
        """Return True if calls wait for others to share a call with."""
        return isinstance(self._ready, ReadyGroups) and len(self._ready) > 0

    @property
    def timers(self) -> int:
        """The number of moments that calls wait for."""
        return len(self._times)

    @property
    def records_running(self) -> int:
        """The number of records that calls run for."""
        if self._settings.groups is None:
            return self.running
        return sum(group.left for group in self._groups)

    def time_runs(self, call: Call) -> bool:
        """Return True from the first attempt on, of the call itself or of one that it followed."""
        followed = self._settings.cache is not None and call in self._times.records
        return call.attempt > 0 or followed

    # ------------------------------------------------------------------------------------------ events

    def register(self, calls: Iterable[Call]) -> None:
        """Records arrived."""
        if self.are_counted:
            for call in calls:
                call.attempt = 0
                if self._waiting_since is not None:
                    self._waiting_since[call] = self.now

    def make_ready(self, calls: Iterable[Call]) -> None:
        """Let ``calls`` start as soon as they are admitted."""
        self._ready.add(calls, self.now)
        self._wake_for_groups()

    def make_ready_again(self, calls: Iterable[Call]) -> None:
        """As ``make_ready``, for calls whose time runs."""
        self._ready.add_again(calls, self.now)
        self._wake_for_groups()

    def on_time(self) -> None:
        """Records and attempts time out, calls are retried, groups start."""
        for call in self._times.records.due(self.now):
            self._on_deadline(call)
        if self._times.attempts is not None:
            for call in self._times.attempts.due(self.now):
                self._on_attempt_timeout(call)
        self.make_ready_again(self._times.retries.due(self.now))
        if (earliest := self._times.earliest) is not None:
            self._instructions.wake_by(earliest)
        self._instructions.wakes = True
        if self._limits is not None and not self.waiting:
            self._limits.leave()

    def on_stop(self, calls: Iterable[Call]) -> None:
        """The job stops: the time of ``calls`` runs also while the circuit breaker delays their first attempt."""
        if self._waiting_since is None and self._settings.breaker is not None:
            self._waiting_since = dict.fromkeys(calls, self.now)
            self._instructions.wakes = True

    def unblock(self) -> None:
        """There is room downstream again."""
        if self.blocked and self._instructions.failure is None:
            self.blocked = False
            self._instructions.wakes = True

    def finish(self, call: Call) -> None:
        """It is decided what the record gets."""
        if self.are_counted:
            self._times.records.discard(call)
            if self._waiting_since is not None:
                self._waiting_since.pop(call, None)

    def fail(self, call: Call, error: BaseException) -> None:
        """Let the job fail with ``error``, which has to do with ``call``."""
        functions = self._functions
        if self._instructions.failure is None:
            self._instructions.failure = failure = functions.describe(functions.step, call, error)
            if failure is not error:
                failure.__cause__ = error
        self.blocked = True

    # --------------------------------------------------------------------------------------- admission

    def take(self) -> Call | None:
        """Start and return the next call; None if none is ready and admitted."""
        # Hot path (benchmark `async`).
        if self._limits is not None:
            return self._take_admitted(self._limits)
        if self.running >= self._settings.capacity:
            return None
        ready = self._prepared()
        had = bool(ready)
        while ready:
            call = ready.popleft()
            if not self.are_counted or self._start_attempt(call):
                return self._started(call)
            ready = self._next_line()
        if had and isinstance(self._ready, ReadyGroups):
            self._instructions.wakes = True  # the next group starts in another pass of the loop
        return None

    def _take_admitted(self, limits: StepLimits) -> Call | None:
        refused = 0
        ready = self._prepared()
        had = bool(ready)
        while self.capacity > self.running and ready:
            if refused == _REFUSALS:
                self._instructions.wakes = True
                return None
            refused += 1
            call = ready[0]
            if self._is_late(call):
                ready.popleft()
            else:
                try:
                    if not self._is_admitted(limits, call):
                        return None
                    ready.popleft()
                    if not self.are_counted or self._start_attempt(call):
                        self._instructions.wakes = True  # slots ask one after the other
                        return self._started(call)
                    limits.ended(call, self.steady, None, self.running + 1, withdrawn=True)
                except CircuitOpen as exc:
                    ready.popleft()
                    self._fail_fast(call, exc)
            ready = self._next_line()
        if had and not ready and isinstance(self._ready, ReadyGroups):
            self._instructions.wakes = True  # the next group starts in another pass of the loop
        limits.leave()
        return None

    def _prepared(self) -> deque[Call]:
        """Form the next group if there is room, and return the line whose first call is next."""
        if self._instructions.failure is None and self.running < self.capacity:
            self._ready.prepare(self.now, blocked=self.blocked)
            self._wake_for_groups()
        return self._next_line()

    def _next_line(self) -> deque[Call]:
        if self._instructions.failure is not None:
            return _EMPTY
        return self._ready.next_line(blocked=self.blocked)

    def _started(self, call: Call) -> Call:
        self.running += 1
        self.counters.calls += 1
        if self._times.attempts is not None:
            self._set(self._times.attempts, call, self.now + (self._settings.attempt_timeout or 0))
        if isinstance(call, Group):
            self._groups.add(call)
        return call

    def _is_admitted(self, limits: StepLimits, call: Call) -> bool:
        """Return True if the limits admit ``call`` now; if not, ask again in time. Raises ``CircuitOpen``."""
        try:
            wait = limits.wait(call, self.steady, self.running)
        except CircuitOpen:
            raise
        except self._functions.raised as exc:
            self.fail(call, exc)
            return False
        if wait:
            self._instructions.wake_by(self.now + wait)
        if wait != 0 and self._waiting_since is not None and limits.is_open:
            while self._expire_waiting(self._waiting_since):
                pass
        return wait == 0

    def _fail_fast(self, call: Call, error: CircuitOpen) -> None:
        """The circuit breaker refused ``call``."""
        if not self.are_counted or self._start_attempt(call):
            self.failed(call, error)

    def _expire_waiting(self, since: dict[Call, Timestamp]) -> bool:
        """Start the time of calls that wait for their first attempt; True if it was over for some of them.

        Then the next calls of their keys wait.
        """
        expired = False
        for call in self._ready.calls:
            if call.done or self.time_runs(call) or call in self._times.records:
                continue
            try:
                until = self._settings.time_until(call, since.get(call, self.now))
            except self._functions.raised as exc:
                self.fail(call, exc)
                return False
            if until is None:
                continue
            if until <= self.now:
                self._on_deadline(call)
                expired = True
            else:
                self._set(self._times.records, call, until)
        return expired

    def _wake_for_groups(self) -> None:
        earliest = self._ready.earliest
        if earliest is not None and earliest > self.now:
            self._instructions.wake_by(earliest)

    # -------------------------------------------------------------------------------------------- time

    def _start_attempt(self, call: Call) -> bool:
        """Count an attempt; False if there is no time for it."""
        if not isinstance(call, Group):
            return self._count(call)
        call.begun = True
        call.begin([one for one in call.company if not one.done and self._count(one)])
        return bool(call.company)

    def _count(self, call: Call) -> bool:
        call.attempt += 1
        if call.attempt > 1:
            self.counters.retries += 1
            return True
        if not self.has_deadlines:
            return True
        if call not in self._times.records and not self.start_time(call):
            return False
        for follower in self._owner.followers(call):
            if follower not in self._times.records:
                self.start_time(follower)
        return True

    def start_time(self, call: Call) -> bool:
        """Start the time of one record; False, and report it, if it is over already."""
        in_time, until = self._time_for(call)
        if in_time and until is not None:
            self._set(self._times.records, call, until)
        return in_time

    def _is_late(self, call: Call) -> bool:
        """Return True, and report it, if no time is left for the next call. Then it takes nothing of the limits."""
        if isinstance(call, Group):
            if self.has_deadlines:
                call.keep([one for one in call.company if not one.done and not self._is_late(one)])
            return not call.company
        if self._settings.deadline is None or call.attempt:
            return False
        in_time, _ = self._time_for(call)
        return not in_time

    def _time_for(self, call: Call) -> tuple[bool, Timestamp | None]:
        """Return True and the end of the time of a first attempt; False, and report it, if it is over."""
        try:
            until = self._settings.time_until(call, self.now)
        except self._functions.raised as exc:
            call.attempt = 0
            self.fail(call, exc)
            return False, None
        if until is not None and until <= self.now:
            call.attempt = 0
            self._owner.on_too_late(
                call, TimeoutError("its deadline had passed before it was called")
            )
            return False, until
        return True, until

    def _on_deadline(self, call: Call) -> None:
        """The time of a record is over: it is not retried, and a running call is cancelled."""
        self.counters.timeouts += 1
        if call in self._times.retries:
            self._times.retries.discard(call)
            is_running = False
        else:
            is_running = self._owner.leads(call) and not self._ready.discard(call)
        self._owner.on_too_late(call, timed_out(self._settings, call.attempt))
        if is_running:
            self._cancel(call)

    def _cancel(self, call: Call) -> None:
        """Cancel a running call that is of no use; that of a group once no record of it waits for the result."""
        running = call
        if self._settings.groups is not None:
            group: Group = call.company
            group.left -= 1
            if group.left:
                return
            group.done = True
            group.disband()
            running = group
        self._end(running, TimeoutError())
        self._instructions.cancelled.append(running)

    def _on_attempt_timeout(self, call: Call) -> None:
        """The time of an attempt is over. Its slot is free at once; the policy decides about another attempt."""
        if not call.done:
            self._instructions.cancelled.append(call)
            self.raised(call, attempt_timed_out(self._settings))

    # ---------------------------------------------------------------------------------- ends of attempts

    def returned(self, call: Call, result: Any) -> None:
        """The call returned. Ignored if the record's time is over."""
        if call.done:
            return
        self._end(call, None)
        if not isinstance(call, Group):
            self._on_result(call, result)
            return
        try:
            results = results_of(call.value, result)
        except self._functions.raised as exc:
            self.failed(call, exc)
            return
        for member, given in zip(call.disband(), results, strict=True):
            if member.done:
                continue
            if isinstance(given, BaseException):
                self.failed(member, given)
            else:
                self._on_result(member, given)

    def raised(self, call: Call, error: BaseException) -> None:
        """The call failed. Ignored if the record's time is over."""
        if not call.done:
            self._end(call, error)
            self.failed(call, error)

    def _end(self, call: Call, error: BaseException | None) -> None:
        """The call is not running any more."""
        if self._times.attempts is not None:
            self._times.attempts.discard(call)
        if isinstance(call, Group):
            self._groups.discard(call)
        if self._limits is not None:
            capacity = self.capacity
            try:
                self._limits.ended(call, self.steady, error, self.running)
            except self._functions.raised as exc:
                self.fail(call, exc)
            if self.capacity > capacity:
                self._instructions.makes_room = True
        self.running -= 1

    def _on_result(self, call: Call, result: Any) -> None:
        if self._functions.convert is not None:
            try:
                result = self._functions.convert(result)
            except self._functions.raised as exc:
                self.failed(call, exc)
                return
        if self._retries_results and self._retry(call, None, result):
            return
        if type(result) in NOT_AWAITED:
            self.fail(call, not_awaited(result))
        else:
            self._owner.on_result(call, result)

    def failed(self, call: Call, error: BaseException) -> None:
        """An attempt failed: retry it, or report that it was the last one."""
        if isinstance(call, Group):
            for member in call.disband():
                if not member.done:
                    self.failed(member, error)
        elif self._functions.is_fatal(error):
            self.fail(call, error)
        elif not self._retry(call, error):
            self._owner.on_given_up(call, error)

    def _retry(self, call: Call, error: BaseException | None, result: object = None) -> bool:
        """Ask the policy about an attempt that gave ``error`` or ``result``; False if it is the last one."""
        retry = self._settings.retry
        if retry is None:
            return False
        attempt = Attempt(number=call.attempt, error=error, result=result)
        try:
            millis = pause(retry, attempt, self._functions.random())
        except self._functions.raised as exc:
            self.fail(call, exc)
            return True
        if millis is None:
            return False
        self._set(self._times.retries, call, self.now + millis)
        return True

    def _set(self, moments: Deadlines[Call], call: Call, at: Timestamp) -> None:
        moments.set(call, at)
        self._instructions.wake_by(at)
