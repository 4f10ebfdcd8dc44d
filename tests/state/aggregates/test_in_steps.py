"""Ready-made aggregates in windows and in state: through the API, and with a restore after every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import fsum
from typing import Any, NamedTuple

import pytest

import aflow as af
from aflow.machines.windows.assigners import SessionWindows, SlidingWindows, WindowAssigner
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import EventTime
from aflow.operators.accumulation import aggregating
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.logic import WindowLogic
from aflow.testing import At, Mode, OperatorHarness, ScriptedSource, run_flow
from tests.state.aggregates.laws import Agg

SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Trade:
    symbol: str
    price: float
    at: int


@dataclass(frozen=True)
class Summary:
    n: int
    total: float
    mean: float
    lowest: float
    dearest: Trade
    prices: int
    top: list[Trade]
    all: list[int]


class Ends(NamedTuple):
    times: list[float]
    n: int


# Prices whose naive sums depend on the order, sorted by time.
TRADES = [
    Trade("ab"[n % 3 == 0], [0.1, 1e9, -1e9, 0.7, 1e-9][n * 7 % 5], 1000 * n + 4000 * (n // 11))
    for n in range(60)
]


def summary() -> af.Aggregate[Trade, Any, Summary]:
    return af.aggregates.fields(
        Summary,
        n=af.aggregates.count(),
        total=af.aggregates.sum(lambda t: t.price),
        mean=af.aggregates.mean(lambda t: t.price),
        lowest=af.aggregates.min(lambda t: t.price),
        dearest=af.aggregates.max(by=lambda t: t.price, stored_as=Trade),
        prices=af.aggregates.distinct(lambda t: t.price),
        top=af.aggregates.top_k(2, by=lambda t: t.price, stored_as=Trade),
        all=af.aggregates.collect(lambda t: t.at),
    )


def summed_up(trades: Sequence[Trade]) -> Summary:
    prices = [trade.price for trade in trades]
    ranked = sorted(trades, key=lambda trade: -trade.price)
    return Summary(
        len(trades),
        fsum(prices),
        fsum(prices) / len(prices),
        min(prices),
        ranked[0],
        len(set(prices)),
        ranked[:2],
        [trade.at for trade in trades],
    )


def sliding(symbol: str) -> dict[tuple[str, int], Summary]:
    """Return the expected results of windows of 10 s every 2 s."""
    mine = [trade for trade in TRADES if trade.symbol == symbol]
    starts = range(-8000, TRADES[-1].at + 1, 2000)
    parts = {start: [t for t in mine if start <= t.at < start + 10_000] for start in starts}
    return {(symbol, start): summed_up(part) for start, part in parts.items() if part}


def sessions(symbol: str) -> dict[tuple[str, int], Summary]:
    """Return the expected results of sessions with a gap of 3.5 s."""
    parts: list[list[Trade]] = []
    for trade in (trade for trade in TRADES if trade.symbol == symbol):
        if parts and trade.at - parts[-1][-1].at <= 3500:
            parts[-1].append(trade)
        else:
            parts.append([trade])
    return {(symbol, part[0].at): summed_up(part) for part in parts}


def by_window(results: Iterable[af.Windowed[str, Any]]) -> dict[tuple[str, int], Any]:
    return {(one.key, one.window.start): one.value for one in results}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_summary_of_sliding_windows_and_sessions_is_that_of_their_records(
    parallelism: int,
) -> None:
    flow = af.Flow("summaries")
    script = ScriptedSource[Trade](*(At(trade, trade.at) for trade in TRADES))
    trades = flow.source(script).event_time().key_by(lambda t: t.symbol)
    slid, met = af.CollectSink[Any](), af.CollectSink[Any]()
    trades.window(af.Sliding(10 * SECOND, 2 * SECOND)).aggregate(summary(), name="slid").to(slid)
    trades.window(af.Session(3.5 * SECOND)).aggregate(summary(), name="met").to(met)

    run_flow(flow, parallelism=parallelism)

    assert by_window(slid.values) == {**sliding("a"), **sliding("b")}
    assert by_window(met.values) == {**sessions("a"), **sessions("b")}


def harness(
    assigner: WindowAssigner[Any],
    mode: Mode,
    aggregate: Agg,
    *,
    trigger: Trigger[Any] | None = None,
    evictor: Evictor[Any] | None = None,
    of: type[Any] | None = None,
) -> OperatorHarness[Trade, Any]:
    logic = WindowLogic(
        assigner=assigner,
        trigger=trigger or EventTime(),
        evictor=evictor,
        accumulation=aggregating(aggregate),
        of=of,
    )
    return OperatorHarness(
        lambda: window_operator(logic), key=lambda trade: trade.symbol, mode=mode
    )


def replayed(step: OperatorHarness[Trade, Any]) -> dict[tuple[str, int], Any]:
    for trade in TRADES:
        step.push(trade, trade.at)
        step.watermark(trade.at - 1)
    step.watermark(TRADES[-1].at + 20_000)
    return by_window(step.values)


every_way = pytest.mark.parametrize("mode", Mode)
#: A trigger that never fires early; only the general operator supports triggers.
GENERAL: Trigger[Any] = EventTime(early=af.triggers.Count(1_000_000))


@every_way
@pytest.mark.parametrize("trigger", [None, GENERAL], ids=["fast", "general"])
def test_summaries_survive_restores(mode: Mode, trigger: Trigger[Any] | None) -> None:
    slid = harness(SlidingWindows(10_000, 2000), mode, summary(), trigger=trigger)
    met = harness(SessionWindows(3500), mode, summary(), trigger=trigger)

    assert replayed(slid) == {**sliding("a"), **sliding("b")}
    assert replayed(met) == {**sessions("a"), **sessions("b")}


@every_way
def test_with_an_evictor_records_are_stored_by_their_own_type(mode: Mode) -> None:
    step = harness(SessionWindows(3500), mode, summary(), evictor=af.evictors.Count(99), of=Trade)

    assert replayed(step) == {**sessions("a"), **sessions("b")}


@every_way
@pytest.mark.parametrize("trigger", [None, GENERAL], ids=["fast", "general"])
@pytest.mark.usefixtures("sketches")
def test_sketches_survive_restores(mode: Mode, trigger: Trigger[Any] | None) -> None:
    aggregate: Agg = af.aggregates.fields(
        Ends,
        times=af.aggregates.quantile([0, 1], lambda t: t.at),
        n=af.aggregates.distinct(lambda t: t.at, approximate=True),
    )

    slid = harness(SlidingWindows(10_000, 2000), mode, aggregate, trigger=trigger)

    assert replayed(slid) == {
        at: Ends([one.all[0], one.all[-1]], one.n)
        for at, one in {**sliding("a"), **sliding("b")}.items()
    }


def price(trade: Trade) -> float:
    return trade.price


class Dearest(af.KeyedProcess[str, Trade, tuple[str, float, float]]):
    """The trade with the highest price so far, and the mean of all."""

    best = af.AggregatingState("best", af.aggregates.max(by=price, stored_as=Trade))
    mean = af.AggregatingState("mean", af.aggregates.mean(price))

    def process(self, value: Trade, ctx: af.Context[str]) -> Iterable[tuple[str, float, float]]:
        best, mean = ctx.state(self.best), ctx.state(self.mean)
        assert (best.get() is None) == (mean.get() is None)
        best.add(value)
        mean.add(value)
        so_far, average = best.get(), mean.get()
        assert so_far is not None
        assert average is not None
        yield ctx.key, so_far.price, average


@every_way
def test_aggregating_state_stores_them_without_a_type(mode: Mode) -> None:
    step = OperatorHarness.of(Dearest(), key=lambda trade: trade.symbol, mode=mode)
    for trade in TRADES:
        step.push(trade, trade.at)

    prices = [trade.price for trade in TRADES if trade.symbol == TRADES[-1].symbol]
    assert step.values[-1] == (TRADES[-1].symbol, max(prices), fsum(prices) / len(prices))
