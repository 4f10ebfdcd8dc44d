"""The adaptive limit beside fixed ones, with a service whose size changes while it is called."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import aflow as af
from bench.calls.rates import Figures
from bench.calls.services import Service
from bench.harness import Budget, run_async

#: Limits that fit the service; 200 is the least one that is never too low.
FIXED = (50, 100, 150, 200, 300)
#: More than can be called for.
ENOUGH = 10**12

BUDGETS = [
    Budget("queueing_ratio", at_least=0.85),
    Budget("rejecting_ratio", at_least=0.85),
]


@dataclass(frozen=True, slots=True)
class Seen:
    """The observations of the service in one run."""

    per_second: float
    """Good answers."""
    by_phase: tuple[int, ...]
    """Good answers in each of the service's phases."""
    in_flight: float
    """Calls under way, on average."""
    rejected: float
    """Share of the calls that were turned away."""


def adaptive(seconds: float, rounds: int) -> Figures:
    """For both kinds of service: the rate of good answers by that of the best fixed limit, and calls under way.

    Fixed limits learn nothing, so each is tried once.
    """
    figures: Figures = {}
    for kind, rejects in (("queueing", False), ("rejecting", True)):
        adapting: list[Seen] = []
        fixed: dict[int, Seen] = {}
        for number in range(rounds):
            adapting.append(run_async(_seen(af.calls.Adaptive(), seconds, rejects=rejects)))
            if number == 0:
                for limit in FIXED:
                    fixed[limit] = run_async(_seen(limit, seconds, rejects=rejects))
        figures |= _figures(kind, adapting, fixed)
    return figures


def _figures(kind: str, adapting: list[Seen], fixed: dict[int, Seen]) -> Figures:
    best = max(fixed, key=lambda limit: fixed[limit].per_second)
    rates = [seen.per_second for seen in adapting]
    return {
        f"{kind}_ratio": round(statistics.median(rates) / fixed[best].per_second, 3),
        f"{kind}_worst_ratio": round(min(rates) / fixed[best].per_second, 3),
        f"{kind}_ratio_by_phase": _by_phase(adapting, fixed[best]),
        f"{kind}_best_fixed": best,
        f"{kind}_in_flight": round(statistics.median(seen.in_flight for seen in adapting), 1),
        f"{kind}_best_fixed_in_flight": round(fixed[best].in_flight, 1),
        f"{kind}_rejected": round(statistics.median(seen.rejected for seen in adapting), 3),
        f"{kind}_best_fixed_rejected": round(fixed[best].rejected, 3),
    }


def _by_phase(adapting: list[Seen], best: Seen) -> str:
    ours = [
        statistics.median(one) for one in zip(*(seen.by_phase for seen in adapting), strict=True)
    ]
    return " / ".join(f"{our / their:.2f}" for our, their in zip(ours, best.by_phase, strict=True))


async def _seen(capacity: int | af.calls.Adaptive, seconds: float, *, rejects: bool) -> Seen:
    """Call as often as ``capacity`` allows while the service goes through its phases."""
    service = Service(rejects=rejects)
    flow = af.Flow("service")
    flow.source(range(ENOUGH)).map_async(
        service.call, capacity=capacity, ordered=False, on_error=af.calls.Drop()
    ).to(af.CallbackSink[int](_keep_nothing))
    async with flow.start() as job:
        in_flight = await service.run(seconds)
        answered, rejected = service.answered, service.rejected
        await job.cancel()
    if not answered:
        raise SystemExit("async: the service has answered no call, so nothing was measured")
    return Seen(
        answered / seconds, tuple(service.by_phase), in_flight, rejected / (answered + rejected)
    )


def _keep_nothing(value: int) -> None:
    """Answers are counted by the service."""
