"""The errors of calls: descriptions for the job that fails, and for records whose time is over."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final

from aflow.errors import OperatorError, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.settings import CallSettings
from aflow.machines.calls.user_limiter import LimiterError
from aflow.model.time import short

#: Types of results that show a forgotten ``await``, or a generator where one result is expected.
NOT_AWAITED: Final = frozenset({CoroutineType, AsyncGeneratorType})


def call_failed(step: str, call: Call, error: BaseException) -> OperatorError:
    """Return the error of a job that fails since ``call`` failed. No record causes an error of a limiter."""
    if isinstance(error, LimiterError):
        return OperatorError(f"step {step!r} failed: {error}", operator=step)
    return OperatorError.of(
        step,
        error,
        record=call.value,
        key=call.key,
        timestamp=call.timestamp,
        after=f" after {call.attempt} attempts" if call.attempt > 1 else "",
    )


def not_awaited(result: Any) -> TypeError:
    """Return the error of a call that gave ``result``, a coroutine or an async generator. Close the coroutine."""
    given = shown(result)
    if isinstance(result, CoroutineType):
        result.close()
        return TypeError(f"the call gave {given}, which nothing awaits; write: await …")
    return TypeError(
        f"the call gave {given}, an async generator; use flat_map_async() for many results"
    )


def timed_out(settings: CallSettings, attempts: int) -> TimeoutError:
    """Return the error of a record whose time is over after its first attempt started."""
    within = "by its deadline" if settings.timeout is None else f"within {short(settings.timeout)}"
    return TimeoutError(
        f"no result {within}, in {'1 attempt' if attempts == 1 else f'{attempts} attempts'}"
    )


def attempt_timed_out(settings: CallSettings) -> TimeoutError:
    """Return the error of an attempt that had no result within its time."""
    return TimeoutError(f"an attempt gave no result within {short(settings.attempt_timeout or 0)}")
