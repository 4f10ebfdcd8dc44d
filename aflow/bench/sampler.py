"""Samples of a job under load: differences of its metrics between two moments, and the latencies of its sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aflow.bench.histogram import LatencyHistogram, percentile_of
from aflow.bench.load_source import LoadSource
from aflow.bench.machine import LoopLag, ProcessMeter
from aflow.bench.recorder import SinkRecord
from aflow.bench.result import CallFigures, LatencySample, LoadSample, Phase, TaskShares
from aflow.runtime.metrics import JobMetrics, TaskMetrics

_NO_WORK: Final = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Total:
    """A counter that continues over restarts of the job, which begin to count at zero."""

    total: int = 0
    last: int = 0

    def update(self, value: int) -> int:
        self.total += value - self.last if value >= self.last else value
        self.last = value
        return self.total


@dataclass(frozen=True, slots=True)
class LoadMeters:
    """Everything that a sampler reads."""

    metrics: Callable[[], JobMetrics]
    steady: Callable[[], float]
    loads: Sequence[LoadSource]
    records: Sequence[SinkRecord]
    process: ProcessMeter
    lag: LoopLag


@dataclass(slots=True)
class LatencyTotals:
    """The latencies of the whole run by source and sink."""

    histograms: dict[tuple[str, str], LatencyHistogram] = field(
        default_factory=dict[tuple[str, str], LatencyHistogram]
    )

    def add(self, source: str, sink: str, counts: Mapping[int, int]) -> None:
        """Add latencies that were counted by microseconds."""
        pair = (source, sink)
        if pair not in self.histograms:
            self.histograms[pair] = LatencyHistogram()
        self.histograms[pair].add(counts)


class LoadSampler:
    """Takes samples. The first one begins at ``origin``."""

    def __init__(self, instruments: LoadMeters, origin: float) -> None:
        self._read = instruments
        self._origin = origin
        self._before = origin
        self._cpu = instruments.process.cpu_seconds
        self._work: dict[str, tuple[float, float, float]] = {}
        self._processed = {load.name: _Total() for load in instruments.loads}
        self.latencies = LatencyTotals()
        self.samples: list[LoadSample] = []

    def take(self, phase: Phase) -> LoadSample:
        """Measure what was since the last call."""
        read = self._read
        now = read.steady()
        seconds = max(now - self._before, 1e-6)
        metrics = read.metrics()
        cpu = read.process.cpu_seconds
        sample = LoadSample(
            at_s=now - self._origin,
            seconds=seconds,
            phase=phase,
            offered={load.name: load.offered() for load in read.loads},
            accepted={load.name: load.accepted for load in read.loads},
            processed={load.name: self._count_processed(load, metrics) for load in read.loads},
            results={record.name: record.results for record in read.records},
            latencies=self._drain_latencies(),
            tasks=self._shares(metrics, seconds),
            lag_ms={
                step.name: step.lag_ms for step in metrics.steps.values() if step.lag_ms is not None
            },
            calls=call_figures(metrics),
            loop_lag_ms=read.lag.take_longest() * 1000,
            cpu=(cpu - self._cpu) / seconds,
            rss_bytes=read.process.rss_bytes,
            gc_ms=read.process.take_longest_gc() * 1000,
            checkpoints=metrics.checkpoints.completed,
        )
        self._before, self._cpu = now, cpu
        self.samples.append(sample)
        return sample

    def _count_processed(self, load: LoadSource, metrics: JobMetrics) -> int:
        step = metrics.steps.get(load.name)
        total = self._processed[load.name]
        return total.total if step is None else total.update(step.records_out)

    def _drain_latencies(self) -> list[LatencySample]:
        found: list[LatencySample] = []
        for record in self._read.records:
            for source, counts in record.drain().items():
                self.latencies.add(source, record.name, counts)
                found.append(_latency_sample(source, record.name, counts))
        return found

    def _shares(self, metrics: JobMetrics, seconds: float) -> dict[str, TaskShares]:
        tasks: dict[str, list[TaskMetrics]] = {}
        for one in metrics.tasks:
            tasks.setdefault(one.name, []).append(one)
        shares: dict[str, TaskShares] = {}
        for name, subtasks in tasks.items():
            work = (
                sum(one.busy_s for one in subtasks),
                sum(one.backpressured_s for one in subtasks),
                sum(one.calling_s for one in subtasks),
            )
            before = self._work.get(name, _NO_WORK)
            # After a restart the times begin at zero.
            busy, backpressured, calling = (
                max(0.0, (now - then if now >= then else now) / seconds)
                for now, then in zip(work, before, strict=True)
            )
            self._work[name] = work
            shares[name] = TaskShares(
                busy=busy,
                backpressured=backpressured,
                calling=calling,
                queued=sum(one.queued_records for one in subtasks),
            )
        return shares


def call_figures(metrics: JobMetrics) -> dict[str, CallFigures]:
    """Return the calls of each step that makes some."""
    return {
        step.name: CallFigures(
            in_flight=step.calls.in_flight,
            limit=step.calls.limit,
            made=step.calls.calls,
            retries=step.calls.retries,
        )
        for step in metrics.steps.values()
        if step.calls is not None
    }


def mean_shares(samples: Sequence[LoadSample]) -> dict[str, TaskShares]:
    """Return the mean of the shares of each task over ``samples``, weighted by their lengths."""
    means: dict[str, TaskShares] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample.tasks):
        parts = [(one.tasks[name], one.seconds) for one in samples if name in one.tasks]
        seconds = sum(length for _, length in parts)
        means[name] = TaskShares(
            busy=sum(one.busy * length for one, length in parts) / seconds,
            backpressured=sum(one.backpressured * length for one, length in parts) / seconds,
            calling=sum(one.calling * length for one, length in parts) / seconds,
            queued=round(sum(one.queued * length for one, length in parts) / seconds),
        )
    return means


def mean_calls(samples: Sequence[LoadSample]) -> dict[str, CallFigures]:
    """Return the last figures of each step with calls, with the mean of its calls in flight."""
    if not samples:
        return {}
    return {
        name: CallFigures(
            in_flight=round(
                sum(one.calls[name].in_flight for one in samples if name in one.calls)
                / sum(1 for one in samples if name in one.calls)
            ),
            limit=last.limit,
            made=last.made,
            retries=last.retries,
        )
        for name, last in samples[-1].calls.items()
    }


def _latency_sample(source: str, sink: str, counts: Counter[int]) -> LatencySample:
    return LatencySample(
        source=source,
        sink=sink,
        count=counts.total(),
        p50_ms=percentile_of(counts, 50),
        p99_ms=percentile_of(counts, 99),
        max_ms=max(counts) / 1000,
    )
