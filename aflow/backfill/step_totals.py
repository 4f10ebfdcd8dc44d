"""Counters of steps over the epochs of a stream, as ``Job.metrics()`` has them for a live job.

An executor counts the records of a partition with the counters of a live task. ``StepCount`` is one of these counters
as data. ``StepTotals`` adds those of all partitions and epochs, on the driver. A step downstream of a union runs in
several fragments, each of which receives other records, so their counts add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from aflow.machines.calls.counters import CallCounters
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.runtime.metrics import StepCounters, StepMetrics, step_metrics

#: Counters of calls that are not added: they describe the moment, and no call is in flight between epochs.
_OF_THE_MOMENT: Final = frozenset({"in_flight", "waiting", "limit"})


@dataclass(frozen=True, slots=True)
class StepCount:
    """Counters of one step in one partition of an epoch."""

    records_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    watermark: Timestamp = MIN_TIMESTAMP
    """The last watermark (epoch ms) that the step has emitted."""
    sides: dict[str, int] = field(default_factory=dict[str, int])
    """Records sent to each side output."""
    calls: CallCounters | None = None
    """For asynchronous steps."""

    @classmethod
    def of(cls, counters: StepCounters) -> StepCount:
        """Return the present values of ``counters``."""
        return cls(
            counters.records_in,
            counters.batches_in,
            counters.records_out,
            counters.watermark,
            dict(counters.sides),
            None if counters.calls is None else counters.calls(),
        )


class StepTotals:
    """Totals of all steps of one stream."""

    def __init__(self, names: Iterable[str]) -> None:
        """``names`` are the steps and sinks of the flow, in their order."""
        self._totals = {name: StepCounters() for name in names}
        self._calls: dict[str, CallCounters] = {}

    def add(
        self, partitions: Iterable[Mapping[str, StepCount]], earned: Mapping[str, Timestamp]
    ) -> None:
        """Add the counts of an epoch, by the names of the steps.

        ``earned`` are the watermarks (epoch ms) of the steps that assign timestamps, which emit none themselves.
        """
        watermarks: dict[str, Timestamp] = {}
        for partition in partitions:
            for name, count in partition.items():
                self._add(name, count)
                watermarks[name] = min(count.watermark, watermarks.get(name, count.watermark))
        for name, at in {**watermarks, **earned}.items():
            self._total(name).watermark = at

    def add_received(self, sink: str, records: int) -> None:
        """Add ``records`` that a sink has received."""
        self._total(sink).records_in += records

    def metrics(self, now: Timestamp) -> dict[str, StepMetrics]:
        """Return the metrics of each step; ``now`` (epoch ms) determines the lag of its watermark."""
        return {name: step_metrics(name, [one], now) for name, one in self._totals.items()}

    def _total(self, name: str) -> StepCounters:
        return self._totals.setdefault(name, StepCounters())

    def _add(self, name: str, count: StepCount) -> None:
        total = self._total(name)
        total.records_in += count.records_in
        total.batches_in += count.batches_in
        total.records_out += count.records_out
        for side, records in count.sides.items():
            total.count_side(side, records)
        if count.calls is not None:
            calls = self._calls.setdefault(name, CallCounters())
            for one in fields(CallCounters):
                if one.name not in _OF_THE_MOMENT:
                    added = getattr(calls, one.name) + getattr(count.calls, one.name)
                    setattr(calls, one.name, added)
            total.calls = lambda: calls
