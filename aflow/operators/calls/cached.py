"""The asynchronous step that calls once for records with equal cache keys, and keeps what that call has given.

A record is looked up when it is its turn to be called for, so what was found for the record before it counts. What is
kept leaves without a call, a slot or a retry, in the order that the step promises; a record whose key is being called
for waits for that call, with its own deadline. Neither is state: in a snapshot there are the inputs of all records
whose results were not emitted, followers as well as leaders, and a restored step looks all of them up again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aflow.errors import InternalError
from aflow.machines.calls.breaker import CircuitOpen
from aflow.machines.calls.cache import (
    KeysInFlight,
    ResultCache,
    check_cache_key,
    without_tracebacks,
)
from aflow.machines.calls.call import NO_RESULT, Call
from aflow.machines.calls.on_error import Fail
from aflow.machines.calls.settings import CallSettings
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.first_call import FirstCall

#: The cache key of a call that neither leads nor follows: it is decided what becomes of it.
_LEFT = NO_RESULT


class CachedOperator(AsyncOperator):
    """Calls for those records only whose results are neither kept nor under way."""

    def __init__(self, settings: CallSettings) -> None:
        super().__init__(settings)
        if settings.cache is None:
            raise InternalError("a step without a cache is made to look into one")
        self._share *= 4  # records that follow others take no calls, and should not stop the input
        key = settings.cache.key
        self._key: Callable[[Any], Any] | None = key and FirstCall(
            self, "_key", key, "Cache(key=…)"
        )
        self._results = ResultCache(settings.cache)
        self._keys: KeysInFlight[Call] = KeysInFlight()
        #: Calls whose turn it is and that were not looked up yet. Empty but within ``_make_ready``.
        self._arriving: deque[Call] = deque()
        self._looking = False
        self._watched = True  # so that each call knows how often it was made: none at all, for many
        self._timed = settings.timeout is not None or settings.deadline is not None

    def _put(self, calls: Sequence[Call]) -> None:
        for call in calls:
            call.cache_key = self._cache_key(call)
        super()._put(calls)

    def _cache_key(self, call: Call) -> object:
        try:
            key = call.value if self._key is None else self._key(call.value)
            check_cache_key(key)
        except RAISED as exc:
            raise self._error(call, exc) from exc
        return key

    # ------------------------------------------------------------------------------------------- looking up

    def _make_ready(self, calls: Iterable[Call]) -> None:
        # A hit may give the turn to the next record of its key, which may be a hit, and so on: a loop, no recursion.
        self._arriving.extend(calls)
        if self._looking:
            return
        self._looking = True
        now = self.context.clock.now()
        try:
            while self._arriving:
                call = self._arriving.popleft()
                if call.attempt:
                    super()._make_ready((call,))
                else:
                    self._look_up(call, now)
        finally:
            self._looking = False

    def _look_up(self, call: Call, now: Timestamp) -> None:
        # Hot path: once for each record.
        kept = self._results.get(call.cache_key, now)
        if kept is None:
            self._lead_or_follow(call)
            return
        self.calls.cache_hits += 1
        call.cache_key = _LEFT
        if kept.error is None:
            super()._settle(call, kept.result)
        else:
            super()._give_up(call, kept.error)

    def _lead_or_follow(self, call: Call) -> None:
        leader = self._keys.join(call.cache_key, call)
        if leader is call:
            self._lead(call)
        elif leader.attempt and self._timed:
            super()._begin_time(call)

    def _lead(self, call: Call) -> None:
        self.calls.cache_misses += 1
        if self._time_runs(call):
            self._make_again((call,))
        else:
            super()._make_ready((call,))

    # ------------------------------------------------------------------------------------- what a call gave

    def _settle(self, call: Call, result: Any) -> None:
        key = call.cache_key
        if key is _LEFT:
            super()._settle(call, result)
            return
        try:
            self._results.put(key, result, self.context.clock.now())
        except RAISED as exc:
            self._fail(self._error(call, exc), exc)
            return
        for one in self._all_of(call):
            super()._settle(one, result)

    def _give_up(self, call: Call, error: BaseException) -> None:
        key = call.cache_key
        if key is _LEFT:
            super()._give_up(call, error)
            return
        # Who was refused by the circuit breaker was not called for, so that is no answer to keep.
        passing = isinstance(error, CircuitOpen) or isinstance(self.settings.on_error, Fail)
        kept = not passing and self._results.put_error(key, error, self.context.clock.now())
        for one in self._all_of(call):
            super()._give_up(one, error)
        if kept:
            without_tracebacks(error)

    def _all_of(self, leader: Call) -> list[Call]:
        """The leader and its followers, which neither lead nor follow any more."""
        followers = self._keys.finish(leader.cache_key)
        leader.cache_key = _LEFT
        for call in followers:
            call.cache_key = _LEFT
            call.attempt = leader.attempt
        self.calls.merged += len(followers)
        return [leader, *followers]

    # --------------------------------------------------------------------------------------------- deadlines

    def _begin_time(self, call: Call) -> bool:
        """The time of followers begins with their leader's first attempt, or with theirs if they lead before."""
        if not self._timed:
            return True
        if call not in self._deadlines and not super()._begin_time(call):
            return False
        for follower in self._keys.followers(call.cache_key):
            if follower not in self._deadlines:
                super()._begin_time(follower)
        return True

    def _time_runs(self, call: Call) -> bool:
        """Also that of one that has followed another, and leads now."""
        return call.attempt > 0 or call in self._deadlines

    def _too_late(self, call: Call, error: TimeoutError) -> None:
        key, call.cache_key = call.cache_key, _LEFT
        if key is not _LEFT:
            following = self._keys.leave(key, call)
            if following is not None:
                self._lead(following)
        super()._too_late(call, error)

    def _withdraw(self, call: Call) -> bool:
        if not self._keys.leads(call.cache_key, call):
            return False
        return super()._withdraw(call)
