"""Metrics of a job as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from aflow.errors import readable
from aflow.model.time import MAX_TIMESTAMP
from aflow.runtime.metrics import CallMetrics, CheckpointMetrics, JobMetrics, StepMetrics


def print_metrics(metrics: JobMetrics) -> None:
    """Print what each step has done, to stderr: stdout belongs to the pipeline."""
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
            f"restarts: {metrics.restarts:,}; what is said of steps is since the last one",
            soft_wrap=True,
        )


def _calls(calls: CallMetrics) -> str:
    """What was counted, but for what never happened."""
    others = (
        ("retries", calls.retries),
        ("timeouts", calls.timeouts),
        ("dropped", calls.dropped),
        ("dead letters", calls.dead_letters),
        ("fallbacks", calls.fallbacks),
        ("from the cache", calls.cache_hits),
        ("merged", calls.merged),
        ("given up", calls.abandoned),
        ("under way", calls.in_flight),
    )
    counted = [f"{number:,} {what}" for what, number in others if number]
    return ", ".join([f"{calls.calls:,} made", *counted, f"limit {calls.limit:,}"])


def _checkpoints(taken: CheckpointMetrics) -> str:
    last = ""
    if taken.last_duration_ms is not None:
        last = (
            f"; the last took {taken.last_duration_ms:,.0f} ms and has {taken.last_bytes:,} bytes, "
            f"{taken.last_in_flight_records:,} records in flight, waited {taken.last_start_delay_ms:,.0f} ms for the "
            f"first barrier and {taken.last_alignment_ms:,.0f} ms for the others"
        )
    return (
        f"checkpoints: {taken.completed:,} completed, {taken.failed:,} failed{last}; "
        f"longest pause of a subtask {taken.longest_pause_ms:.1f} ms"
    )


def _sides(step: StepMetrics) -> str:
    return ", ".join(f"{tag}: {records:,}" for tag, records in sorted(step.sides.items()))


def _watermark(step: StepMetrics) -> str:
    if step.watermark is None:
        return ""
    return "end" if step.watermark >= MAX_TIMESTAMP else readable(step.watermark)
