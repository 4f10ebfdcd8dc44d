"""The public object: which providers, and how many traces."""

from __future__ import annotations

import math
from typing import Final

from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer

from aflow.errors import FlowDefinitionError, shown
from aflow.model.distribution import VERSION
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.telemetry import JobTelemetry, ObservedJob, Telemetry
from aflow.telemetry.guard import Guard, RateBound
from aflow.telemetry.instruments import Instruments
from aflow.telemetry.job_spans import JobSpans
from aflow.telemetry.record_spans import RecordSpans


class OpenTelemetry(Telemetry):
    """Spans and metrics of jobs, for ``Options(telemetry=OpenTelemetry())``. Make one for all jobs of a program.

    ``tracer_provider`` and ``meter_provider`` are the global ones by default.

    A record is traced if the span in which it is sent to a ``PushSource`` or ``DurablePushSource`` is sampled, up to
    ``records_per_second`` (a job). Of all others, a step with async calls begins traces for ``calls_per_second`` calls
    (a job), and the sampler of the provider decides about them. 0 turns either off. Checkpoints, restores and restarts
    are always traced.

    Raises ``FlowDefinitionError`` for invalid arguments.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        records_per_second: float = 10.0,
        calls_per_second: float = 1.0,
    ) -> None:
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise FlowDefinitionError(
                f"tracer_provider takes a TracerProvider of OpenTelemetry, not {shown(tracer_provider)}"
            )
        if meter_provider is not None and not isinstance(meter_provider, MeterProvider):
            raise FlowDefinitionError(
                f"meter_provider takes a MeterProvider of OpenTelemetry, not {shown(meter_provider)}"
            )
        self._records: Final = _rate(records_per_second, "records_per_second")
        self._calls: Final = _rate(calls_per_second, "calls_per_second")
        self._guard: Final = Guard()
        self._tracer: Final = get_tracer("aflow", VERSION, tracer_provider)
        self._instruments: Final = Instruments(self._guard)
        self._instruments.register(get_meter("aflow", VERSION, meter_provider))

    def observe(self, job: ObservedJob, clock: RuntimeClock) -> JobTelemetry:
        records = RecordSpans(
            job.name,
            self._tracer,
            self._guard,
            records=RateBound(self._records, clock.steady),
            calls=RateBound(self._calls, clock.steady),
        )
        metrics = self._instruments.add(job)
        return JobSpans(job, clock, self._tracer, self._guard, records, metrics)


def _rate(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FlowDefinitionError(f"{name} takes a number, not {shown(value)}")
    if not 0 <= value < math.inf:
        raise FlowDefinitionError(f"{name} must be 0 or a finite number above it, not {value}")
    return float(value)
