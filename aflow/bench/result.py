"""The result of a load, as plain data: what reports show, JSON files contain, and ``compare`` reads.

All durations have their unit in the name: ``_s`` seconds, ``_ms`` milliseconds. Rates are records per second.
``json_schema`` describes the JSON; docs/reference/bench-result.md is written from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from aflow.bench.histogram import LatencyHistogram
from aflow.bench.machine import MachineInfo, MachineNoise
from aflow.errors import AflowError

#: The version of the JSON. A change that readers notice gets another number.
SCHEMA: Final = "aflow-bench/1"


class BenchError(AflowError):
    """A load that could not be measured as it was asked for, or a file that is no result of one."""


class Severity(Enum):
    """The weight of a finding."""

    ERROR = "error"
    """The run did not measure what was asked for: the figures must not be used as if it had."""
    WARNING = "warning"
    NOTE = "note"


class Phase(Enum):
    """The part of a run in which a sample was taken."""

    WARMUP = "warmup"
    MEASURED = "measured"
    SETTLING = "settling"
    """After the last intended time, while records in flight are processed."""


class Method(Enum):
    """The way in which latencies were measured."""

    RECORDS = "records"
    """From the intended times of records to their results in the sink."""
    MARKERS = "markers"
    """By latency markers of the runtime, from the intended time of the first record before them. Waits for event time,
    as of open windows, are not included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A statement about a run."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFigures:
    """Latencies from a source to a sink, in the measured part of the run."""

    source: str
    sink: str
    method: Method
    count: int
    mean_ms: float | None
    percentiles_ms: dict[str, float]
    """By the percentile: ``"99.9"``. A percentile with fewer than five latencies above it is left out."""
    max_ms: float
    error_ms: float = 0.0
    """The largest possible error of a single latency: the longest time between the first and last record of a batch."""
    histogram: str = ""
    """Microseconds, in the format of HdrHistogram (V2, compressed, base64); empty for markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """The load of one source, in the measured part of the run."""

    name: str
    arrivals: str
    """The schedule in words."""
    offered: int
    """Records whose intended time is in the measured part."""
    accepted: int
    """Records that the pipeline took in this time."""
    processed: int
    """Records that its first steps had processed in this time."""
    offered_per_s: float
    accepted_per_s: float
    processed_per_s: float
    backlog: int
    """Records that were due and not accepted at the end of the measured part."""
    abandoned: int
    """Records that were due and never accepted."""
    generator_share: float
    """Share of the time that the generator of the records used."""
    generator_per_s: float
    """Records per second that the generator makes when nothing else runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFigures:
    """The results in one sink, in the measured part of the run."""

    name: str
    kept: bool
    """True if it is the sink of the pipeline, False for a recorder in its place."""
    results: int
    results_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShares:
    """One task: shares of the time, and queued records. Shares of several subtasks are added."""

    busy: float
    backpressured: float
    calling: float
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """The calls of one step."""

    in_flight: int
    limit: int
    made: int
    """Since the start of the job."""
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """Latencies that were measured in one sample, from a source to a sink."""

    source: str
    sink: str
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """Everything that was measured between two moments. Counts are totals since the start of the load."""

    at_s: float
    """The end of the sample, since the start of the load."""
    seconds: float
    """The length of the sample."""
    phase: Phase
    offered: dict[str, int]
    accepted: dict[str, int]
    processed: dict[str, int]
    results: dict[str, int]
    latencies: list[LatencySample]
    tasks: dict[str, TaskShares]
    """Shares of this sample; ``queued`` is that of its end."""
    lag_ms: dict[str, int]
    """The lag of the watermark, by step."""
    calls: dict[str, CallFigures]
    loop_lag_ms: float
    """The longest time for which the event loop was late."""
    cpu: float
    """Processor time of the process per second."""
    rss_bytes: int
    gc_ms: float
    """The longest garbage collection."""
    checkpoints: int
    """Completed ones."""

    @property
    def backlog(self) -> int:
        """Records of all sources that are due and were not accepted."""
        return sum(self.offered.values()) - sum(self.accepted.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFigures:
    """The checkpoints that ended between the start of the measured part and the end of the run."""

    completed: int
    failed: int
    duration_p50_ms: float
    duration_max_ms: float
    pause_max_ms: float
    """The longest pause of a subtask."""
    bytes_last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedCode:
    """Code that blocked the event loop between the start of the measured part and the end of the run."""

    step: str | None
    where: str
    """The function and the line."""
    times: int
    longest_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    """The process: processor and memory in the measured part of the run, garbage collections and the lag of the loop
    from its start until the end of the run."""

    cpu: float
    """Processor time per second, of all threads."""
    rss_max_bytes: int
    gc_count: int
    gc_total_ms: float
    gc_max_ms: float
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One run. ``check`` raises if it did not measure what was asked for."""

    flow: str
    started_at: str
    """ISO 8601, UTC."""
    aflow: str
    """The version of aflow."""
    machine: MachineInfo
    noise: MachineNoise
    """Timers before the run; the others from the start of the measured part until the end of the run."""
    warmup_s: float
    duration_s: float
    """The measured part: shorter than asked for if the run was interrupted or failed."""
    in_flight: int | None
    """The number of records of a closed loop; None: an open one."""
    sources: list[SourceFigures]
    sinks: list[SinkFigures]
    latencies: list[LatencyFigures]
    tasks: dict[str, TaskShares]
    """Means of the measured part."""
    calls: dict[str, CallFigures]
    """Means of the calls in flight; other figures are those of the end."""
    checkpoints: CheckpointFigures
    blocked: list[BlockedCode]
    process: ProcessFigures
    restarts: int
    findings: list[Finding]
    samples: list[LoadSample]
    failure: str | None = None
    """The error with which the pipeline failed."""
    interrupted: bool = False
    schema: str = field(default=SCHEMA)

    @property
    def problems(self) -> list[str]:
        """The findings that are errors."""
        return [one.text for one in self.findings if one.severity is Severity.ERROR]

    @property
    def ok(self) -> bool:
        """True if the run measured what was asked for."""
        return not self.problems

    def check(self) -> None:
        """Raise ``BenchError`` with all problems if there are any."""
        if self.problems:
            raise BenchError("; ".join(self.problems))

    def latency(self, source: str | None = None, sink: str | None = None) -> LatencyFigures:
        """Return the latencies from ``source`` to ``sink``; either may be left out if there is one such pair.

        Those of records are preferred to those of markers. Raises ``BenchError``.
        """
        found = [
            one
            for one in self.latencies
            if source in (None, one.source) and sink in (None, one.sink)
        ]
        found = [one for one in found if one.method is Method.RECORDS] or found
        if len(found) != 1:
            pairs = ", ".join(f"{one.source} to {one.sink}" for one in self.latencies) or "none"
            raise BenchError(
                f"there are {len(found)} such pairs of a source and a sink; measured: {pairs}"
            )
        return found[0]

    def histogram(self, figures: LatencyFigures) -> LatencyHistogram:
        """Return the histogram of ``figures``; empty for markers."""
        return LatencyHistogram(figures.histogram.encode() or None)

    @property
    def measured_samples(self) -> list[LoadSample]:
        """The samples of the measured part."""
        return [one for one in self.samples if one.phase is Phase.MEASURED]

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        Path(path).write_bytes(self.to_json())


def load_result(path: str | Path) -> BenchResult:
    """Read a file that ``BenchResult.save`` has written. Raises ``BenchError``."""
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise BenchError(f"{path} cannot be read: {exc.strerror}") from exc
    try:
        result = msgspec.json.decode(data, type=BenchResult)
    except msgspec.DecodeError as exc:
        raise BenchError(f"{path} is no result of aflow bench: {exc}") from exc
    if result.schema != SCHEMA:
        raise BenchError(f"{path} has the schema {result.schema!r}; this version reads {SCHEMA!r}")
    return result


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of results."""
    return msgspec.json.schema(BenchResult)
