"""Metrics of a job as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from aflow.errors import readable
from aflow.model.time import MAX_TIMESTAMP
from aflow.runtime.metrics import CallMetrics, CheckpointMetrics, JobMetrics, StepMetrics


def print_metrics(metrics: JobMetrics) -> None:
    """Print the metrics of all steps to stderr: stdout belongs to the pipeline."""
    table = Table(title="steps", title_justify="left")
    for heading in ("step", "records in", "records out", "side outputs", "watermark"):
        table.add_column(heading, justify="right" if heading.startswith("records") else "left")
    for step in metrics.steps.values():
        table.add_row(
            step.name,
            f"{step.records_in:,}",
            f"{step.records_out:,}",
            _sides(step),
            _watermark(step),
        )
    console = Console(stderr=True, markup=False, highlight=False)
    console.print(table)
    for step in metrics.steps.values():
        if step.calls is not None:
            console.print(f"calls of {step.name}: {_calls(step.calls)}", soft_wrap=True)
    if metrics.checkpoints.completed or metrics.checkpoints.failed:
        console.print(_checkpoints(metrics.checkpoints), soft_wrap=True)
    if metrics.restarts:
        console.print(
            f"restarts: {metrics.restarts:,}; the numbers of steps are since the last one",
            soft_wrap=True,
        )


def _calls(calls: CallMetrics) -> str:
    """Return the counts that are not zero."""
    others = (
        ("retries", calls.retries),
        ("timeouts", calls.timeouts),
        ("dropped", calls.dropped),
        ("dead letters", calls.dead_letters),
        ("fallbacks", calls.fallbacks),
        ("from the cache", calls.cache_hits),
        ("merged", calls.merged),
        ("abandoned", calls.abandoned),
        ("in flight", calls.in_flight),
    )
    counted = [f"{number:,} {what}" for what, number in others if number]
    return ", ".join([f"{calls.calls:,} made", *counted, f"limit {calls.limit:,}"])


def _checkpoints(checkpoints: CheckpointMetrics) -> str:
    last = ""
    if checkpoints.last_duration_ms is not None:
        last = (
            f"; the last took {checkpoints.last_duration_ms:,.0f} ms and has "
            f"{checkpoints.last_bytes:,} bytes, {checkpoints.last_in_flight_records:,} records in flight, "
            f"waited {checkpoints.last_start_delay_ms:,.0f} ms for the first barrier "
            f"and {checkpoints.last_alignment_ms:,.0f} ms for the others"
        )
    return (
        f"checkpoints: {checkpoints.completed:,} completed, {checkpoints.failed:,} failed{last}; "
        f"longest pause of a subtask {checkpoints.longest_pause_ms:.1f} ms"
    )


def _sides(step: StepMetrics) -> str:
    return ", ".join(f"{tag}: {records:,}" for tag, records in sorted(step.sides.items()))


def _watermark(step: StepMetrics) -> str:
    if step.watermark is None:
        return ""
    return "end" if step.watermark >= MAX_TIMESTAMP else readable(step.watermark)
