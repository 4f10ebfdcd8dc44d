"""The metrics of jobs as observable instruments: read when they are exported, with no work for each record.

Names and units are derived from those for Prometheus so that the exporters of OpenTelemetry to Prometheus give the
same names: ``aflow_task_busy_seconds_total`` is ``aflow.task.busy`` with the unit ``s``.

Metrics of a job belong to its event loop, and exporters work in threads of their own. A callback asks the loop, and
waits for a moment; if the loop does not answer, since it is blocked or waits for the exporter itself, nothing is
exported this time.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from aflow.model.distribution import VERSION
from aflow.runtime.metric_table import BUILD, MetricMemory, Sample, described_metrics, samples
from aflow.runtime.telemetry import ObservedJob
from aflow.telemetry.guard import Guard

#: Seconds for which an exporter waits for the event loop of a job.
_PATIENCE: Final = 1.0

#: Seconds after which the metrics of one export are read again.
_FRESH: Final = 5.0

#: Ends of names for Prometheus, and the units that they mean.
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}

#: First words of names that are name spaces.
_SPACES: Final = frozenset({"job", "step", "task", "call", "checkpoint", "latency", "loop"})


class ObservedMetrics:
    """The metrics of one job, and the loop that they belong to. Made on that loop."""

    def __init__(self, job: ObservedJob) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._memory = MetricMemory()

    def read(self) -> list[Sample]:
        """Return the present values; called in any thread. Raises ``TimeoutError`` if the loop does not answer."""
        if self._job.status.has_ended or not self._loop.is_running() or self._is_here():
            return self._now()
        answer: Future[list[Sample]] = Future()
        self._loop.call_soon_threadsafe(self._answer, answer)
        try:
            return answer.result(_PATIENCE)
        finally:
            answer.cancel()

    def _is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _now(self) -> list[Sample]:
        return list(samples(self._job, self._memory))

    def _answer(self, answer: Future[list[Sample]]) -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(self._now())
            except Exception as exc:
                answer.set_exception(exc)


class Instruments:
    """The instruments of all observed jobs. A later job replaces an earlier one of the same name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        #: By the name of the job. A job that is not used any more is not exported.
        self._jobs: WeakValueDictionary[str, ObservedMetrics] = WeakValueDictionary()
        #: Held while callbacks read: several exporters may work at once.
        self._lock = threading.Lock()
        self._labels = {name: labels for name, _, labels in described_metrics()}
        #: The values of one export by metric, and the metrics that it has read.
        self._values: dict[str, list[Observation]] = {}
        self._served: set[str] = set()
        self._read_at = -math.inf

    def register(self, meter: Meter) -> None:
        """Create all instruments."""
        for name, text, _ in described_metrics():
            other, unit = instrument_name(name)
            create = (
                meter.create_observable_counter
                if name.endswith("_total")
                else meter.create_observable_gauge
            )
            with self._guard.suppressed():
                create(other, [partial(self._observe, name)], unit, text)

    def add(self, job: ObservedJob) -> ObservedMetrics:
        """Observe ``job``, from its event loop, as long as the result is referred to."""
        observed = self._jobs[job.name] = ObservedMetrics(job)
        return observed

    def _observe(self, name: str, _: CallbackOptions) -> Sequence[Observation]:
        """Return the values of a metric. All metrics of an export are those of one moment."""
        with self._lock, self._guard.suppressed():
            if name in self._served or time.monotonic() - self._read_at > _FRESH:
                self._served.clear()
                self._values = self._read()
                self._read_at = time.monotonic()
            self._served.add(name)
            return self._values.get(name, [])
        return []

    def _read(self) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = {
            BUILD[0]: [Observation(1, {f"aflow.{BUILD[2][0]}": VERSION})]
        }
        # A list made in C: jobs are added in other threads meanwhile.
        for observed in [job for ref in self._jobs.valuerefs() if (job := ref()) is not None]:
            # Each job by itself; one whose loop is blocked is exported the next time.
            with self._guard.suppressed(), suppress(TimeoutError):
                for name, labels, value in observed.read():
                    keys = (f"aflow.{label}" for label in self._labels[name])
                    attributes = dict(zip(keys, labels, strict=True))
                    found.setdefault(name, []).append(Observation(value, attributes))
        return found


def instrument_name(name: str) -> tuple[str, str]:
    """Return the name and the unit for OpenTelemetry of the metric ``name`` for Prometheus."""
    short, unit = name.removesuffix("_total"), ""
    for end, meant in _UNITS.items():
        if short.endswith(end):
            short, unit = short.removesuffix(end), meant
    parts = short.split("_")
    levels = 2 if parts[1] in _SPACES else 1
    return ".".join([*parts[:levels], "_".join(parts[levels:])]), unit
