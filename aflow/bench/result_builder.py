"""The result of a run, from its samples and totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from aflow.bench.histogram import PERCENTILES, LatencyHistogram, percentile_of
from aflow.bench.job_observer import JobObserver
from aflow.bench.load_source import LoadSource
from aflow.bench.machine import LoopLag, MachineInfo, MachineNoise, ProcessMeter
from aflow.bench.recorder import SinkRecord
from aflow.bench.result import (
    BenchResult,
    LatencyFigures,
    LoadSample,
    Method,
    Phase,
    ProcessFigures,
    SinkFigures,
    SourceFigures,
)
from aflow.bench.sampler import LoadSampler, mean_calls, mean_shares
from aflow.model.distribution import VERSION
from aflow.runtime.metrics import JobMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything that is known at the end of a run."""

    flow: str
    started: datetime
    machine: MachineInfo
    noise: MachineNoise
    warmup: float
    end: float
    in_flight: int | None
    loads: Sequence[LoadSource]
    speeds: Mapping[str, float]
    records: Sequence[SinkRecord]
    kept: Collection[str]
    sampler: LoadSampler | None
    metrics: JobMetrics
    observer: JobObserver
    process: ProcessMeter
    lag: LoopLag
    failure: str | None
    interrupted: bool


def build_result(facts: RunFacts) -> BenchResult:
    """Return the result without findings."""
    samples = [] if facts.sampler is None else facts.sampler.samples
    base = next((one for one in reversed(samples) if one.phase is Phase.WARMUP), None)
    measured = [one for one in samples if one.phase is Phase.MEASURED]
    last = measured[-1] if measured else None
    begun = 0.0 if base is None else base.at_s
    duration = 0.0 if last is None else last.at_s - begun
    return BenchResult(
        flow=facts.flow,
        started_at=facts.started.isoformat(timespec="seconds"),
        aflow=VERSION,
        machine=facts.machine,
        noise=facts.noise,
        warmup_s=min(facts.warmup, samples[-1].at_s if samples else 0.0),
        duration_s=duration,
        in_flight=facts.in_flight,
        sources=[_source(facts, load, base, last, duration) for load in facts.loads],
        sinks=[_sink(facts, record, base, last, duration) for record in facts.records],
        latencies=_latencies(facts),
        tasks=mean_shares(measured),
        calls=mean_calls(measured),
        checkpoints=facts.observer.checkpoints(),
        blocked=facts.observer.blocked(),
        process=_process(facts, measured),
        restarts=facts.metrics.restarts,
        findings=[],
        samples=samples,
        failure=facts.failure,
        interrupted=facts.interrupted,
    )


def _source(
    facts: RunFacts,
    load: LoadSource,
    base: LoadSample | None,
    last: LoadSample | None,
    seconds: float,
) -> SourceFigures:
    name = load.name
    offered = _change("offered", name, base, last)
    accepted = _change("accepted", name, base, last)
    processed = _change("processed", name, base, last)
    missed = load.offered() - load.accepted
    ended_early = load.is_stopped or load.supply.ended or facts.failure is not None
    share = load.supply.seconds / seconds if seconds else 0.0
    return SourceFigures(
        name=name,
        arrivals=str(load.schedule)
        if facts.in_flight is None
        else f"closed loop, {facts.in_flight:,} in flight",
        offered=offered,
        accepted=accepted,
        processed=processed,
        offered_per_s=_rate(offered, seconds),
        accepted_per_s=_rate(accepted, seconds),
        processed_per_s=_rate(processed, seconds),
        backlog=0 if last is None else last.offered[name] - last.accepted[name],
        abandoned=0 if ended_early else missed,
        generator_share=min(share, 1.0),
        generator_per_s=facts.speeds[name],
    )


def _sink(
    facts: RunFacts,
    record: SinkRecord,
    base: LoadSample | None,
    last: LoadSample | None,
    seconds: float,
) -> SinkFigures:
    results = _change("results", record.name, base, last)
    return SinkFigures(
        name=record.name,
        kept=record.name in facts.kept,
        results=results,
        results_per_s=_rate(results, seconds),
    )


def _latencies(facts: RunFacts) -> list[LatencyFigures]:
    histograms = {} if facts.sampler is None else facts.sampler.latencies.histograms
    errors = {record.name: record.longest_batch * 1000 for record in facts.records}
    found = [
        _of_records(pair, histogram, errors[pair[1]]) for pair, histogram in histograms.items()
    ]
    loaded = {load.name for load in facts.loads}
    with_results = {record.name for record in facts.records if record.results}
    found += [
        LatencyFigures(
            source=one.source,
            sink=one.sink,
            method=Method.MARKERS,
            count=one.count,
            mean_ms=None,
            percentiles_ms={"50": one.p50_ms, "99": one.p99_ms},
            max_ms=one.max_ms,
        )
        for one in facts.metrics.latencies
        if (one.source, one.sink) not in histograms
        and one.source in loaded
        and one.sink in with_results
    ]
    return found


def _of_records(pair: tuple[str, str], histogram: LatencyHistogram, error: float) -> LatencyFigures:
    source, sink = pair
    return LatencyFigures(
        source=source,
        sink=sink,
        method=Method.RECORDS,
        count=histogram.count,
        mean_ms=histogram.mean,
        percentiles_ms={
            f"{percent:g}": histogram.percentile(percent)
            for percent in PERCENTILES
            if histogram.known(percent)
        },
        max_ms=histogram.highest,
        error_ms=error,
        histogram=histogram.encode().decode("ascii"),
    )


def _process(facts: RunFacts, measured: Sequence[LoadSample]) -> ProcessFigures:
    seconds = sum(one.seconds for one in measured)
    lag, process = facts.lag.counts, facts.process
    return ProcessFigures(
        cpu=sum(one.cpu * one.seconds for one in measured) / seconds if seconds else 0.0,
        rss_max_bytes=max((one.rss_bytes for one in measured), default=0),
        gc_count=process.gc_count,
        gc_total_ms=process.gc_seconds * 1000,
        gc_max_ms=process.gc_max_seconds * 1000,
        loop_lag_p50_ms=percentile_of(lag, 50),
        loop_lag_p99_ms=percentile_of(lag, 99),
        loop_lag_max_ms=percentile_of(lag, 100),
    )


def _change(what: str, name: str, base: LoadSample | None, last: LoadSample | None) -> int:
    """Return the difference of a total between two samples; 0 if nothing was measured."""
    if last is None:
        return 0
    before = 0 if base is None else int(getattr(base, what)[name])
    return int(getattr(last, what)[name]) - before


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
