"""Traces and metrics of jobs for OpenTelemetry: ``Options(telemetry=OpenTelemetry())``.

Here: spans of checkpoints, restores, restarts, traced records and their calls, and the metrics of jobs as observable
instruments. Not here: providers, exporters and samplers, which are the program's; metrics themselves, which
``Job.metrics()`` has. Read ``open_telemetry.py`` first, then ``job_spans.py``.

Needs the extra ``otel``. ``aflow`` itself does not import this package.
"""

from aflow.model.distribution import install_command

try:
    from aflow.telemetry.open_telemetry import OpenTelemetry
except ModuleNotFoundError as _missing:
    if (_missing.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ImportError(
        f"aflow.telemetry needs opentelemetry-api, which is in the extra 'otel': {install_command('otel')}",
        name="opentelemetry",
    ) from _missing

__all__ = ["OpenTelemetry"]
