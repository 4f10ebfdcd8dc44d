"""The search of the highest rate: its decisions, and whole searches in virtual time."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aflow as af
from aflow.bench import (
    BenchError,
    BenchResult,
    ConstantRate,
    PoissonArrivals,
    SourceLoad,
    rate_search,
    run,
)
from aflow.bench.rate_search import MOST_TRIALS, RateAttempt, RateSearch, find_max
from aflow.bench.result import Method
from aflow.errors import FlowDefinitionError
from aflow.testing.virtual_time import virtual_time
from tests.load.flows import SECOND, after_50_ms, calling


def searched(search: RateSearch, capacity: float) -> list[RateAttempt]:
    """Run a search on a pipeline that sustains ``capacity``."""
    attempts: list[RateAttempt] = []
    while (attempt := search.next()) is not None:
        attempts.append(attempt)
        search.observe(attempt, is_sustained=attempt.rate <= capacity)
    return attempts


def test_rates_are_doubled_then_bisected_then_confirmed() -> None:
    search = RateSearch(100, precision=0.25)

    attempts = searched(search, 500)

    rates = [round(one.rate) for one in attempts]
    assert rates == [100, 200, 400, 800, 566, 476, 476]
    assert [one.confirms for one in attempts] == [False] * 6 + [True]
    assert search.confirmed == pytest.approx(476, abs=1)


def test_a_start_above_the_capacity_is_halved() -> None:
    search = RateSearch(1000, precision=0.2)

    rates = [one.rate for one in searched(search, 300)]

    assert rates[:3] == [1000, 500, 250]
    assert search.confirmed is not None
    assert 250 <= search.confirmed <= 300


@given(st.floats(1, 1e6), st.floats(0.2, 1e6), st.floats(0.01, 0.5))
def test_a_confirmed_rate_is_sustained_and_near_the_capacity(
    start: float, capacity: float, precision: float
) -> None:
    search = RateSearch(start, precision)

    attempts = searched(search, capacity)

    assert len(attempts) <= MOST_TRIALS
    if search.confirmed is not None:
        assert search.confirmed <= capacity
        assert capacity <= search.confirmed * (1 + precision) * 1.0001


def test_a_refuted_rate_is_lowered_a_little_and_searched_again() -> None:
    """Long trials sustain less than short ones, as with a backlog that grows slowly."""
    search = RateSearch(100, precision=0.1)
    attempts: list[RateAttempt] = []
    while (attempt := search.next()) is not None:
        attempts.append(attempt)
        capacity = 330 if attempt.confirms else 400
        search.observe(attempt, is_sustained=attempt.rate <= capacity)

    first = next(number for number, one in enumerate(attempts) if one.confirms)
    assert attempts[first].rate == 400
    assert attempts[first + 1].rate == 320
    assert all(one.confirms for one in attempts[first:])
    assert search.confirmed == 320


def test_a_search_ends_when_nothing_is_sustained() -> None:
    search = RateSearch(100)

    attempts = searched(search, 0)

    assert search.confirmed is None
    assert attempts[-1].rate < 0.3


def test_the_limit_of_the_generator_ends_the_search() -> None:
    search = RateSearch(100, limit=300)

    attempts = searched(search, math.inf)

    assert [one.rate for one in attempts] == [100, 200, 300, 300]
    assert search.confirmed == 300


@pytest.mark.parametrize(("start", "precision"), [(0, 0.1), (10, 0), (10, 1.5)])
def test_invalid_searches_are_refused(start: float, precision: float) -> None:
    with pytest.raises(FlowDefinitionError, match="of a search is a number"):
        RateSearch(start, precision)


@pytest.mark.slow
@virtual_time
async def test_the_highest_rate_of_calls_is_found_and_the_calls_are_named() -> None:
    """Ten calls at once of 50 ms each: 200 a second."""
    found = await find_max(
        calling(after_50_ms, capacity=10),
        {"numbers": [1, 2, 3]},
        bound=timedelta(milliseconds=100),
        start=60,
        precision=0.1,
        duration=5 * SECOND,
        warmup=SECOND,
        patience=SECOND,
    )

    assert found.rate == pytest.approx(200, rel=0.12)
    assert found.rate is not None
    assert found.rate <= 205
    assert "the calls of step 'call'" in found.saturated
    assert found.result is not None
    assert found.result.ok


@virtual_time
async def test_a_bound_below_the_latency_of_one_record_has_no_rate() -> None:
    found = await find_max(
        calling(after_50_ms, capacity=10),
        {"numbers": [1]},
        bound=timedelta(milliseconds=20),
        start=4,
        duration=4 * SECOND,
        warmup=SECOND,
    )

    assert found.rate is None
    assert "p99 was 50" in found.trials[0].reason


@virtual_time
async def test_a_confirmation_that_the_generator_cannot_make_lowers_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The generator is too slow for each longer trial, so the search ends without a rate."""
    refused: list[float] = []

    async def run_short(*args: Any, duration: timedelta, **kwargs: Any) -> BenchResult:
        if duration > 4 * SECOND:
            refused.append(kwargs["arrivals"].rate)
            raise BenchError("this machine cannot measure it")
        return await run(*args, duration=duration, **kwargs)

    monkeypatch.setattr(rate_search, "run", run_short)
    found = await find_max(
        calling(after_50_ms, capacity=2),
        {"numbers": [1]},
        bound=timedelta(milliseconds=100),
        start=20,
        precision=0.9,
        duration=4 * SECOND,
        warmup=timedelta(),
        patience=SECOND,
    )

    assert found.rate is None
    assert len(refused) > 3
    assert all(later < earlier for earlier, later in pairwise(refused))


