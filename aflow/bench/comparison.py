"""Comparison of two saved runs, with confidence intervals.

Theory. The samples of a run are not independent: a garbage collection or a neighbour lasts for several. So the
intervals come from a *moving-block bootstrap*: blocks of successive samples are drawn from each run until each has as
many as before, and the ratio of the two means, weighted by the lengths of the samples, is computed, 2,000 times. The
interval has the middle 95 % of the ratios. A difference counts if the interval excludes 1 and the ratio differs by more
than ``tolerance``. It covers the noise within the runs only: other conditions of the machine between the runs need
several runs of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aflow.bench.result import BenchError, BenchResult, LoadSample, Method

_ROUNDS: Final = 2000
_CONFIDENCE: Final = 0.95

#: The fewest samples of a run from which an interval is computed.
FEWEST: Final = 8


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """The ratio of a figure in two runs, with its confidence interval."""

    figure: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    lower_is_better: bool
    tolerance: float

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``same``: the last one if the difference may be noise."""
        lower = self.high < 1 and self.ratio < 1 - self.tolerance
        higher = self.low > 1 and self.ratio > 1 + self.tolerance
        if not lower and not higher:
            return "same"
        return "better" if lower == self.lower_is_better else "worse"


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The figures of two runs."""

    ratios: Sequence[RatioInterval]
    remarks: Sequence[str]
    """Differences of the conditions of the runs."""
    missing: Sequence[str] = ()
    """Figures of the first run that the second one does not have, in words."""
    has_new_problems: bool = False
    """True if the second run has errors, and the first one has none."""

    @property
    def is_worse(self) -> bool:
        """True if a figure is worse or missing, or only the second run has errors."""
        worse = any(one.verdict == "worse" for one in self.ratios)
        return worse or bool(self.missing) or self.has_new_problems


def compare(
    before: BenchResult, after: BenchResult, *, tolerance: float = 0.05, seed: int = 1
) -> RunComparison:
    """Compare two runs of one flow: latencies of records, results per second of each sink, and the processor.

    Raises ``BenchError`` if they cannot be compared: different flows, fewer than ``FEWEST`` measured samples, or no
    figure of the first run that has so many.
    """
    if before.flow != after.flow:
        raise BenchError(f"the runs are of different flows: {before.flow!r} and {after.flow!r}")
    for name, run in (("first", before), ("second", after)):
        if len(run.measured_samples) < FEWEST:
            raise BenchError(
                f"the {name} run has {len(run.measured_samples)} samples, and {FEWEST} are needed; measure for longer"
            )
    rng = random.Random(seed)
    ratios: list[RatioInterval] = []
    missing: list[str] = []
    remarks = list(_remarks(before, after))
    for figure, lower, of_sample in _figures(before, after):
        ours = _weighted(of_sample, before.measured_samples)
        theirs = _weighted(of_sample, after.measured_samples)
        if min(len(ours), len(theirs)) >= FEWEST:
            if _mean(ours) > 0:
                ratios.append(_interval(figure, ours, theirs, lower, tolerance, rng))
            else:
                remarks.append(f"{figure} is 0 in the first run, so it has no ratio")
        elif len(ours) >= FEWEST or (ours and not theirs):
            missing.append(
                f"{figure}: {len(theirs)} samples of the second run have it, and {len(ours)} of the first"
            )
        else:
            remarks.append(
                f"{figure} is not compared: {len(ours)} samples of the first run have it, and {FEWEST} are needed"
            )
    if not ratios and not missing:
        raise BenchError("the runs have no figure in common that can be compared")
    return RunComparison(
        ratios, remarks, missing, has_new_problems=bool(after.problems) and not before.problems
    )


#: A value of a sample, and the length of the sample (s).
_Weighted = tuple[float, float]


def _weighted(
    of_sample: Callable[[LoadSample], float | None], samples: Sequence[LoadSample]
) -> list[_Weighted]:
    return [
        (value, sample.seconds) for sample in samples if (value := of_sample(sample)) is not None
    ]


_Figure = tuple[str, bool, Callable[[LoadSample], float | None]]


def _figures(before: BenchResult, after: BenchResult) -> Iterator[_Figure]:
    pairs = dict.fromkeys(
        (one.source, one.sink) for run in (before, after) for one in run.latencies if one.histogram
    )
    for source, sink in pairs:
        for name, attribute in (("p50", "p50_ms"), ("p99", "p99_ms")):
            yield f"{name} {source} → {sink} (ms)", True, _latency(source, sink, attribute)
    yield "cpu (share of a core)", True, lambda sample: sample.cpu
    for one in before.sinks:
        yield (
            f"results {one.name} (/s)",
            False,
            _rate_of(one.name, [*before.samples], [*after.samples]),
        )


def _latency(source: str, sink: str, attribute: str) -> Callable[[LoadSample], float | None]:
    def figure(sample: LoadSample) -> float | None:
        for one in sample.latencies:
            if (one.source, one.sink) == (source, sink):
                return float(getattr(one, attribute))
        return None

    return figure


def _rate_of(
    sink: str, before: Sequence[LoadSample], after: Sequence[LoadSample]
) -> Callable[[LoadSample], float | None]:
    """Return the results per second of a sample, from the total of the one before it."""
    former: dict[int, LoadSample] = {}
    for samples in (before, after):
        for one, following in pairwise(samples):
            former[id(following)] = one

    def figure(sample: LoadSample) -> float | None:
        earlier = former.get(id(sample))
        if earlier is None or sink not in sample.results or sink not in earlier.results:
            return None
        return (sample.results[sink] - earlier.results[sink]) / sample.seconds

    return figure


def _interval(
    figure: str,
    before: Sequence[_Weighted],
    after: Sequence[_Weighted],
    lower_is_better: bool,
    tolerance: float,
    rng: random.Random,
) -> RatioInterval:
    ratios = sorted(
        _mean(_drawn(after, rng)) / max(_mean(_drawn(before, rng)), 1e-12) for _ in range(_ROUNDS)
    )
    tail = int(_ROUNDS * (1 - _CONFIDENCE) / 2)
    return RatioInterval(
        figure,
        _mean(before),
        _mean(after),
        _mean(after) / _mean(before),
        ratios[tail],
        ratios[-tail - 1],
        lower_is_better,
        tolerance,
    )


def _drawn(values: Sequence[_Weighted], rng: random.Random) -> list[_Weighted]:
    """Return as many values, drawn in blocks of successive ones."""
    length = max(1, round(len(values) ** (1 / 3)))
    drawn: list[_Weighted] = []
    while len(drawn) < len(values):
        first = rng.randrange(len(values) - length + 1)
        drawn += values[first : first + length]
    return drawn[: len(values)]


def _mean(values: Sequence[_Weighted]) -> float:
    return sum(value * seconds for value, seconds in values) / sum(seconds for _, seconds in values)


def _remarks(before: BenchResult, after: BenchResult) -> Iterator[str]:
    if before.machine != after.machine:
        yield f"the machines differ: {before.machine} and {after.machine}"
    if [one.arrivals for one in before.sources] != [one.arrivals for one in after.sources]:
        yield "the loads differ, so a difference of the figures is no difference of the pipeline"
    if before.aflow != after.aflow:
        yield f"the versions of aflow differ: {before.aflow} and {after.aflow}"
    for name, run in (("first", before), ("second", after)):
        for one in run.latencies:
            if one.method is Method.MARKERS:
                yield (
                    f"the {name} run measured the latency from {one.source!r} to {one.sink!r} by markers, which are "
                    f"not compared"
                )
        for problem in run.problems:
            yield f"the {name} run: {problem}"
