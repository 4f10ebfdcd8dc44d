"""What leaves an asynchronous step for calls that are settled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import CoroutineType
from typing import Any, Final

from aflow.errors import OperatorError, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.on_error import DeadLetter, FailedCall
from aflow.machines.calls.settings import CallResults, CallSettings
from aflow.model.batch import Batch, in_batches
from aflow.model.time import short
from aflow.operators.base import RAISED, Output
from aflow.operators.first_call import refuse_coroutine

#: To look it up in its enum takes 0.1 µs on Python 3.11.
_ONE: Final = CallResults.ONE


def send_results(calls: Sequence[Call], settings: CallSettings, output: Output, step: str) -> None:
    """Emit the results of ``calls``, all of which have some, in order."""
    # Hot path (benchmark `async`).
    times: list[Any] = [call.timestamp for call in calls]
    if settings.results is _ONE and settings.into is None and calls:
        missing = times.count(None)
        if not missing or missing == len(times):
            output.emit(Batch([call.result for call in calls], None if missing else times))
            return
    if not (missing := times.count(None)):
        _send(calls, times, settings, output, step)
        return
    if missing == len(times):
        _send(calls, None, settings, output, step)
        return
    for timed, some in groupby(calls, lambda call: call.timestamp is not None):
        alike = list(some)
        _send(alike, [call.timestamp for call in alike] if timed else None, settings, output, step)


def send_failure(call: Call, settings: CallSettings, output: Output) -> None:
    """Emit the dead letter of ``call``, which has no result, if the policy asks for one."""
    policy = settings.on_error
    if isinstance(policy, DeadLetter):
        times = None if call.timestamp is None else [call.timestamp]
        output.side(policy.tag.name, Batch([_failed(call)], times))


def failed(step: str, call: Call, error: BaseException) -> OperatorError:
    """Describe ``error``, for which the job fails."""
    return OperatorError.of(
        step,
        error,
        record=call.value,
        key=call.key,
        timestamp=call.timestamp,
        after=f" after {call.attempt} attempts" if call.attempt > 1 else "",
    )


def not_awaited(result: Any) -> TypeError:
    """What is wrong with a call that gave ``result``, a coroutine or an async generator; it is closed."""
    given = shown(result)
    if isinstance(result, CoroutineType):
        result.close()
        return TypeError(f"the call gave {given}, which nobody awaits; write: await …")
    return TypeError(
        f"the call gave {given}, an async generator; use flat_map_async() for many results"
    )


def timed_out(settings: CallSettings, attempts: int) -> TimeoutError:
    """What becomes of a record that is under way when its time is up."""
    within = "by its deadline" if settings.timeout is None else f"within {short(settings.timeout)}"
    return TimeoutError(
        f"no result {within}, in {'1 attempt' if attempts == 1 else f'{attempts} attempts'}"
    )


def attempt_timed_out(settings: CallSettings) -> TimeoutError:
    """Return the error of an attempt that had no result within its time."""
    return TimeoutError(f"an attempt gave no result within {short(settings.attempt_timeout or 0)}")


def _send(
    calls: Sequence[Call],
    times: list[Any] | None,
    settings: CallSettings,
    output: Output,
    step: str,
) -> None:
    match settings.results:
        case CallResults.ONE:
            if calls:
                output.emit(Batch(_together(calls, settings, step), times))
        case CallResults.KEEP:
            kept = _kept(calls, step)
            if kept:
                at: list[Any] = [call.timestamp for call in kept]
                output.emit(Batch([call.value for call in kept], None if times is None else at))
        case CallResults.MANY:
            values = [result for call in calls for result in call.result]
            all_times: list[Any] | None = None
            if times is not None:
                all_times = [call.timestamp for call in calls for _ in call.result]
            if values:
                for batch in in_batches(values, all_times):
                    output.emit(batch)


def _kept(calls: Sequence[Call], step: str) -> list[Call]:
    """Those whose record goes on."""
    kept: list[Call] = []
    for call in calls:
        try:
            if call.result:
                kept.append(call)
        except RAISED as exc:  # arrays and such, which are neither true nor false
            raise failed(step, call, exc) from exc
    return kept


def _together(calls: Sequence[Call], settings: CallSettings, step: str) -> list[Any]:
    """What leaves for each of these records: what its call gave, or what is made of both."""
    into = settings.into
    if into is None:
        return [call.result for call in calls]
    made: list[Any] = []
    for call in calls:
        try:
            value = into(call.value, call.result)
            if not made:  # the first of a batch tells
                refuse_coroutine(value, "into=")
            made.append(value)
        except RAISED as exc:
            raise failed(step, call, exc) from exc
    return made


def _failed(call: Call) -> FailedCall[Any]:
    error = call.error
    return FailedCall(call.value, type(error).__name__, str(error), call.attempt)
