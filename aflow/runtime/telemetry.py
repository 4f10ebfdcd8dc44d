"""The seam to tools for tracing and metrics: the runtime reports to them, and imports none.

``Options(telemetry=…)`` takes a ``Telemetry``, which observes each job that starts with it; ``aflow.telemetry`` has one
for OpenTelemetry. Everything is called on the event loop of the job. Nothing may raise: errors of a tool are its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from aflow.model.record_trace import RecordTracer
from aflow.runtime.checkpoints.statistics import CheckpointInfo
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.recovery import JobEvent


class ObservedJob(Protocol):
    """The parts of a job that a tool reads."""

    @property
    def name(self) -> str:
        """The name of the flow."""
        ...

    @property
    def status(self) -> JobStatus:
        """The present phase."""
        ...

    @property
    def takes_checkpoints(self) -> bool:
        """True if the job was started with checkpointing."""
        ...

    @property
    def checkpoints(self) -> Sequence[CheckpointInfo]:
        """The latest checkpoints, oldest first."""
        ...

    def metrics(self) -> JobMetrics:
        """Return the present metrics."""
        ...


@runtime_checkable
class TracedSource(Protocol):
    """A source that takes records from the host, in the context of a request for example."""

    def trace_with(self, tracer: RecordTracer | None, name: str) -> bool:
        """Ask ``tracer`` about each record that is sent from now on, to the source ``name``; None: about none.

        Return False, and change nothing, if another job reads the source: this one will be refused.
        """
        ...


class JobTelemetry(ABC):
    """Observes one job, from its start to its end."""

    @property
    @abstractmethod
    def tracer(self) -> RecordTracer | None:
        """Decides which records are traced; None: none is."""

    @abstractmethod
    def on_status(self, status: JobStatus) -> None:
        """The job has entered ``status``."""

    @abstractmethod
    def on_event(self, event: JobEvent) -> None:
        """Something has happened that the host is told, too."""

    @abstractmethod
    def on_attempt_failed(self, error: BaseException) -> None:
        """The records in flight are lost, or will be processed again."""


class Telemetry(ABC):
    """A tool for the jobs of a program."""

    @abstractmethod
    def observe(self, job: ObservedJob, clock: RuntimeClock) -> JobTelemetry:
        """Observe a job that starts; ``clock`` is that of its processing time."""
