"""Spans of traced records and of their calls.

A record has a span from its sender to the moment at which nothing is left of it, whose parent is the span of the
sender. Each step with async calls has a span below it, from the first attempt to the end of the last one; retries are
its events. The user's function runs in the context of that span, so its own spans are below it.

A call for several traced records has one span: below the first of them, with links to the others.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from aflow.errors import text_of
from aflow.model.record_trace import CallTrace, RecordTrace, RecordTracer
from aflow.telemetry.guard import Guard, RateBound


class RecordSpans(RecordTracer):
    """Traces the records of one job."""

    def __init__(
        self, job: str, tracer: Tracer, guard: Guard, *, records: RateBound, calls: RateBound
    ) -> None:
        self.job: Final = job
        self.tracer: Final = tracer
        self.guard: Final = guard
        self._records = records
        self._calls = calls
        #: Traces with an open span.
        self._open: set[RecordSpan] = set()

    def sent(self, source: str) -> RecordTrace | None:
        with self.guard.suppressed():
            parent = trace.get_current_span().get_span_context()
            if parent.is_valid and parent.trace_flags.sampled and self._records.admits():
                return self._traced(source, otel_context.get_current())
        return None

    def sampled(self, step: str) -> RecordTrace | None:
        with self.guard.suppressed():
            if self._calls.admits():
                return self._traced(step, Context())
        return None

    def _traced(self, place: str, parent: Context) -> RecordTrace:
        record = RecordSpan(self, place, parent)
        record.begin()
        return record

    def opened(self, record: RecordSpan) -> None:
        """The span of ``record`` has begun."""
        self._open.add(record)

    def closed(self, record: RecordSpan) -> None:
        """The span of ``record`` has ended."""
        self._open.discard(record)

    def end_all(self, reason: str) -> None:
        """End all spans: what is in flight is not processed, because of ``reason``."""
        for record in list(self._open):
            record.give_up(reason)


class RecordSpan(RecordTrace):
    """The span of one record. A record that is read again after a failure has another one."""

    def __init__(self, owner: RecordSpans, place: str, parent: Context) -> None:
        """``place`` is the source, or the step that has begun the trace."""
        self.owner: Final = owner
        self._place = place
        self._parent = parent
        self._span: Span | None = None
        #: Calls with an open span.
        self._calls: set[CallSpan] = set()

    @property
    def context(self) -> Context:
        """The context of its calls."""
        return (
            self._parent
            if self._span is None
            else trace.set_span_in_context(self._span, self._parent)
        )

    @property
    def link(self) -> Link | None:
        """A link to the span."""
        return None if self._span is None else Link(self._span.get_span_context())

    def begin(self) -> None:
        if self._span is not None:
            return
        with self.owner.guard.suppressed():
            self._span = self.owner.tracer.start_span(
                f"process {self._place}",
                self._parent,
                SpanKind.CONSUMER,
                {
                    "messaging.system": "aflow",
                    "messaging.operation.name": "process",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": self._place,
                    "aflow.job": self.owner.job,
                },
            )
            self.owner.opened(self)

    def processed(self) -> None:
        self._end(None)

    def give_up(self, reason: str) -> None:
        """End the span and those of its calls with an error."""
        for call in list(self._calls):
            call.give_up(reason)
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        span, self._span = self._span, None
        self.owner.closed(self)
        if span is not None:
            with self.owner.guard.suppressed():
                if reason is not None:
                    span.set_status(Status(StatusCode.ERROR, reason))
                span.end()

    def call(self, step: str) -> CallTrace:
        return CallSpan(self, step)

    def add_event(self, name: str, attributes: dict[str, str | int]) -> None:
        """Add an event to the span."""
        with self.owner.guard.suppressed():
            if self._span is not None:
                self._span.add_event(name, attributes)

    def call_opened(self, call: CallSpan) -> None:
        """The span of ``call`` has begun."""
        self._calls.add(call)

    def call_closed(self, call: CallSpan) -> None:
        """The span of ``call`` has ended."""
        self._calls.discard(call)


class CallSpan(CallTrace):
    """The span of the calls of one step for one record."""

    def __init__(self, record: RecordSpan, step: str) -> None:
        self.record: Final = record
        self._step = step
        self._span: Span | None = None
        self._attempts = 0
        #: The end of the last attempt (epoch ns), and the class and text of its error.
        self._ended_at: int | None = None
        self._error: tuple[str, str] | None = None

    def attempt(
        self, number: int, invoke: Callable[[], Awaitable[Any]], others: Sequence[CallTrace]
    ) -> Awaitable[Any]:
        context = self._begun(number, others)
        if context is None:
            return invoke()
        token = otel_context.attach(context)
        try:
            awaitable = invoke()
        except BaseException as exc:
            self._attempt_ended(exc)
            raise
        finally:
            otel_context.detach(token)
        return self._awaited(awaitable, context) if isawaitable(awaitable) else awaitable

    def _begun(self, number: int, others: Sequence[CallTrace]) -> Context | None:
        with self.record.owner.guard.suppressed():
            return self._begin(number, others)
        return None

    def _begin(self, number: int, others: Sequence[CallTrace]) -> Context:
        """Begin the span, or add a retry to it, and return the context of the call."""
        if self._span is None:
            shared = [one for one in others if isinstance(one, CallSpan)]
            self._span = self.record.owner.tracer.start_span(
                f"call {self._step}",
                self.record.context,
                SpanKind.INTERNAL,
                {"aflow.job": self.record.owner.job, "aflow.step": self._step},
                links=[link for one in shared if (link := one.record.link) is not None],
            )
            self.record.call_opened(self)
            for one in shared:
                one.record.add_event("aflow.call.shared", {"aflow.step": self._step})
        else:
            attributes: dict[str, str | int] = {"aflow.call.attempt": number}
            if self._error is not None:
                attributes["error.type"], attributes["exception.message"] = self._error
            self._span.add_event("aflow.call.retry", attributes)
        self._attempts = number
        self._ended_at = self._error = None
        return trace.set_span_in_context(self._span, self.record.context)

    def _attempt_ended(self, error: BaseException | None) -> None:
        self._ended_at = time.time_ns()
        if error is not None:
            self._error = type(error).__name__, text_of(error)

    async def _awaited(self, awaitable: Awaitable[Any], context: Context) -> Any:
        token = otel_context.attach(context)
        error: BaseException | None = None
        try:
            return await awaitable
        except BaseException as exc:
            error = exc
            raise
        finally:
            if not isinstance(
                error, GeneratorExit
            ):  # closed by the garbage collector, in another context
                otel_context.detach(token)
            self._attempt_ended(error)
            del error

    def settled(self, outcome: str, error: tuple[str, str] | None) -> None:
        self._end(outcome, error)

    def give_up(self, reason: str) -> None:
        """End the span with the error of its last attempt, or ``reason``."""
        self._end("failed", self._error or ("JobFailed", reason))

    def _end(self, outcome: str, error: tuple[str, str] | None) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        self.record.call_closed(self)
        with self.record.owner.guard.suppressed():
            span.set_attribute("aflow.call.attempts", self._attempts)
            span.set_attribute("aflow.call.outcome", outcome)
            if error is not None:
                span.set_attribute("error.type", error[0])
                span.set_status(Status(StatusCode.ERROR, f"{error[0]}: {error[1]}"))
            span.end(self._ended_at)
