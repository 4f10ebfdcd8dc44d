"""Emission of the results and dead letters of settled calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from aflow.machines.calls.call import NO_RESULT, Call, CallError
from aflow.machines.calls.failures import call_failed
from aflow.machines.calls.on_error import DeadLetter, FailedRecord
from aflow.machines.calls.settings import CallResults, CallSettings
from aflow.model.batch import Batch, in_batches
from aflow.model.time import Timestamp
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


def send_with_failures(
    run: Sequence[Call],
    settings: CallSettings,
    output: Output,
    step: str,
    now: Callable[[], Timestamp],
) -> int:
    """Emit results and dead letters of ``run`` in its order, so that consumers of both see that order.

    Return the number of calls without a result; ``now`` returns the time of a dead letter (epoch ms).
    """
    policy = settings.on_error
    failures = 0
    results: list[Call] = []
    for call in run:
        if call.result is not NO_RESULT:
            results.append(call)
            continue
        failures += 1
        if isinstance(policy, DeadLetter):
            if results:
                send_results(results, settings, output, step)
                results = []
            times = None if call.timestamp is None else [call.timestamp]
            output.side(policy.tag.name, Batch([_failed(call, step, now())], times))
    send_results(results, settings, output, step)
    return failures


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
    """Return the calls whose records are emitted."""
    kept: list[Call] = []
    for call in calls:
        try:
            if call.result:
                kept.append(call)
        except RAISED as exc:  # the truth value of an array, for example
            raise call_failed(step, call, exc) from exc
    return kept


def _together(calls: Sequence[Call], settings: CallSettings, step: str) -> list[Any]:
    """Return what is emitted for each record: its result, or ``into`` of its value and result."""
    into = settings.into
    if into is None:
        return [call.result for call in calls]
    made: list[Any] = []
    for call in calls:
        try:
            value = into(call.value, call.result)
            if not made:  # checked once for each batch
                refuse_coroutine(value, "into=")
            made.append(value)
        except RAISED as exc:
            raise call_failed(step, call, exc) from exc
    return made


def _failed(call: Call, step: str, now: Timestamp) -> FailedRecord[Any]:
    error = call.error or CallError("", "")
    return FailedRecord(call.value, error.type_name, error.message, call.attempt, step, now)
