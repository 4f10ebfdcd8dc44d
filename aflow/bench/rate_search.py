"""Search of the highest rate that a pipeline sustains: doubling, bisection, and confirmation.

Theory. A trial at a rate is *sustained* if the run had no errors, its backlog did not grow, and the percentile was
within its bound. The search doubles the rate until a trial fails (or halves it until one is sustained), then bisects
between the highest sustained and the lowest failed rate until they differ by less than ``precision``. Single trials are
noisy, and a backlog may grow slowly, so the result is *confirmed* by a longer trial. If that fails, its rate is the new
upper bound, and the search continues below it with longer trials only, which need no confirmation. After
``MOST_TRIALS`` trials, or if the lowest rate fails, the search ends without a result.

``RateSearch`` only decides; ``find_max`` runs the trials.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aflow.api.flow import Flow
from aflow.bench.arrivals import ArrivalSchedule, ConstantRate
from aflow.bench.findings import backlog_growth, saturated
from aflow.bench.load_run import run
from aflow.bench.record_supply import Records, SourceLoad
from aflow.bench.result import BenchError, BenchResult, Method
from aflow.errors import FlowDefinitionError, shown

MOST_TRIALS: Final = 40

#: Growth of the backlog, as a share of the rate, up to which it counts as noise.
_GROWTH: Final = 0.01

#: The lowest rate that is tried.
_LOWEST: Final = 0.1


@dataclass(frozen=True, slots=True)
class RateAttempt:
    """The next trial of a search."""

    rate: float
    confirms: bool
    """True for a longer trial that confirms the rate."""


@dataclass(slots=True)
class RateSearch:
    """The state of a search. Raises ``FlowDefinitionError`` for invalid values."""

    start: float
    """The first rate (records per second)."""
    precision: float = 0.05
    """The relative distance of the bounds at which the search ends."""
    limit: float = math.inf
    """The highest rate that can be offered."""
    sustained: float = 0.0
    """The highest rate that was sustained; 0 for none."""
    failed: float = math.inf
    """The lowest rate that was not."""
    confirmed: float | None = None
    trials: int = 0
    refuted: bool = False
    """True once a longer trial has failed at a rate that a shorter one sustained: all others are longer ones then."""

    def __post_init__(self) -> None:
        for name, most in (("start", math.inf), ("precision", 1.0)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < most:
                bound = "above 0" if math.isinf(most) else "between 0 and 1"
                raise FlowDefinitionError(
                    f"{name} of a search is a number {bound}, not {shown(value)}"
                )

    def next(self) -> RateAttempt | None:
        """Return the next trial; None at the end."""
        if self.confirmed is not None or self.trials >= MOST_TRIALS or self.failed <= _LOWEST:
            return None
        if not self.sustained:
            rate = min(self.start, self.limit) if math.isinf(self.failed) else self._below()
        elif self._is_narrow:
            return RateAttempt(self.sustained, confirms=True)
        elif math.isinf(self.failed):
            rate = min(self.sustained * 2, self.limit)
        else:
            rate = math.sqrt(self.sustained * self.failed)
        return RateAttempt(rate, confirms=self.refuted)

    def observe(self, attempt: RateAttempt, *, is_sustained: bool) -> None:
        """Take the outcome of a trial."""
        self.trials += 1
        if is_sustained:
            self.sustained = max(self.sustained, attempt.rate)
        else:
            self.failed = min(self.failed, attempt.rate)
            if attempt.confirms and not self.refuted:
                self.refuted = True
                self.sustained = 0.0
        if attempt.confirms and self.sustained and self._is_narrow:
            self.confirmed = self.sustained

    def on_refused(self, attempt: RateAttempt) -> None:
        """Take the refusal of a trial: the generator is too slow for it."""
        if attempt.rate > self.sustained > 0:
            self.limit = self.sustained  # the end of what can be measured
        else:
            self.observe(attempt, is_sustained=False)

    @property
    def _is_narrow(self) -> bool:
        return self.sustained >= self.limit or self.failed <= self.sustained * (1 + self.precision)

    def _below(self) -> float:
        """Return a rate below the lowest failed one: a little lower if only longer trials fail there."""
        return self.failed * max(1 - 2 * self.precision, 0.5) if self.refuted else self.failed / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """One trial of a search."""

    rate: float
    confirms: bool
    sustained: bool
    latency_ms: float | None
    """The percentile; None if no latency was measured."""
    reason: str
    """The reason for which the rate was not sustained; empty if it was."""
    result: BenchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRate:
    """The outcome of a search."""

    rate: float | None
    """The highest rate that was sustained and confirmed; None if there is none."""
    percentile: float
    bound_ms: float
    saturated: str
    """The part of the pipeline that was saturated first, in the failed trial with the lowest rate."""
    trials: list[RateTrial]

    @property
    def result(self) -> BenchResult | None:
        """The run that confirmed the rate."""
        found = [one for one in self.trials if one.confirms and one.sustained]
        return found[-1].result if found else None


async def find_max(
    flow: Flow | Callable[..., Flow],
    sources: Mapping[str, Records | SourceLoad],
    *,
    bound: timedelta,
    percentile: float = 99.0,
    start: float = 1000.0,
    precision: float = 0.05,
    schedule: Callable[[float], ArrivalSchedule] = ConstantRate,
    duration: timedelta = timedelta(seconds=10),
    warmup: timedelta | None = None,
    on_trial: Callable[[RateTrial], None] | None = None,
    stop: asyncio.Event | None = None,
    **settings: Any,
) -> MaxRate:
    """Search the highest rate at which the ``percentile`` of the latencies is at most ``bound``.

    Each trial lasts ``duration``, the confirmation twice as long. ``schedule`` returns the arrivals at a rate, which
    are those of each source without arrivals of its own. ``flow`` is a function that builds a flow for each trial, or a
    flow that can be started several times. ``settings`` are those of ``run``.
    A pair with too few latencies does not count if another one, not measured by markers, has enough. Raises as ``run``
    does, ``FlowDefinitionError`` also if all sources have arrivals of their own, and ``BenchError`` also if there are
    too few latencies in a confirmation, or some are measured by markers, which have p50 and p99 only.
    """
    _check(sources, bound, percentile)
    search = RateSearch(start, precision)
    trials: list[RateTrial] = []
    limit_ms = bound.total_seconds() * 1000
    stopped = stop or asyncio.Event()
    while not stopped.is_set() and (attempt := search.next()) is not None:
        try:
            result = await run(
                flow,
                sources,
                arrivals=schedule(attempt.rate),
                duration=duration * 2 if attempt.confirms else duration,
                warmup=warmup,
                stop=stopped,
                **settings,
            )
        except BenchError:
            if not search.sustained and not search.refuted:
                raise
            search.on_refused(attempt)
            await asyncio.sleep(0)  # for a stop: nothing else may have yielded
            continue
        trial = _judged(attempt, result, percentile, limit_ms)
        trials.append(trial)
        if result.interrupted:
            break
        search.observe(attempt, is_sustained=trial.sustained)
        if on_trial is not None:
            on_trial(trial)
    return MaxRate(
        rate=search.confirmed,
        percentile=percentile,
        bound_ms=limit_ms,
        saturated=_saturated_first(trials),
        trials=trials,
    )


def _saturated_first(trials: Sequence[RateTrial]) -> str:
    failed = [one for one in trials if not one.sustained]
    lowest = min(failed, key=lambda one: one.rate, default=None)
    if lowest is None:
        return "nothing: the generator of the load was the limit"
    return saturated(lowest.result)


def _check(
    sources: Mapping[str, Records | SourceLoad], bound: timedelta, percentile: float
) -> None:
    loads = [one for one in sources.values() if isinstance(one, SourceLoad)]
    if sources and len(loads) == len(sources) and all(one.arrivals for one in loads):
        raise FlowDefinitionError(
            "all sources of a search have arrivals of their own, so no rate is searched; leave out the arrivals of one"
        )
    if not isinstance(bound, timedelta) or bound <= timedelta():
        raise FlowDefinitionError(f"bound of a search is a timedelta above 0, not {shown(bound)}")
    if type(percentile) not in (int, float) or not 0 < percentile < 100:
        raise FlowDefinitionError(
            f"percentile of a search is a number between 0 and 100, not {shown(percentile)}"
        )


def _judged(
    attempt: RateAttempt, result: BenchResult, percentile: float, limit_ms: float
) -> RateTrial:
    latency, is_known = _percentile(result, percentile)
    growth = backlog_growth(result.measured_samples)
    if result.problems:
        reason = result.problems[0]
    elif (
        growth > max(_GROWTH * attempt.rate, 1.0)
        and sum(one.backlog for one in result.sources) > 0.05 * attempt.rate
    ):
        reason = f"the backlog grew by {growth:,.0f} records per second"
    elif latency is None:
        reason = "no latency was measured"
    elif latency > limit_ms:
        reason = f"p{percentile:g} was {latency:,.1f} ms"
    elif attempt.confirms and not is_known and not result.interrupted:
        raise BenchError(
            f"the confirmation at {attempt.rate:,.0f} records per second has too few latencies for p{percentile:g}: "
            f"measure for longer, or choose a lower percentile"
        )
    else:
        reason = ""
    return RateTrial(
        rate=attempt.rate,
        confirms=attempt.confirms,
        sustained=not reason,
        latency_ms=latency,
        reason=reason,
        result=result,
    )


def _percentile(result: BenchResult, percentile: float) -> tuple[float | None, bool]:
    """Return the highest percentile of all pairs of a source and a sink (ms), and True if there are enough latencies.

    Pairs with too few latencies count only if no other pair of the method ``records`` has enough: markers do not
    include all that delays a record. Raises ``BenchError`` if it is not measured.
    """
    known: list[float] = []
    of_few: list[float] = []
    of_markers: list[float] = []
    for one in result.latencies:
        if one.method is Method.RECORDS:
            histogram = result.histogram(one)
            found = known if histogram.known(percentile) else of_few
            found.append(histogram.percentile(percentile))
        elif (value := one.percentiles_ms.get(f"{percentile:g}")) is not None:
            of_markers.append(value)
        else:
            raise BenchError(
                f"the latency from {one.source!r} to {one.sink!r} is measured by markers, which have p50 and p99, but "
                f"no p{percentile:g}"
            )
    return max([*(known or of_few), *of_markers], default=None), bool(known or of_markers)
