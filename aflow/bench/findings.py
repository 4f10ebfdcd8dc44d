"""Statements about a run: was the load offered as asked for, could the pipeline follow, and what was saturated.

Pure functions of a result. An ``ERROR`` means that the figures are not those of the load that was asked for, and each
such case has one here: nothing is silently less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aflow.bench.result import (
    BenchResult,
    Finding,
    LoadSample,
    Method,
    Severity,
    SourceFigures,
)

#: The share of the offered records that may be accepted later than in the measured part.
_SHORTFALL: Final = 0.01

#: Seconds of load that may wait at the end of the measured part.
_BACKLOG_SECONDS: Final = 0.1

#: The share of the time from which on a task, the process or a generator counts as saturated.
SATURATED: Final = 0.85

#: Bounds of the noise of the machine: ms of a timer, share of a core, share of stolen time.
_TIMER_MS: Final = 0.5
_OTHER_CPU: Final = 0.25
_STEAL: Final = 0.02


def findings_of(
    result: BenchResult, unfinished: str | None, ended_early: Sequence[str]
) -> list[Finding]:
    """Return all findings, errors first.

    ``unfinished`` describes the work that did not end in time; ``ended_early`` are the sources whose generators had too
    few records.
    """
    found = [
        *_run(result, unfinished),
        *(one for source in result.sources for one in _source(result, source)),
        *(
            _error(
                f"the generator of source {name!r} ended before the load: it has too few records"
            )
            for name in ended_early
        ),
        *_latencies(result),
        *_machine(result),
        *_blocked(result),
    ]
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def saturated(result: BenchResult) -> str:
    """Return the part of the pipeline with the least reserve, in words."""
    for name, calls in result.calls.items():
        if calls.limit and calls.in_flight >= SATURATED * calls.limit:
            return f"the calls of step {name!r}: {calls.in_flight} of {calls.limit} in flight on average"
    busiest = max(result.tasks.items(), key=lambda item: item[1].busy, default=None)
    if busiest is None:
        return "unknown: there are no samples"
    name, shares = busiest
    if result.process.cpu >= SATURATED:
        return (
            f"the event loop: the process used {result.process.cpu:.0%} of a core; the busiest task is {name!r} with "
            f"{shares.busy:.0%} of the time"
        )
    if shares.busy >= SATURATED:
        return (
            f"task {name!r}, which worked for {shares.busy:.0%} of the time, while the process got only "
            f"{result.process.cpu:.0%} of a core: other programs used the machine"
        )
    waiting = max(result.tasks.items(), key=lambda item: item[1].backpressured)
    if waiting[1].backpressured >= 0.2:
        return (
            f"a sink or task downstream of {waiting[0]!r}, which had backpressure for {waiting[1].backpressured:.0%} "
            f"of the time"
        )
    return f"nothing: the busiest task, {name!r}, worked for {shares.busy:.0%} of the time"


def backlog_growth(samples: Sequence[LoadSample]) -> float:
    """Return the growth of the backlog in records per second: the slope of the least-squares line."""
    if len(samples) < 3:
        return 0.0
    times = [one.at_s for one in samples]
    backlogs = [float(one.backlog) for one in samples]
    mean_time, mean_backlog = sum(times) / len(times), sum(backlogs) / len(backlogs)
    spread = sum((time - mean_time) ** 2 for time in times)
    if not spread:
        return 0.0
    return (
        sum(
            (time - mean_time) * (backlog - mean_backlog)
            for time, backlog in zip(times, backlogs, strict=True)
        )
        / spread
    )


def fell_behind(source: SourceFigures) -> bool:
    """Return True if many records were due at the end of the measured part and not accepted."""
    allowed = max(_SHORTFALL * source.offered, _BACKLOG_SECONDS * source.offered_per_s, 2.0)
    return source.backlog > allowed


def _run(result: BenchResult, unfinished: str | None) -> Iterator[Finding]:
    if result.failure is not None:
        yield _error(
            f"the pipeline failed after {result.warmup_s + result.duration_s:.1f} s, and the figures are those until "
            f"then: {result.failure}"
        )
    if result.interrupted:
        yield _warning(
            f"the run was interrupted: {result.duration_s:.1f} s were measured"
            if result.duration_s
            else "the run was interrupted before the measured part: nothing was measured"
        )
    if unfinished is not None:
        yield _error(f"the pipeline did not process everything in time; left: {unfinished}")
    if result.restarts:
        yield _warning(f"the job was restarted {result.restarts} times")


def _source(result: BenchResult, source: SourceFigures) -> Iterator[Finding]:
    if fell_behind(source):
        if source.generator_share >= 0.5:
            yield _error(
                f"the generator of source {source.name!r} is slower than the rate: {source.accepted_per_s:,.0f} "
                f"records per second in place of {source.offered_per_s:,.0f}, and making them took "
                f"{source.generator_share:.0%} of the time"
            )
        else:
            yield _error(
                f"the pipeline is slower than the load of source {source.name!r}: it accepted "
                f"{source.accepted_per_s:,.0f} records per second of {source.offered_per_s:,.0f}, and "
                f"{source.backlog:,} waited at the end, so latencies grow with the length of the run; saturated: "
                f"{saturated(result)}"
            )
    elif source.generator_share >= 0.25:
        yield _warning(
            f"making the records of source {source.name!r} took {source.generator_share:.0%} of the time, on the same "
            f"core as the pipeline"
        )
    if source.abandoned:
        yield _error(
            f"source {source.name!r}: {source.abandoned:,} records were due and never accepted, so their latencies are "
            f"missing; they are above all that were measured"
        )


def _latencies(result: BenchResult) -> Iterator[Finding]:
    if result.duration_s and not result.interrupted and not result.latencies:
        yield _warning("no latency was measured: no result arrived in a sink")
    for one in result.latencies:
        pair = f"latency from {one.source!r} to {one.sink!r}"
        if one.method is Method.MARKERS:
            yield _note(
                f"{pair}: measured by {one.count:,} markers, since its results are not made of single records "
                f"(windows, timers); the wait for event time is not included"
            )
        elif one.error_ms > max(0.2, 0.1 * one.percentiles_ms.get("50", 0.0)):
            yield _note(
                f"{pair}: records were read in batches of up to {one.error_ms:.2f} ms; the latency of a single record "
                f"may be wrong by as much if steps drop, add or reorder records"
            )


def _machine(result: BenchResult) -> Iterator[Finding]:
    noise = result.noise
    if noise.timer_p99_ms > _TIMER_MS:
        yield _warning(
            f"the machine is noisy: timers on the idle event loop were late by {noise.timer_p99_ms:.2f} ms (p99), "
            f"which is part of all latencies"
        )
    if noise.other_cpu > _OTHER_CPU:
        yield _warning(f"other programs used {noise.other_cpu:.0%} of a core during the run")
    if noise.steal > _STEAL:
        yield _warning(
            f"the host of this virtual machine withheld {noise.steal:.1%} of the processor time"
        )


def _blocked(result: BenchResult) -> Iterator[Finding]:
    for one in result.blocked[:3]:
        step = "" if one.step is None else f"step {one.step!r}, "
        yield _warning(
            f"the event loop was blocked {one.times:,} times, for up to {one.longest_ms:.0f} ms, by {step}"
            f"{one.where or 'code that never released the interpreter lock'}"
        )


def _error(text: str) -> Finding:
    return Finding(severity=Severity.ERROR, text=text)


def _warning(text: str) -> Finding:
    return Finding(severity=Severity.WARNING, text=text)


def _note(text: str) -> Finding:
    return Finding(severity=Severity.NOTE, text=text)
