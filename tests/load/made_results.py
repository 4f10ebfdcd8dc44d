"""Results of runs that were not run."""

from __future__ import annotations

import random

from aflow.bench.machine import MachineInfo, MachineNoise
from aflow.bench.result import (
    BenchResult,
    CheckpointFigures,
    LatencyFigures,
    LatencySample,
    LoadSample,
    Method,
    Phase,
    ProcessFigures,
    SinkFigures,
    SourceFigures,
)


def run_with(p99_ms: float, *, seed: int, samples: int = 30, noise: float = 0.1) -> BenchResult:
    """Return a result whose samples have a p99 near ``p99_ms``."""
    rng = random.Random(seed)
    taken = [
        LoadSample(
            at_s=number + 1.0,
            seconds=1.0,
            phase=Phase.MEASURED,
            offered={"in": 100 * number},
            accepted={"in": 100 * number},
            processed={"in": 100 * number},
            results={"out": 100 * number},
            latencies=[
                LatencySample(
                    source="in",
                    sink="out",
                    count=100,
                    p50_ms=p99_ms / 4 * rng.uniform(1 - noise, 1 + noise),
                    p99_ms=p99_ms * rng.uniform(1 - noise, 1 + noise),
                    max_ms=p99_ms * 2,
                )
            ],
            tasks={},
            lag_ms={},
            calls={},
            loop_lag_ms=0.1,
            cpu=0.5 * rng.uniform(1 - noise, 1 + noise),
            rss_bytes=1,
            gc_ms=0.0,
            checkpoints=0,
        )
        for number in range(samples)
    ]
    return BenchResult(
        flow="flow",
        started_at="2026-01-01T00:00:00+00:00",
        aflow="0.1.0",
        machine=MachineInfo("cpu", 2, "Linux", "CPython", "uvloop.Loop"),
        noise=MachineNoise(0.1, 0.1, 0.1),
        warmup_s=0.0,
        duration_s=float(samples),
        in_flight=None,
        sources=[
            SourceFigures(
                name="in",
                arrivals="100/s",
                offered=1,
                accepted=1,
                processed=1,
                offered_per_s=100.0,
                accepted_per_s=100.0,
                processed_per_s=100.0,
                backlog=0,
                abandoned=0,
                generator_share=0.0,
                generator_per_s=1e6,
            )
        ],
        sinks=[SinkFigures(name="out", kept=False, results=1, results_per_s=100.0)],
        latencies=[
            LatencyFigures(
                source="in",
                sink="out",
                method=Method.RECORDS,
                count=100,
                mean_ms=p99_ms,
                percentiles_ms={"99": p99_ms},
                max_ms=p99_ms,
                histogram="x",
            )
        ],
        tasks={},
        calls={},
        checkpoints=CheckpointFigures(
            completed=0,
            failed=0,
            duration_p50_ms=0.0,
            duration_max_ms=0.0,
            pause_max_ms=0.0,
            bytes_last=0,
        ),
        blocked=[],
        process=ProcessFigures(
            cpu=0.5,
            rss_max_bytes=1,
            gc_count=0,
            gc_total_ms=0.0,
            gc_max_ms=0.0,
            loop_lag_p50_ms=0.1,
            loop_lag_p99_ms=0.1,
            loop_lag_max_ms=0.1,
        ),
        restarts=0,
        findings=[],
        samples=taken,
    )
