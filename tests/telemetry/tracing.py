"""A program that traces: providers that keep everything in memory, and helpers to read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

import aflow as af
from aflow.telemetry import OpenTelemetry


class TracedProgram:
    """Providers of a program, and the ``Options`` of its jobs."""

    def __init__(self, *, records_per_second: float = 1_000, calls_per_second: float = 0) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        #: The tracer of the program's own code.
        self.tracer: Tracer = self.provider.get_tracer("program")
        self.telemetry = OpenTelemetry(
            self.provider,
            self.meters,
            records_per_second=records_per_second,
            calls_per_second=calls_per_second,
        )
        self.options = af.Options(telemetry=self.telemetry)

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of one name."""
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        """Return the only one of that name."""
        [span] = self.named(name)
        return span

    def metrics(self) -> dict[str, list[tuple[Mapping[str, Any], float]]]:
        """The present metrics by name, each with the attributes and the value of its points."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[Mapping[str, Any], float]]] = {}
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric.data.data_points
                    found[metric.name] = [(p.attributes or {}, p.value) for p in points]  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return found


def is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    """True if ``parent`` is the parent of ``child``, in one trace."""
    assert child.context is not None
    assert parent.context is not None
    same = child.context.trace_id == parent.context.trace_id
    return same and child.parent is not None and child.parent.span_id == parent.context.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})
