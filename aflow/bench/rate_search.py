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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aflow.api.flow import Flow
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

    @property
    def _is_narrow(self) -> bool:
        return self.sustained >= self.limit or self.failed <= self.sustained * (1 + self.precision)

    def _below(self) -> float:
        """Return a rate below the lowest failed one: a little lower if only longer trials fail there."""
        return self.failed * (1 - 2 * self.precision) if self.refuted else self.failed / 2


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
    duration: timedelta = timedelta(seconds=10),
    warmup: timedelta | None = None,
    on_trial: Callable[[RateTrial], None] | None = None,
    stop: asyncio.Event | None = None,
    **settings: Any,
) -> MaxRate:
    """Search the highest rate at which the ``percentile`` of the latencies is at most ``bound``.

    Each trial lasts ``duration``, the confirmation twice as long. ``flow`` is a function that builds a flow for each
    trial, or a flow that can be started several times. ``settings`` are those of ``run``. Raises as ``run`` does.
    """
    search = RateSearch(start, precision)
    trials: list[RateTrial] = []
    limit_ms = bound.total_seconds() * 1000
    stopped = stop or asyncio.Event()
    while not stopped.is_set() and (attempt := search.next()) is not None:
        try:
            result = await run(
                flow,
                sources,
                rate=attempt.rate,
                duration=duration * 2 if attempt.confirms else duration,
                warmup=warmup,
                stop=stopped,
                **settings,
            )
        except BenchError:
            if not search.sustained:
                raise
            # The generator cannot make more, so this is the end of what can be measured.
            search.limit = search.sustained
            continue
        trial = _judged(attempt, result, percentile, limit_ms)
        trials.append(trial)
        if result.interrupted:
            break
        search.observe(attempt, is_sustained=trial.sustained)
        if on_trial is not None:
            on_trial(trial)
    failed = [one for one in trials if not one.sustained]
    lowest = min(failed, key=lambda one: one.rate, default=None)
    return MaxRate(
        rate=search.confirmed,
        percentile=percentile,
        bound_ms=limit_ms,
        saturated="nothing: the generator of the load was the limit"
        if lowest is None
        else saturated(lowest.result),
        trials=trials,
    )


def _judged(
    attempt: RateAttempt, result: BenchResult, percentile: float, limit_ms: float
) -> RateTrial:
    latency = _percentile(result, percentile)
    growth = backlog_growth(result.measured_samples)
    if result.problems:
        reason = result.problems[0]
    elif (
        growth > max(_GROWTH * attempt.rate, 1.0)
        and result.sources[0].backlog > 0.05 * attempt.rate
    ):
        reason = f"the backlog grew by {growth:,.0f} records per second"
    elif latency is None:
        reason = "no latency was measured"
    elif latency > limit_ms:
        reason = f"p{percentile:g} was {latency:,.1f} ms"
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


def _percentile(result: BenchResult, percentile: float) -> float | None:
    """Return the highest percentile of all pairs of a source and a sink (ms)."""
    found = [
        result.histogram(one).percentile(percentile)
        for one in result.latencies
        if one.method is Method.RECORDS
    ]
    found += [one.percentiles_ms["99"] for one in result.latencies if one.method is Method.MARKERS]
    return max(found, default=None)
