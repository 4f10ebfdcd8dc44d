"""The list of the queries, and how their results are compared with those of SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

import aflow as af
from bench.nexmark.model import MarketEvent
from bench.nexmark.queries import joins, rankings, reports, stateless, windows, winning
from bench.nexmark.queries.rankings import AuctionRanking
from bench.nexmark.queries.winning import CategoryMean
from bench.nexmark.streams import MAX_DELAY

Row: TypeAlias = tuple[Any, ...]

_DELAY: Final = MAX_DELAY // MAX_DELAY.resolution // 1_000

#: Milliseconds of event time that pass a result of a window or timer until the watermark reaches it.
_BY_WATERMARK: Final = _DELAY + 1
#: Sessions fire 1 ms later.
_BY_SESSION: Final = _DELAY + 2


def flat_rows(results: Iterable[Any]) -> list[Row]:
    """Return results as rows: the fields of structs, tuples and lists inside them are columns too."""
    return [tuple(_columns(one)) for one in results]


def _columns(value: Any) -> Iterable[Any]:
    fields = msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else value
    for field in fields:
        if isinstance(field, msgspec.Struct | tuple | list):
            yield from _columns(field)
        else:
            yield field


def category_rows(results: Iterable[CategoryMean]) -> list[Row]:
    """Return the last price of each category, which is that of the most auctions, in any order of results."""
    last: dict[int, CategoryMean] = {}
    for one in results:
        if one.category not in last or one.auctions > last[one.category].auctions:
            last[one.category] = one
    return [(one.category, one.mean) for one in last.values()]


def last_bid_rows(results: Iterable[Any]) -> list[Row]:
    """Return the last result of each bidder and auction."""
    return flat_rows({(bid.bidder, bid.auction): bid for bid in results}.values())


def ranking_rows(results: Iterable[AuctionRanking]) -> list[Row]:
    """Return the bids of the last ranking of each auction, with their ranks."""
    last = {one.auction: one.bids for one in results}
    return [
        (*row, rank) for bids in last.values() for rank, row in enumerate(flat_rows(bids), start=1)
    ]


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query: the flow, and the comparison of its results."""

    name: str
    title: str
    build: Callable[[af.Source[MarketEvent], af.Sink[Any]], af.Flow]
    delay: int | None = 0
    """Milliseconds of event time from the timestamp of a result to the event that causes it; None: the clock does."""
    rows: Callable[[Iterable[Any]], list[Row]] = flat_rows
    """Function from results to the rows of SQL, in any order."""
    to_files: bool = False
    """True if the results are written to files."""
    no_history: str = ""
    """The reason why the results over history on Spark cannot be compared; empty if they are."""

    def same(self, results: Iterable[Any], expected: Iterable[Row]) -> bool:
        """Return True if ``results`` are exactly the rows ``expected``, in any order."""
        return sorted(self.rows(results)) == sorted(expected)


_UPDATES: Final = (
    "its results replace each other in the order of their emission, which rows of Spark do not have"
)

QUERIES: Final = (
    NexmarkQuery("q0", "pass through", stateless.q0),
    NexmarkQuery("q1", "convert a currency", stateless.q1),
    NexmarkQuery("q2", "select by auction", stateless.q2),
    NexmarkQuery("q3", "join persons and auctions", joins.q3),
    NexmarkQuery("q4", "average winning bid by category", winning.q4, _BY_WATERMARK, category_rows),
    NexmarkQuery("q5", "hot items in sliding windows", windows.q5, _BY_WATERMARK),
    NexmarkQuery(
        "q6",
        "average of the last ten winning bids by seller",
        winning.q6,
        _BY_WATERMARK,
        no_history="auctions of a seller that expire in the same millisecond have no order on Spark",
    ),
    NexmarkQuery("q7", "highest bids in windows", windows.q7, _BY_WATERMARK),
    NexmarkQuery("q8", "new persons who sell, in windows", joins.q8, _BY_WATERMARK),
    NexmarkQuery("q9", "winning bids", winning.q9, _BY_WATERMARK),
    NexmarkQuery("q10", "log to files", stateless.q10, to_files=True),
    NexmarkQuery("q11", "bids in sessions", windows.q11, _BY_SESSION),
    NexmarkQuery("q12", "bids in windows of processing time", windows.q12, delay=None),
    NexmarkQuery("q13", "look up a side input", stateless.q13),
    NexmarkQuery("q14", "select, convert and classify", stateless.q14),
    NexmarkQuery("q15", "distinct counts by day", reports.q15, _BY_WATERMARK),
    NexmarkQuery("q16", "distinct counts by channel and day", reports.q16, _BY_WATERMARK),
    NexmarkQuery("q17", "prices by auction and day", reports.q17, _BY_WATERMARK),
    NexmarkQuery(
        "q18",
        "last bid of each bidder",
        rankings.q18,
        rows=last_bid_rows,
        no_history=_UPDATES,
    ),
    NexmarkQuery("q19", "ten highest bids", rankings.q19, rows=ranking_rows, no_history=_UPDATES),
    NexmarkQuery("q20", "join bids and auctions", joins.q20),
    NexmarkQuery("q21", "add the id of the channel", stateless.q21),
    NexmarkQuery("q22", "split the URL", stateless.q22),
)


def chosen(names: Sequence[str]) -> list[NexmarkQuery]:
    """Return the queries with these names, all without any. Raises ``SystemExit`` for an unknown name."""
    by_name = {one.name: one for one in QUERIES}
    for name in names:
        if name not in by_name:
            raise SystemExit(f"nexmark: there is no query {name!r}; known: {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else list(QUERIES)
