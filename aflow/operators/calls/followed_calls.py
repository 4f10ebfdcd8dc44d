"""Calls for records of questions and traced ones: each result is emitted apart from others, as that of its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from aflow.machines.calls.call import NO_RESULT, Call
from aflow.machines.calls.groups import Group
from aflow.machines.calls.on_error import DeadLetter
from aflow.model.questions import Correlation, current_correlation
from aflow.model.record_trace import CallTrace, RecordTracer

#: Outcomes of traced calls.
RETURNED, FALLBACK, DEAD_LETTER, DROPPED = "returned", "fallback", "dead_letter", "dropped"


class FollowedCalls:
    """The calls of one subtask that belong to questions or traces, until their results are emitted."""

    def __init__(self) -> None:
        self._correlations: dict[Call, Correlation] = {}
        #: Of those that are traced.
        self._traces: dict[Call, CallTrace] = {}
        #: None in a job without tracing.
        self.tracer: RecordTracer | None = None

    def arrived(self, calls: Sequence[Call], step: str) -> None:
        """Add ``calls``, which were made for the records of one batch, as far as they are followed."""
        if (correlation := current_correlation()) is not None:
            self._add(calls, correlation, step)
        elif self.tracer is not None and (trace := self.tracer.sampled(step)) is not None:
            self._add(calls[:1], Correlation(None, trace), step)

    def _add(self, calls: Sequence[Call], correlation: Correlation, step: str) -> None:
        for call in calls:
            self._correlations[call] = correlation
            correlation.hold()
            if correlation.trace is not None:
                self._traces[call] = correlation.trace.call(step)

    def emit(
        self, run: list[Call], emit: Callable[[list[Call]], None], on_error: object = None
    ) -> None:
        """Emit the results of ``run`` in its order, those of followed calls each alone.

        ``on_error`` is the policy of the step.
        """
        if not self._correlations:
            emit(run)
            return
        start = 0
        for index, call in enumerate(run):
            correlation = self._correlations.pop(call, None)
            if correlation is not None:
                if index > start:
                    emit(run[start:index])
                if self._traces and (trace := self._traces.pop(call, None)) is not None:
                    trace.settled(*_outcome(call, on_error))
                correlation.run(partial(emit, [call]))
                start = index + 1
        if start < len(run):
            emit(run[start:])

    def invoke(self, call: Call, invoke: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Return what a slot awaits: that of ``invoke``, in the context of the trace of ``call`` if it has one."""
        if not self._traces:
            return invoke()
        members: Sequence[Call] = call.company if isinstance(call, Group) else (call,)
        traces = [trace for one in members if (trace := self._traces.get(one)) is not None]
        if not traces:
            return invoke()
        first = next(one for one in members if one in self._traces)
        return traces[0].attempt(first.attempt, invoke, traces[1:])


def _outcome(call: Call, on_error: object) -> tuple[str, tuple[str, str] | None]:
    """Return the outcome of a call, and the class and text of its error."""
    if call.error is None:
        return RETURNED, None
    error = call.error.type_name, call.error.message
    if call.result is not NO_RESULT:
        return FALLBACK, error
    return DEAD_LETTER if isinstance(on_error, DeadLetter) else DROPPED, error
