"""The metrics of a stream of micro-batches that tools export, beside those of jobs.

Metrics of steps and calls have the names of those of a live job: they are the same counters. The others are of
streams only: an epoch is no checkpoint, since none is due while no records arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aflow.backfill.stream_progress import StreamProgress
from aflow.runtime.job_status import JobStatus
from aflow.runtime.metric_table import (
    ExportedMetric,
    Sample,
    read_metrics,
    status_samples,
    step_samples,
)

__all__ = ["JobStatus", "ObservedStream", "described_stream_metrics", "stream_samples"]

_JOB: Final = ("job",)

#: Metrics of steps that a stream does not export: no call is in flight between its epochs.
_OF_THE_MOMENT: Final = frozenset(
    {"aflow_calls_in_flight", "aflow_call_waiting_records", "aflow_calls_limit"}
)


class ObservedStream(ABC):
    """The parts of a running stream that a tool reads, in any thread."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the flow."""

    @property
    @abstractmethod
    def status(self) -> JobStatus:
        """The present phase."""

    @abstractmethod
    def observed(self) -> StreamProgress | None:
        """Return the present progress; None before the start."""


OF_STREAMS: Final[Sequence[ExportedMetric[StreamProgress]]] = [
    ExportedMetric(
        "aflow_stream_epochs_total",
        "Epochs that the stream has committed.",
        _JOB,
        lambda of: of.epochs,
    ),
    ExportedMetric(
        "aflow_stream_epochs_without_rows_total",
        "Those of them that only advanced time.",
        _JOB,
        lambda of: of.epochs_without_rows,
    ),
    ExportedMetric(
        "aflow_stream_replays_total",
        "Batches that an earlier query had begun, and Spark has repeated.",
        _JOB,
        lambda of: of.replays,
    ),
    ExportedMetric(
        "aflow_stream_last_epoch_timestamp_seconds",
        "Commit of the last epoch, in seconds since the epoch.",
        _JOB,
        lambda of: of.committed_at / 1000,
    ),
    ExportedMetric(
        "aflow_stream_load_ratio",
        "Duration of the last epoch with records over the interval of the trigger.",
        _JOB,
        lambda of: of.load,
    ),
    ExportedMetric(
        "aflow_stream_state_bytes",
        "Size of the stored state.",
        _JOB,
        lambda of: of.state_bytes,
    ),
    ExportedMetric(
        "aflow_stream_state_entries",
        "Values in the state: one for each key, and window, and name of state.",
        _JOB,
        lambda of: of.state_entries,
    ),
]

#: Metrics that are not read by the table above: name, help, labels.
PHASES: Final = (
    "aflow_stream_phase_seconds_total",
    "Time in the phases of epochs: fragments, results, commit.",
    ("job", "phase"),
)
BATCH: Final = (
    "aflow_stream_last_batch_seconds",
    "Of the last batch that Spark has completed, by Spark's phases.",
    ("job", "phase"),
)
BEHIND: Final = (
    "aflow_stream_source_behind",
    "Input that had arrived when the last batch began and was in no batch, by its unit: records, files or bytes.",
    ("job", "source", "unit"),
)


def stream_samples(stream: ObservedStream, name: str) -> Iterator[Sample]:
    """Yield the present values of all metrics of a stream; ``name`` is its address."""
    yield from status_samples(stream.status, name)
    progress = stream.observed()
    if progress is None:
        return
    for step in progress.steps.values():
        yield from (one for one in step_samples(step, name) if one[0] not in _OF_THE_MOMENT)
    yield from read_metrics(OF_STREAMS, progress, name)
    yield from _by_phase(PHASES[0], name, progress.total_seconds)
    yield from _by_phase(BATCH[0], name, progress.last_batch.seconds)
    behind: dict[tuple[str, str], float] = {}
    for source in progress.last_batch.sources:
        for unit, value in source.behind.items():
            # Two sources may read the same: one series cannot have two values.
            key = (source.description, unit)
            behind[key] = behind.get(key, 0.0) + value
    for (source_name, unit), value in behind.items():
        yield BEHIND[0], (name, source_name, unit), value


def _by_phase(metric: str, name: str, seconds: Mapping[str, float]) -> Iterator[Sample]:
    for phase, value in seconds.items():
        yield metric, (name, phase), value


def described_stream_metrics() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the name, help and labels of each metric that only streams have."""
    return [*((one.name, one.help, one.labels) for one in OF_STREAMS), PHASES, BATCH, BEHIND]
