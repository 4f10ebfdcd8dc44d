"""Latencies in an HDR histogram: three significant digits from 1 µs to an hour, in a few kilobytes.

The histogram is that of ``hdrhistogram``, the Python port by the authors of the original, so its encoded form can be
read by the tools of HdrHistogram. Recording a value in Python takes about 1.3 µs, so the recorders of a run count whole
microseconds in a ``Counter`` (about 0.1 µs) and add the counts here once for each sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hdrh.histogram import HdrHistogram

#: Of the reports. A percentile needs some measurements above it; ``LatencyHistogram.known`` says which it has.
PERCENTILES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)

_HIGHEST: Final = 3_600_000_000
_DIGITS: Final = 3


class LatencyHistogram:
    """Latencies, counted by microseconds. Longer ones than an hour count as an hour."""

    def __init__(self, encoded: bytes | None = None) -> None:
        """``encoded`` is the result of ``encode`` of another histogram."""
        untyped: Any = HdrHistogram
        self._hdr = untyped(1, _HIGHEST, _DIGITS) if encoded is None else untyped.decode(encoded)

    @property
    def count(self) -> int:
        """The number of latencies."""
        return int(self._hdr.get_total_count())

    def add(self, counts: Mapping[int, int]) -> None:
        """Add latencies: how often each number of microseconds was measured."""
        record = self._hdr.record_value
        for micros, count in counts.items():
            record(min(max(micros, 0), _HIGHEST), count)

    def percentile(self, percent: float) -> float:
        """Return the latency (ms) that ``percent`` of all do not exceed; 0 if there is none."""
        return float(self._hdr.get_value_at_percentile(percent)) / 1000 if self.count else 0.0

    def known(self, percent: float) -> bool:
        """Return True if at least five latencies are above the percentile: otherwise it depends on single ones."""
        return self.count * (100.0 - percent) / 100.0 >= 5.0 - 1e-6

    @property
    def highest(self) -> float:
        """The longest latency (ms)."""
        return float(self._hdr.get_max_value()) / 1000 if self.count else 0.0

    @property
    def mean(self) -> float:
        """The mean latency (ms)."""
        return float(self._hdr.get_mean_value()) / 1000 if self.count else 0.0

    def bars(self) -> Iterator[tuple[float, int]]:
        """Yield each latency (ms) with its count, ascending, as precise as the histogram is."""
        for item in self._hdr.get_recorded_iterator():
            yield item.value_iterated_to / 1000, item.count_at_value_iterated_to

    def encode(self) -> bytes:
        """Return the histogram in the compressed format of HdrHistogram (V2, base64)."""
        encoded: bytes = self._hdr.encode()
        return encoded


def percentile_of(counts: Mapping[int, int], percent: float) -> float:
    """Return a percentile (ms) of latencies counted by microseconds: the nearest one that occurs; 0 without any."""
    total = sum(counts.values())
    rank = max(1, -(-total * percent // 100))
    for micros in sorted(counts):
        rank -= counts[micros]
        if rank <= 0:
            return micros / 1000
    return 0.0
