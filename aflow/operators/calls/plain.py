"""The asynchronous step that most are: one result for each call, and neither time nor limits, keys nor a cache.

It does what ``AsyncOperator`` does for such a step, without asking for what cannot be: an operation of the interpreter
here is one for each record, and at a hundred calls under way a record costs some hundred of them.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.operators.calls.leaving import not_awaited
from aflow.operators.calls.operator import NOT_AWAITED, AsyncOperator


def is_plain(settings: CallSettings) -> bool:
    """True if ``PlainOperator`` can do what they ask for."""
    more = (
        settings.adaptive,
        settings.rate,
        settings.breaker,
        settings.timeout,
        settings.attempt_timeout,
        settings.deadline,
        settings.retry,
        settings.cache,
        settings.groups,
    )
    return (
        all(one is None for one in more)
        and settings.order is not CallOrder.BY_KEY
        and settings.results is not CallResults.MANY
    )


class PlainOperator(AsyncOperator):
    """Calls for each record. ``settings`` have to be plain."""

    # Hot path (benchmark `async`), all of it.

    def __init__(self, settings: CallSettings) -> None:
        super().__init__(settings)
        self._most = settings.capacity
        self._call = settings.call
        self._uses_resource = settings.uses_resource
        self._settled = self._queue.settle
        self._most_calls = self._share * settings.capacity
        self._is_full = self._queue.full

    @property
    def full(self) -> bool:
        return self._is_full(self._most_calls)

    def take(self) -> Call | None:
        if self._ready and self.running < self._most and not self.held:
            self.running += 1
            self.calls.calls += 1
            return self._ready.popleft()
        return None

    def invoke(self, call: Call) -> Awaitable[Any]:
        if self._uses_resource:
            return self._call(call.value, self.context.resource)
        return self._call(call.value)

    def returned(self, call: Call, result: Any) -> None:
        self.running -= 1
        if type(result) in NOT_AWAITED:
            self.misused(call, not_awaited(result))
            return
        call.result = result
        self._settled(call)
        if not self._told:
            self._tell()
