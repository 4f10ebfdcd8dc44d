"""Metrics of a job as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from aflow.errors import readable
from aflow.model.time import MAX_TIMESTAMP
from aflow.runtime.metrics import JobMetrics, StepMetrics


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
    Console(stderr=True, markup=False, highlight=False).print(table)


def _sides(step: StepMetrics) -> str:
    return ", ".join(f"{tag}: {records:,}" for tag, records in sorted(step.sides.items()))


def _watermark(step: StepMetrics) -> str:
    if step.watermark is None:
        return ""
    return "end" if step.watermark >= MAX_TIMESTAMP else readable(step.watermark)
