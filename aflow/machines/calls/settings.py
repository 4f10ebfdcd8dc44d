"""The settings of an async step: options of the user, checked, with durations in milliseconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.call import Call
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Fail, OnError
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import RetryPolicy
from aflow.model.codecs import RECORDS, Codec
from aflow.model.time import Instant, Timestamp, to_timestamp


class CallOrder(Enum):
    """The order in which results are emitted."""

    ORDERED = "ordered"
    """In the order of the records."""
    UNORDERED = "unordered"
    """In the order of completion, but never past a watermark."""
    BY_KEY = "by key"
    """For each key in the order of the records: its calls are made one after the other."""


class CallResults(Enum):
    """The kind of result of a call."""

    ONE = "one result"
    MANY = "any number of results"
    KEEP = "whether the record goes on"


#: The default of the calls in flight, in each subtask.
DEFAULT_CAPACITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """One asynchronous step."""

    call: Callable[..., Awaitable[Any]]
    """Called with the value; and with the resource as second argument, if the step has one."""
    capacity: int = DEFAULT_CAPACITY
    """The most calls in flight, in each subtask."""
    adaptive: Adaptive | None = None
    """The settings of the adaptive limit, up to ``capacity``; None: ``capacity`` always."""
    rate: RateLimit[Any] | None = None
    breaker: CircuitBreaker | None = None
    order: CallOrder = CallOrder.ORDERED
    results: CallResults = CallResults.ONE
    into: Callable[[Any, Any], Any] | None = None
    """Returns what is emitted, given a value and its result; None: the result is emitted."""
    timeout: int | None = None
    """From the beginning of the first attempt of a record to its last result (ms)."""
    attempt_timeout: int | None = None
    """From the beginning of an attempt to its result (ms)."""
    deadline: Callable[[Any], Instant] | None = None
    """The moment after which the answer for a value is of no use."""
    retry: RetryPolicy | None = None
    on_error: OnError[Any] = field(default_factory=Fail)
    cache: Cache[Any, Any] | None = None
    """Settings of the cache: results are kept, and records with equal keys share a call."""
    groups: GroupSize | None = None
    """The size of groups: calls get a list of values; None: one call for each record."""
    codec: Codec[Any] = RECORDS
    """The codec of the values of records in flight."""
    typed: bool = False
    """True if ``codec`` is for values of one type, so that each is encoded by itself."""
    stores_results: bool = True
    """True if checkpoints contain results that were not emitted, so that their calls are not made again."""
    result_codec: Codec[Any] = RECORDS
    """The codec of results that were not emitted."""
    results_typed: bool = False
    """True if ``result_codec`` is for results of one type, so that each of many is encoded by itself."""
    uses_resource: bool = False

    @property
    def has_deadlines(self) -> bool:
        """True if the time of records ends."""
        return self.timeout is not None or self.deadline is not None

    @property
    def counts_attempts(self) -> bool:
        """True if it matters how often a record was called for, and in which attempt it is."""
        return (
            self.has_deadlines
            or self.attempt_timeout is not None
            or self.retry is not None
            or self.cache is not None
            or self.groups is not None
        )

    def time_until(self, call: Call, start: Timestamp) -> Timestamp | None:
        """Return the end (epoch ms) of the time of a record whose first attempt starts at ``start``; None: never.

        Raises what the user's function raises.
        """
        until = None if self.timeout is None else start + self.timeout
        if self.deadline is None or call.is_timer:
            return until
        at = to_timestamp(self.deadline(call.value), what="the deadline")
        return at if until is None else min(at, until)