@virtual_time
async def test_the_schedule_of_a_search_is_that_of_its_trials() -> None:
    found = await find_max(
        calling(after_50_ms, capacity=10),
        {"numbers": [1]},
        bound=timedelta(milliseconds=20),
        start=0.2,
        schedule=lambda rate: PoissonArrivals(rate, seed=3),
        duration=20 * SECOND,
        warmup=timedelta(),
    )

    assert found.trials[0].result.sources[0].arrivals == "0.2/s (Poisson)"


@virtual_time
async def test_a_percentile_with_too_few_latencies_is_not_confirmed() -> None:
    with pytest.raises(BenchError, match=r"too few latencies for p99\.9: measure for longer"):
        await find_max(
            calling(after_50_ms, capacity=2),
            {"numbers": [1]},
            bound=timedelta(milliseconds=200),
            percentile=99.9,
            start=20,
            precision=0.5,
            duration=4 * SECOND,
            warmup=timedelta(),
            patience=SECOND,
        )


@virtual_time
async def test_markers_do_not_hide_latencies_that_are_too_few() -> None:
    flow = af.Flow("windows and calls")
    words = flow.source(["a"], name="words")
    windows = words.key_by(lambda word: word, name="key").window(
        af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING)
    )
    windows.fold(int, lambda n, _: n + 1, name="count").to(
        af.CollectSink[af.Windowed[str, int]](), name="counts"
    )
    words.map(len, name="length").map_async(after_50_ms, name="call").to(
        af.CollectSink[int](), name="out"
    )

    found = await find_max(
        flow,
        {"words": ["a"]},
        bound=timedelta(milliseconds=20),
        start=1,
        duration=8 * SECOND,
        warmup=timedelta(),
    )

    assert {one.method for one in found.trials[0].result.latencies} == set(Method)
    assert found.rate is None
    assert [round(one.latency_ms or 0) for one in found.trials] == [50] * len(found.trials)


@virtual_time
async def test_markers_have_no_other_percentiles_than_p50_and_p99() -> None:
    flow = af.Flow("windows")
    words = flow.source(["a"], name="words").key_by(lambda word: word, name="key")
    windows = words.window(af.Tumbling(SECOND, domain=af.TimeDomain.PROCESSING))
    windows.fold(int, lambda n, _: n + 1, name="count").to(
        af.CollectSink[af.Windowed[str, int]](), name="out"
    )

    with pytest.raises(
        BenchError, match=r"measured by markers, which have p50 and p99, but no p90"
    ):
        await find_max(
            flow,
            {"words": ["a"]},
            bound=SECOND,
            percentile=90,
            start=20,
            duration=4 * SECOND,
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": {"numbers": SourceLoad([1], ConstantRate(1))}}, "so no rate is searched"),
        ({"bound": 50}, "bound of a search is a timedelta above 0, not 50"),
        ({"percentile": 100}, "percentile of a search is a number between 0 and 100, not 100"),
        ({"duration": 3}, "duration of a load"),
    ],
    ids=range(4),
)
@pytest.mark.asyncio
async def test_searches_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    sources = arguments.pop("sources", {"numbers": [1]})
    merged: dict[str, Any] = {"bound": SECOND, **arguments}

    with pytest.raises(FlowDefinitionError, match=message):
        await find_max(calling(after_50_ms), sources, **merged)
