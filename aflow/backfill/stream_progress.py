"""Progress of a stream of micro-batches, in terms of aflow.

``ProgressRecorder`` adds up what the epochs of one query report, and what the engine reports about its batches. It is
called in threads of the engine, and read in that of the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from aflow.backfill.epochs import EpochPart
from aflow.backfill.step_totals import StepCount, StepTotals
from aflow.model.time import Timestamp
from aflow.runtime.metrics import StepMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """Progress of one streaming source of Spark, when the last batch that Spark has completed began."""

    description: str
    """Spark's name of the source, such as ``KafkaV2[Subscribe[payments]]``."""
    rows: int
    """Rows of the batch."""
    behind: Mapping[str, float]
    """Input that has arrived and is in no batch yet, by its unit: ``records`` of Kafka, ``files`` and ``bytes`` of
    Delta; empty for a source that does not tell."""
    end: str
    """Offset at the end of the batch, as Spark writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Report of Spark on a batch that it has completed."""

    sources: tuple[SourceProgress, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Duration of Spark's phases by Spark's names, such as ``latestOffset`` and ``walCommit``. ``addBatch`` contains
    the epoch, and ``triggerExecution`` everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """Progress of a stream up to its last committed epoch. Counts are those of this query, since its start."""

    flow: str
    epoch: int
    """Number of that epoch; that of the start, if none was committed since."""
    batch: int | None
    """Spark's number of the last batch in it; None before the first one."""
    watermark: Timestamp | None
    """Event time (epoch ms) up to which all keyed steps and sources that are not idle have advanced; None before any
    record."""
    records: int
    """Records of the sources that this query has processed, in all its epochs."""
    records_per_second: float
    """Records of the last epoch with any, over its duration: the rate that the stream can process."""
    load: float
    """Duration of the last epoch with records over the interval of Spark's trigger. From 1 on, batches follow each
    other without a pause."""
    state_bytes: int
    """Size of the stored state."""
    state_bytes_read: int
    """Bytes of it that the tasks of the last epoch read from files, since their worker processes did not keep them."""
    state_entries: int | None
    """Number of values in the state: one for each key (and window, and name of state). None after the start from a
    savepoint, until the first epoch has read it."""
    results: Mapping[str, int]
    """Number of records written by this query, by sink."""
    seconds: Mapping[str, float]
    """Duration of the last epoch by phase: fragments, results, commit."""
    total_seconds: Mapping[str, float]
    """The same of all epochs together."""
    interval: float
    """Seconds between two triggers: ``every``."""
    epochs: int
    """Epochs that were committed."""
    epochs_without_rows: int
    """Epochs among them that only advanced time."""
    replays: int
    """Batches that an earlier query had begun, and Spark has repeated: whether their epoch was committed or not."""
    committed_at: Timestamp
    """Time of the clock (epoch ms) at the commit of the last epoch."""
    steps: Mapping[str, StepMetrics]
    """Metrics of each step and sink, as of a live job."""
    last_batch: BatchReport = field(default_factory=BatchReport)
    """Report of Spark on the last batch that it has completed; empty before."""
    savepoint: Path | None = None
    """Folder of the savepoint, once it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPosition:
    """The last committed epoch, its state and its watermarks."""

    epoch: int
    batch: int | None
    watermark: Timestamp | None
    earned: Mapping[str, Timestamp]
    """Watermark (epoch ms) that the records of each source have earned, by the step that assigns timestamps."""
    state_bytes: int
    state_entries: int | None
    committed_at: Timestamp
    savepoint: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """Report of all partitions on an epoch."""

    steps: Sequence[Mapping[str, StepCount]]
    records: int
    """Records of the sources."""
    results: Mapping[str, int]
    """Records by sink."""
    seconds: Mapping[str, float]
    """Duration by phase."""
    state_bytes_read: int = 0
    """Bytes of state that the tasks read from files."""


def entries_after(
    before: int | None, parts: Iterable[tuple[EpochPart | None, tuple[int, int]]]
) -> int | None:
    """Return the number of values in the state after an epoch; None if it is unknown, as it was ``before``.

    ``parts`` are the state that each task has left, if it has any, and the number of values at its start and end. A
    task may have restored some keys only, so it tells how many more there are. All tasks begin with all keys after the
    start from a savepoint, where ``before`` is unknown, and write complete parts.
    """
    kept = [(part, entries) for part, entries in parts if part is not None]
    if before is not None:
        return before + sum(at_end - at_start for _, (at_start, at_end) in kept)
    return sum(at_end for _, (_, at_end) in kept) if all(one.complete for one, _ in kept) else None


class ProgressRecorder:
    """The progress of one query; all methods may be called in any thread."""

    def __init__(
        self, flow: str, *, steps: Iterable[str], sinks: Iterable[str], interval: float
    ) -> None:
        """``interval`` is that of the trigger, in seconds."""
        self._flow = flow
        self._interval = interval
        self._lock = Lock()
        self._results = dict.fromkeys(sinks, 0)
        self._steps = StepTotals([*steps, *self._results])
        self._position: EpochPosition | None = None
        self._records = 0
        self._per_second = 0.0
        self._load = 0.0
        self._seconds: Mapping[str, float] = {}
        self._total_seconds: dict[str, float] = {}
        self._epochs = 0
        self._without_rows = 0
        self._replays = 0
        self._last_batch = BatchReport()
        self._state_bytes_read = 0

    def begin(self, position: EpochPosition) -> None:
        """Record the epoch with which the query continues."""
        with self._lock:
            self._position = position

    def on_replay(self) -> None:
        """Count a batch that Spark repeats."""
        with self._lock:
            self._replays += 1

    def on_batch(self, report: BatchReport) -> None:
        """Record the report of Spark on a completed batch."""
        with self._lock:
            self._last_batch = report

    def on_epoch(self, position: EpochPosition, report: EpochReport, *, has_rows: bool) -> None:
        """Record a committed epoch; ``has_rows`` is False if it only advanced time."""
        with self._lock:
            self._position = position
            self._epochs += 1
            self._without_rows += not has_rows
            self._steps.add(report.steps, position.earned)
            for sink, records in report.results.items():
                self._results[sink] = self._results.get(sink, 0) + records
                self._steps.add_received(sink, records)
            self._seconds = report.seconds
            for phase, seconds in report.seconds.items():
                self._total_seconds[phase] = self._total_seconds.get(phase, 0.0) + seconds
            self._records += report.records
            self._state_bytes_read = report.state_bytes_read
            if report.records:
                took = sum(report.seconds.values())
                self._per_second = report.records / took
                self._load = took / self._interval

    def progress(self, now: Timestamp) -> StreamProgress:
        """Return the present progress; ``now`` (epoch ms) determines the lag of watermarks."""
        with self._lock:
            position = self._position
            assert position is not None
            return StreamProgress(
                flow=self._flow,
                epoch=position.epoch,
                batch=position.batch,
                watermark=position.watermark,
                records=self._records,
                records_per_second=self._per_second,
                load=self._load,
                state_bytes=position.state_bytes,
                state_bytes_read=self._state_bytes_read,
                state_entries=position.state_entries,
                results=dict(self._results),
                seconds=self._seconds,
                total_seconds=dict(self._total_seconds),
                interval=self._interval,
                epochs=self._epochs,
                epochs_without_rows=self._without_rows,
                replays=self._replays,
                committed_at=position.committed_at,
                steps=self._steps.metrics(now),
                last_batch=self._last_batch,
                savepoint=position.savepoint,
            )
