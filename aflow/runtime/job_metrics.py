"""The metrics of a job, collected when they are asked for."""

from __future__ import annotations

from aflow.operators.latency import LatencyMetrics, LatencySamples, latency_metrics
from aflow.runtime.calls.reports import Reports
from aflow.runtime.checkpoints.statistics import CheckpointTally
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.job_builder import Built
from aflow.runtime.mailbox_loop import SuspendReason
from aflow.runtime.metrics import JobMetrics, TaskMetrics, step_metrics
from aflow.runtime.task import StreamTask


def job_metrics(
    built: Built,
    tally: CheckpointTally,
    reports: Reports,
    *,
    restarts: int,
    clock: RuntimeClock,
) -> JobMetrics:
    """Return the counters and the present activity, at the present time of ``clock``."""
    now, steady = clock.now(), clock.steady()
    return JobMetrics(
        steps={
            name: step_metrics(name, counters, now) for name, counters in built.counters.items()
        },
        tasks=[_task_metrics(task, steady) for task in built.tasks],
        checkpoints=tally.metrics(),
        restarts=restarts,
        latencies=_latencies(built),
        blocked=reports.blocked,
        left_behind=reports.left_behind,
    )


def _latencies(built: Built) -> list[LatencyMetrics]:
    measured: dict[tuple[str, str], list[LatencySamples]] = {}
    for task in built.tasks:
        for sink in task.chain.sinks:
            for source, samples in sink.latencies.items():
                measured.setdefault((source, sink.name), []).append(samples)
    return [latency_metrics(*pair, samples) for pair, samples in measured.items()]


def _task_metrics(task: StreamTask, steady: float) -> TaskMetrics:
    end = steady if task.stopped_at is None else task.stopped_at
    waited = {why: task.loop.waited_so_far(why) for why in SuspendReason}
    return TaskMetrics(
        name=task.name,
        subtask=task.id.subtask,
        busy_s=max(0.0, end - task.started_at - sum(waited.values())),
        idle_s=waited[SuspendReason.IDLE],
        backpressured_s=waited[SuspendReason.BACKPRESSURED],
        calling_s=waited[SuspendReason.CALLING],
        aligning_s=waited[SuspendReason.ALIGNING],
        queued_records=task.input.queued_records,
    )
