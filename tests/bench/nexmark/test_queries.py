"""Each query of Nexmark returns exactly the rows of its SQL in DuckDB, also with events out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow_connectors.files import JsonLinesSink
from bench.nexmark.catalog import QUERIES, NexmarkQuery, chosen
from bench.nexmark.generator import generate
from bench.nexmark.model import Auction, Bid, MarketEvent, Person
from bench.nexmark.queries.winning import q9
from bench.nexmark.settings import START, NexmarkSettings

if TYPE_CHECKING:
    from bench.nexmark.oracles import Oracle

#: 25 s of event time over midnight, in groups of a hundred that are out of order by up to 0.3 s.
SETTINGS = NexmarkSettings(rate=320, out_of_order=100)
EVENTS = 8_000

BY_EVENT_TIME = [query for query in QUERIES if query.delay is not None]


@pytest.fixture(scope="module")
def events() -> list[MarketEvent]:
    return generate(EVENTS, SETTINGS)


@pytest.fixture(scope="module")
def make_oracle(require: Callable[[str, str], None]) -> Callable[[list[MarketEvent]], Oracle]:
    require("duckdb", "pip install duckdb")
    from bench.nexmark.oracles import Oracle

    return Oracle


@pytest.fixture(scope="module")
def oracle(
    make_oracle: Callable[[list[MarketEvent]], Oracle], events: list[MarketEvent]
) -> Iterator[Oracle]:
    with make_oracle(events) as found:
        yield found


async def results(query: NexmarkQuery, events: list[MarketEvent], **options: Any) -> list[Any]:
    sink = af.CollectSink[Any]()
    await query.build(af.IterableSource(events), sink).run(**options)
    return sink.values


@pytest.mark.asyncio
@pytest.mark.parametrize("query", BY_EVENT_TIME, ids=[query.name for query in BY_EVENT_TIME])
async def test_a_query_returns_the_rows_of_sql(
    query: NexmarkQuery, events: list[MarketEvent], oracle: Oracle
) -> None:
    expected = oracle.rows(query.name)

    found = await results(query, events)

    assert expected
    assert sorted(query.rows(found)) == sorted(expected)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["q3", "q5", "q8", "q9", "q20"])
async def test_subtasks_return_the_same_rows(
    name: str, events: list[MarketEvent], oracle: Oracle
) -> None:
    (query,) = chosen([name])

    found = await results(query, events, parallelism=3)

    assert query.same(found, oracle.rows(name))


@pytest.mark.asyncio
async def test_times_of_day_are_those_of_sql(
    make_oracle: Callable[[list[MarketEvent]], Oracle],
) -> None:
    (query,) = chosen(["q14"])
    before_eight = replace(SETTINGS, start=START + 8 * 3_600_000)

    events = generate(EVENTS, before_eight)
    found = await results(query, events)

    assert {one.time for one in found} == {"otherTime", "dayTime"}
    with make_oracle(events) as oracle:
        assert query.same(found, oracle.rows("q14"))


@pytest.mark.slow
def test_windows_of_processing_time_are_those_of_sql_if_the_clock_follows_event_time(
    require: Callable[[str, str], None],
) -> None:
    require("duckdb", "pip install duckdb")
    from bench.nexmark.trial import verify_by_clock

    (query,) = chosen(["q12"])

    verify_by_clock(query)


@pytest.mark.asyncio
async def test_the_log_of_q10_is_read_from_its_files(
    events: list[MarketEvent], oracle: Oracle, tmp_path: Path
) -> None:
    from bench.nexmark.trial import logged_bids

    (query,) = chosen(["q10"])
    await query.build(af.IterableSource(events), JsonLinesSink(tmp_path / "log")).run()

    assert query.same(logged_bids(tmp_path / "log"), oracle.rows("q10"))


def test_a_missing_row_is_found(oracle: Oracle) -> None:
    (query,) = chosen(["q2"])
    rows = oracle.rows("q2")

    assert query.same(rows, rows)
    assert not query.same(rows[1:], rows)
    assert not query.same([*rows, rows[0]], rows)


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no query 'q99'; known: q0, q1"):
        chosen(["q99"])


@pytest.mark.asyncio
async def test_only_bids_from_the_opening_to_the_expiry_win() -> None:
    auction = Auction(1, "vase", "", 1, 2, 1_000, 2_000, 7, 10, "")
    person = Person(7, "Kate", "", "", "", "", 0, "")
    bids = [
        Bid(1, 5, price, "", "", at, "")
        for price, at in (
            (900, 999),
            (10, 1_000),
            (50, 1_500),
            (50, 1_400),
            (30, 2_000),
            (99, 2_001),
        )
    ]
    events = [
        MarketEvent(0, person=person),
        *(MarketEvent(bid.at, bid=bid) for bid in bids[:4]),
        MarketEvent(1_000, auction=auction),  # after some of its bids
        *(MarketEvent(bid.at, bid=bid) for bid in bids[4:]),
        MarketEvent(90_000, person=person),
        MarketEvent(1_500, bid=Bid(1, 5, 80, "", "", 1_500, "")),  # after the auction has closed
    ]
    sink = af.CollectSink[Any]()

    await q9(af.IterableSource(events), sink).run()

    assert [(one.auction.id, one.bid.price, one.bid.at) for one in sink.values] == [(1, 50, 1_400)]
