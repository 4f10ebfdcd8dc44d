"""Schedule the calls of an async step: which one starts when, and what its record gets. No asyncio, clock or output.

Theory. A record becomes a ``Call``, which passes these states. Each state belongs to one part.

1. *Queued* (``CallQueue``): from ``put`` until its result is taken for emission. The queue keeps the order of results
   and the watermarks between them.
2. *Blocked by its key* (``KeyTurns``): steps by key make one call at a time for each key.
3. *Looked up* (``SharedResults``): in steps with a cache, a hit settles the call, and a call whose cache key is in
   flight follows the call that leads.
4. *Ready*, *running*, *waiting for a retry* (``Attempts``): admission, time and retries, for single calls or groups.
5. *Settled*: it has a result, or the error policy decided. The next call of its key is unblocked.

Events are the methods. The caller sets the time of an event with ``advance`` first if ``is_timed``, and carries out
``instructions`` afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from aflow.machines.calls.attempts import Attempts
from aflow.machines.calls.breaker import CircuitOpen
from aflow.machines.calls.cache import SharedResults, without_tracebacks
from aflow.machines.calls.call import NO_RESULT, Call, CallError
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.failures import NOT_AWAITED, not_awaited
from aflow.machines.calls.instructions import Instructions
from aflow.machines.calls.limits import StepLimits
from aflow.machines.calls.on_error import DeadLetter, Drop, Fail, Fallback
from aflow.machines.calls.queues import CallQueue, KeyTurns
from aflow.machines.calls.settings import CallOrder, CallSettings
from aflow.machines.calls.step_functions import StepFunctions
from aflow.model.time import Timestamp

#: Calls in an adaptive step for which records are buffered however low the limit is: a limit that is low for now should
#: not stop the input.
_MIN_BUFFERED: Final = 500


class CallScheduler:
    """Schedule the calls of one subtask."""

    def __init__(
        self,
        settings: CallSettings,
        queue: CallQueue,
        *,
        limits: StepLimits | None = None,
        functions: StepFunctions | None = None,
        has_handlers: bool = False,
    ) -> None:
        """``has_handlers``: calls are handlers with state, and the operator keeps their effects."""
        self.queue = queue
        self.instructions: Final = Instructions()
        #: Settled calls in the queue without a result.
        self.without_results = 0
        self._settings: Final = settings
        self._functions: Final = functions or StepFunctions()
        self._turns: Final = KeyTurns() if settings.order is CallOrder.BY_KEY else None
        self._shared: Final = None if settings.cache is None else SharedResults(settings.cache)
        self.attempts: Final = Attempts(
            settings, self, self.instructions, limits=limits, functions=self._functions
        )
        #: Calls whose turn it is and that were not looked up. Empty except within ``make_ready``.
        self._arriving: deque[Call] = deque()
        self._is_looking_up = False
        #: Calls that returned in a plain scheduler, with their results, and were not settled.
        self.completed: Final[list[Call]] = []
        self._complete: Final[Callable[[Call], None]] = (
            self.completed.append
            if self._turns is None
            else _completer(self._turns, self.completed, self.attempts.first)
        )
        #: True while the input is idle, and after its end.
        self._is_quiet = False
        #: Records and fences in the queue for each call that may run, at which the step is full.
        self._share: Final = _share(settings)
        #: True if events need the time.
        self.is_timed: Final = self.attempts.is_timed
        #: True if calls depend on nothing but the capacity, their order and their keys.
        self.is_plain: Final = (
            not self.is_timed
            and not has_handlers
            and (self._functions.convert is None or self._turns is None)
        )
        #: In a plain scheduler: records that arrived, and attempts that ended and are not in ``completed``.
        self._arrived = self._ended = 0
        self.take: Final = self._take_counted if self.is_plain else self.attempts.take
        self.fail: Final = self.attempts.fail
        self.unblock: Final = self.attempts.unblock
        self.on_time: Final = self.attempts.on_time

    # ------------------------------------------------------------------------------------------- state

    @property
    def counters(self) -> CallCounters:
        """The counters, without the present numbers of calls."""
        self._recount()
        return self.attempts.counters

    @property
    def running(self) -> int:
        """The number of running calls."""
        self._recount()
        return self.attempts.running

    @property
    def waiting(self) -> int:
        """The number of slots that should ask for a call."""
        self._recount()
        return self.attempts.waiting

    def _recount(self) -> None:
        """Count the calls of a plain scheduler, which are taken and completed without a word to it."""
        if self.is_plain:
            blocked = 0 if self._turns is None else self._turns.blocked
            started = self._arrived - blocked - len(self.attempts.first)
            self.attempts.counters.calls = started
            self.attempts.running = started - self._ended - len(self.completed)

    @property
    def timers(self) -> int:
        """The number of moments that calls wait for."""
        return self.attempts.timers

    @property
    def in_groups(self) -> bool:
        """True if calls wait for others to share a call with."""
        return self.attempts.in_groups

    @property
    def blocked(self) -> bool:
        """True while there is no room downstream, and after a failure; then no record starts."""
        return self.attempts.blocked

    @blocked.setter
    def blocked(self, blocked: bool) -> None:
        self.attempts.blocked = blocked

    @property
    def full(self) -> bool:
        """True if the step should read no more input."""
        calls = max(self.attempts.capacity, min(self._settings.capacity, _MIN_BUFFERED))
        return self.queue.full(self._share * calls)

    def count(self) -> CallCounters:
        """Return the counters, with the present numbers of calls."""
        counters = self.counters
        counters.in_flight = self.running
        counters.waiting = len(self.queue.calls) - self.attempts.records_running
        counters.limit = self.attempts.capacity
        return counters

    # ------------------------------------------------------------------------------------------ events

    def advance(self, now: Timestamp, steady: float) -> None:
        """Set the time of the next event: epoch ms, and seconds of a steady clock."""
        self.attempts.now = now
        self.attempts.steady = steady

    def put(self, calls: Sequence[Call]) -> None:
        """Records arrived, in the order of the stream."""
        self._arrived += len(calls)
        self.register(calls)
        self.queue.put(calls)
        self.make_ready(calls if self._turns is None else self._turns.admit(calls))

    def restore(self, calls: Sequence[Call]) -> None:
        """Records of a snapshot, in the order of the stream. Those with an outcome are settled with it."""
        self.queue.put(calls)
        to_make: list[Call] = []
        for call in calls:
            if not call.has_outcome:
                to_make.append(call)
                continue
            if call.result is NO_RESULT:
                self.without_results += 1
            self.queue.settle(call)
        self._arrived += len(to_make)
        self.register(to_make)
        self.make_ready(to_make if self._turns is None else self._turns.admit(to_make))

    def register(self, calls: Iterable[Call]) -> None:
        """Records arrived that the caller puts into the queue and makes ready itself."""
        self.attempts.register(calls)

    def make_ready(self, calls: Iterable[Call]) -> None:
        """Let ``calls`` start as soon as they are admitted."""
        if self._shared is None:
            self.attempts.make_ready(calls)
            return
        # A hit unblocks the next record of its key, which may be a hit too: a loop, not a recursion.
        self._arriving.extend(calls)
        if self._is_looking_up:
            return
        self._is_looking_up = True
        try:
            while self._arriving:
                self._look_up(self._shared, self._arriving.popleft())
        finally:
            self._is_looking_up = False

    def plain_parts(self) -> tuple[Attempts, deque[Call], Callable[[Call], None]]:
        """Return what starts and completes the calls of a plain scheduler, of which at most the capacity may run.

        A call is taken from the line unless the attempts are blocked. The function is called with a call that returned,
        with its result.
        """
        return self.attempts, self.attempts.first, self._complete

    def _take_counted(self) -> Call | None:
        self._recount()
        return self.attempts.take()

    def settle_completed(self) -> None:
        """Settle the calls that were completed in a plain scheduler, in order."""
        if not self.completed:
            return
        completed = self.completed.copy()
        self.completed.clear()
        self._ended += len(completed)
        if self._functions.convert is not None:
            self._settle_converted(self._functions.convert, completed)
            return
        if not NOT_AWAITED.isdisjoint(map(type, [call.result for call in completed])):
            for call in completed:
                if type(call.result) in NOT_AWAITED:
                    self.fail(call, not_awaited(call.result))
        self.queue.settle_all(completed)

    def _settle_converted(self, convert: Callable[[Any], Any], completed: Sequence[Call]) -> None:
        results = [call.result for call in completed]
        for call in completed:
            call.result = NO_RESULT  # a call with a result counts as settled
        for call, result in zip(completed, results, strict=True):
            try:
                call.result = convert(result)
            except self._functions.raised as exc:
                self.attempts.failed(call, exc)
            else:
                self.queue.settle(call)

    def returned(self, call: Call, result: Any) -> None:
        """The call returned. Ignored if the record's time is over."""
        if not self.is_plain:
            self.attempts.returned(call, result)
            return
        call.result = result
        self._complete(call)
        self.settle_completed()

    def raised(self, call: Call, error: BaseException) -> None:
        """The call failed. Ignored if the record's time is over."""
        if self.is_plain:
            self.settle_completed()
            self._recount()
            self._ended += 1
        self.attempts.raised(call, error)

    def on_stop(self) -> None:
        """The job stops: the time of calls runs also while the circuit breaker delays their first attempt."""
        self.attempts.on_stop(self.queue.calls)

    def close(self) -> None:
        """Forget what the calls in the queue refer to, so that they are freed."""
        for call in self.queue.calls:
            call.segment = call.company = None

    def on_quiet(self, quiet: bool) -> None:
        """The input is idle or has ended, or is active again. No group waits for more records of a quiet input."""
        self._is_quiet = quiet
        if quiet and self._settings.groups is not None:
            self.instructions.wakes = True

    # --------------------------------------------------------------------------------- shared results

    def _look_up(self, shared: SharedResults, call: Call) -> None:
        # Hot path of steps with a cache: once for each record.
        kept = shared.results.get(call.cache_key, self.attempts.now)
        if kept is not None:
            self.attempts.counters.cache_hits += 1
            call.cache_key = NO_RESULT
            if kept.error is None:
                self._settle(call, kept.result)
            else:
                self._apply_policy(call, kept.error)
            return
        leader = shared.keys.join(call.cache_key, call)
        if leader is call:
            self._lead(call)
        elif leader.attempt and self.attempts.has_deadlines:
            self.attempts.start_time(call)

    def _lead(self, call: Call) -> None:
        """Make the call, whose result is neither kept nor in flight."""
        self.attempts.counters.cache_misses += 1
        if self.attempts.time_runs(call):
            self.attempts.make_ready_again((call,))
        else:
            self.attempts.make_ready((call,))

    def _finish_key(self, shared: SharedResults, leader: Call) -> list[Call]:
        """Return the leader and its followers; their key is not in flight any more."""
        followers = shared.keys.finish(leader.cache_key)
        leader.cache_key = NO_RESULT
        for call in followers:
            call.cache_key = NO_RESULT
            call.attempt = leader.attempt
        self.attempts.counters.merged += len(followers)
        return [leader, *followers]

    # -------------------------------------------------------------------------- as the owner of calls

    def followers(self, call: Call) -> Sequence[Call]:
        return () if self._shared is None else self._shared.keys.followers(call.cache_key)

    def leads(self, call: Call) -> bool:
        return self._shared is None or self._shared.keys.leads(call.cache_key, call)

    def more_may_come(self) -> bool:
        if self._is_quiet:
            return False
        if self.running:
            return True  # its result makes room, and unblocks the next records of its keys
        if self._turns is not None and self._turns.blocked:
            return False  # others wait for the calls in line: there are fewer keys than places in a group
        return not self.full or self.queue.has_out

    def on_result(self, call: Call, result: Any) -> None:
        shared = self._shared
        if shared is None or call.cache_key is NO_RESULT:
            self._settle(call, result)
            return
        try:
            shared.results.put(call.cache_key, result, self.attempts.now)
        except self._functions.raised as exc:
            self.fail(call, exc)
            return
        for one in self._finish_key(shared, call):
            self._settle(one, result)

    def on_given_up(self, call: Call, error: BaseException) -> None:
        shared = self._shared
        if shared is None or call.cache_key is NO_RESULT:
            self._apply_policy(call, error)
            return
        # The service was not called if the circuit breaker refused, so there is no answer to keep.
        passes = isinstance(error, CircuitOpen) or isinstance(self._settings.on_error, Fail)
        kept = not passes and shared.results.put_error(call.cache_key, error, self.attempts.now)
        for one in self._finish_key(shared, call):
            self._apply_policy(one, error)
        if kept:
            without_tracebacks(error)

    def on_too_late(self, call: Call, error: TimeoutError) -> None:
        if self._shared is not None:
            key, call.cache_key = call.cache_key, NO_RESULT
            if key is not NO_RESULT:
                following = self._shared.keys.leave(key, call)
                if following is not None:
                    self._lead(following)
        self.on_given_up(call, error)

    # ----------------------------------------------------------------------------------------- results

    def _apply_policy(self, call: Call, error: BaseException) -> None:
        policy = self._settings.on_error
        match policy:
            case Fallback(function):
                try:
                    result = self._functions.fallback(function, call, error)
                except self._functions.raised as exc:
                    self.fail(call, exc)
                    return
                self.attempts.counters.fallbacks += 1
                call.error = CallError.of(error)
                self._settle(call, result)
            case Drop() | DeadLetter():
                if isinstance(policy, Drop):
                    self.attempts.counters.dropped += 1
                else:
                    self.attempts.counters.dead_letters += 1
                call.error = CallError.of(error)
                self.without_results += 1
                self._settle(call, NO_RESULT)
            case _:
                self.fail(call, error)

    def _settle(self, call: Call, result: Any) -> None:
        # Hot path.
        call.result = result
        self.queue.settle(call)
        self.attempts.finish(call)
        if self._turns is not None:
            following = self._turns.release(call.key)
            if following is not None:
                self.make_ready((following,))


def _completer(
    turns: KeyTurns, completed: list[Call], ready: deque[Call]
) -> Callable[[Call], None]:
    """Return the function that completes a call by key, and makes the next call of its key ready."""
    waiting, take = turns.waiting, turns.take
    keep, add = completed.append, ready.append

    def complete(call: Call) -> None:
        # Hot path. As ``release`` does; mostly no other call of the key waits.
        keep(call)
        key = call.key
        following = waiting[key]
        if following is None:
            del waiting[key]
        else:
            add(take(key, following))

    return complete


def _share(settings: CallSettings) -> int:
    share = 2
    if settings.cache is not None:
        share *= 4  # records that follow others take no calls, and should not stop the input
    if settings.groups is not None:
        share *= settings.groups.size
    return share
