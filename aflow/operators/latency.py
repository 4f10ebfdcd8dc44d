"""Latencies that markers have measured between a source and a sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: The number of recent measurements that are kept for each source and subtask of a sink.
_KEPT: Final = 256


class LatencySamples:
    """The recent latencies of one source in one subtask of a sink."""

    __slots__ = ("count", "recent")

    def __init__(self) -> None:
        #: In seconds, oldest first.
        self.recent: Final = deque[float](maxlen=_KEPT)
        #: All that were measured.
        self.count = 0

    def add(self, seconds: float) -> None:
        """Add a measurement."""
        self.recent.append(seconds)
        self.count += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMetrics:
    """Latency from a source to a sink, in ms: from the start of the processing of records in the source until their
    results reach the writer of the sink. Waits for calls and in queues are included, and those for event time, as
    of open windows, are not.

    Percentiles are those of the 256 latest measurements of each subtask; one is made each
    ``Options.latency_interval`` while records arrive.
    """

    source: str
    sink: str
    count: int
    """Measurements since the last start or restart."""
    p50_ms: float
    p99_ms: float
    max_ms: float
    last_ms: float


def latency_metrics(source: str, sink: str, subtasks: Iterable[LatencySamples]) -> LatencyMetrics:
    """Return the metrics of all subtasks of a sink together. At least one of them has a measurement."""
    samples = [one for one in subtasks if one.recent]
    ordered = sorted(value * 1000 for one in samples for value in one.recent)
    return LatencyMetrics(
        source=source,
        sink=sink,
        count=sum(one.count for one in samples),
        p50_ms=_percentile(ordered, 50),
        p99_ms=_percentile(ordered, 99),
        max_ms=ordered[-1],
        last_ms=max(one.recent[-1] for one in samples) * 1000,
    )


def _percentile(ordered: list[float], percent: int) -> float:
    """Return the nearest-rank percentile."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
