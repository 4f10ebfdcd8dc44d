"""The metrics of jobs for Prometheus: read at each scrape, with no work for each record.

Names and values are in ``runtime/metric_table``, and in ``backfill/stream_metrics`` for streams on Spark. Counters of
steps and tasks start from zero when a job restarts, which ``rate`` and ``increase`` of Prometheus take into account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aflow.backfill.stream_metrics import (
    ObservedStream,
    described_stream_metrics,
    stream_samples,
)
from aflow.model.distribution import VERSION
from aflow.runtime.job import Job
from aflow.runtime.metric_table import BUILD, MetricMemory, Sample, described_metrics, samples
from aflow.web.jobs import Jobs, Observed, PresentJobs

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


class JobCollector(Collector):
    """A collector of ``prometheus_client``: ``registry.register(JobCollector(job))``.

    Takes a job or the query of a stream on Spark, several of them, or a function that returns the present ones.
    Register one collector for all: a registry refuses a second one, which has the same names. Scrape it on the thread
    of the event loop. Raises ``FlowDefinitionError`` for other values, and if two jobs of a sequence have one name.
    """

    def __init__(self, jobs: Jobs | PresentJobs) -> None:
        """``PresentJobs`` are those of an application that has them already."""
        self._jobs = jobs if isinstance(jobs, PresentJobs) else PresentJobs(jobs)
        self._memory: WeakKeyDictionary[Job, MetricMemory] = WeakKeyDictionary()

    def describe(self) -> Iterable[Family]:
        """Return all metrics without values."""
        return _families().values()

    def collect(self) -> Iterable[Family]:
        """Return all metrics with their present values. Raises errors of the function that returns the jobs."""
        families = _families()
        families[BUILD[0]].add_metric([VERSION], 1)
        for address, job in self._jobs.observed().items():
            for name, (_, *labels), value in self._samples(job, address):
                families[name].add_metric([_text(label) for label in (address, *labels)], value)
        return families.values()

    def _samples(self, job: Observed, address: str) -> Iterator[Sample]:
        if isinstance(job, ObservedStream):
            return stream_samples(job, address)
        return samples(job, self._memory.setdefault(job, MetricMemory()))


def labels_of(name: str) -> tuple[str, ...]:
    """Return the labels of the metric ``name``. Raises ``KeyError`` for an unknown one."""
    return {name: labels for name, _, labels in _described()}[name]


def _families() -> dict[str, Family]:
    """Return all metrics by name, without values."""
    return {name: _family(name, text, labels) for name, text, labels in _described()}


def _described() -> list[tuple[str, str, tuple[str, ...]]]:
    return [*described_metrics(), *described_stream_metrics()]


def _family(name: str, text: str, labels: Sequence[str]) -> Family:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, text, labels=labels)


def _text(name: str) -> str:
    """Return ``name`` without lone surrogates, which the exposition cannot contain."""
    return name.encode("utf-8", "replace").decode("utf-8")
