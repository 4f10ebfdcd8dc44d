"""Options of async calls: capacity, rate, cache, circuit breaker, retries, and the handling of failed records.

The policies ``Fail``, ``Drop``, ``DeadLetter`` and ``Fallback`` are those of all steps with ``on_error``.

Reached as ``aflow.calls``. ``Retry`` and ``Resource``, which many calls need, are in ``aflow`` itself. ``LoopBlocked``
and ``CallAbandoned`` are events of jobs about calls.
"""

from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker, CircuitOpen
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.limiter import Limiter
from aflow.machines.calls.on_error import (
    DeadLetter,
    Drop,
    Fail,
    FailedCall,
    FailedRecord,
    Fallback,
)
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Attempt, RetryPolicy
from aflow.runtime.calls.options import CallOptions
from aflow.runtime.calls.reports import CallAbandoned, CodeLocation, LoopBlocked

__all__ = [
    "Adaptive",
    "Attempt",
    "Cache",
    "CallAbandoned",
    "CallOptions",
    "CircuitBreaker",
    "CircuitOpen",
    "CodeLocation",
    "DeadLetter",
    "Drop",
    "Fail",
    "FailedCall",
    "FailedRecord",
    "Fallback",
    "Limiter",
    "LoopBlocked",
    "RateLimit",
    "RetryPolicy",
]
