"""The queries in SQL, over the same events in DuckDB.

``number`` is the position of an event in the order of arrival. It decides where Nexmark leaves the order open, among
rows with equal prices or times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final

import duckdb
import pyarrow

from bench.nexmark.model import MarketEvent

#: Without complete types.
_ARROW: Final[Any] = pyarrow

WINNING: Final = """
    SELECT a.*, b.bidder, b.price, b.channel, b.url, b.ts AS bid_ts, b.extra AS bid_extra
    FROM auction a JOIN bid b ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.number) = 1
"""

_RANKS: Final = ", ".join(
    f"{counted} FILTER ({condition})"
    for counted in ("count(*)", "count(DISTINCT bidder)", "count(DISTINCT auction)")
    for condition in (
        "true",
        "price < 10000",
        "price >= 10000 AND price < 1000000",
        "price >= 1000000",
    )
)
_DAY: Final = "strftime(make_timestamp(ts * 1000), '%Y-%m-%d')"
_MINUTE: Final = "strftime(make_timestamp(ts * 1000), '%H:%M')"

SQL: Final = {
    "q0": "SELECT auction, bidder, price, ts, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, ts, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON p.id = a.seller
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"SELECT category, avg(price) FROM ({WINNING}) GROUP BY category",
    "q5": """
        WITH counted AS (
            SELECT auction, count(*) AS bids, start
            FROM (SELECT auction, ts // 2000 * 2000 - unnest([0, 2000, 4000, 6000, 8000]) AS start FROM bid)
            GROUP BY auction, start
        )
        SELECT * FROM counted QUALIFY bids = max(bids) OVER (PARTITION BY start)
    """,
    "q6": f"""
        SELECT seller, avg(price) OVER (
            PARTITION BY seller ORDER BY expires, number ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
        ) FROM ({WINNING})
    """,
    "q7": """
        SELECT auction, bidder, price, channel, url, ts, extra FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY ts // 10000)
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, p.ts // 10000 * 10000
        FROM person p JOIN auction a ON a.seller = p.id AND a.ts // 10000 = p.ts // 10000
    """,
    "q9": f"""
        SELECT id, item, description, initial_bid, reserve, ts, expires, seller, category, extra,
            id, bidder, price, channel, url, bid_ts, bid_extra
        FROM ({WINNING})
    """,
    "q10": f"SELECT auction, bidder, price, ts, extra, {_DAY}, {_MINUTE} FROM bid",
    "q11": """
        WITH gaps AS (
            SELECT *, ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts, number) > 10000 AS begins FROM bid
        ), sessions AS (
            SELECT *, count(*) FILTER (begins) OVER (PARTITION BY bidder ORDER BY ts, number) AS session FROM gaps
        )
        SELECT bidder, count(*), min(ts), max(ts) + 10000 FROM sessions GROUP BY bidder, session
    """,
    # Over the time of arrival, which the trial makes the event time.
    "q12": """
        SELECT bidder, count(*), ts // 10000 * 10000 AS start, start + 10000 FROM bid GROUP BY bidder, start
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.ts, s.value
        FROM bid b JOIN (SELECT range AS key, range::VARCHAR AS value FROM range(10000)) s ON b.auction % 10000 = s.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS euros,
            CASE WHEN hour(make_timestamp(ts * 1000)) BETWEEN 8 AND 18 THEN 'dayTime'
                 WHEN hour(make_timestamp(ts * 1000)) BETWEEN 7 AND 19 THEN 'otherTime'
                 ELSE 'nightTime' END,
            ts, extra, length(extra) - length(replace(extra, 'c', ''))
        FROM bid WHERE euros > 1000000 AND euros < 50000000
    """,
    "q15": f"SELECT {_DAY} AS day, {_RANKS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {_DAY} AS day, max({_MINUTE}), {_RANKS} FROM bid GROUP BY channel, day",
    "q17": f"""
        SELECT auction, {_DAY} AS day, count(*), count(*) FILTER (price < 10000),
            count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
            min(price), max(price), avg(price), sum(price)
        FROM bid GROUP BY auction, day
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, ts, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC, number DESC) = 1
    """,
    "q19": """
        SELECT auction, bidder, price, channel, url, ts, extra,
            row_number() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank
        FROM bid QUALIFY rank <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, b.extra, a.* EXCLUDE (number)
        FROM bid b JOIN auction a ON a.id = b.auction WHERE a.category = 10
    """,
    "q21": r"""
        SELECT auction, bidder, price, channel,
            CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
        FROM bid
        WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_matches(url, '(&|^)channel_id=')
    """,
    "q22": """
        SELECT auction, bidder, price, channel,
            split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)
        FROM bid
    """,
}


class Oracle:
    """A DuckDB database of events, which answers the queries. A context manager."""

    def __init__(self, events: Sequence[MarketEvent]) -> None:
        self._database: Final = duckdb.connect()
        numbered = list(enumerate(events))
        self._load("person", [(n, e.person) for n, e in numbered if e.person is not None])
        self._load("auction", [(n, e.auction) for n, e in numbered if e.auction is not None])
        self._load("bid", [(n, e.bid) for n, e in numbered if e.bid is not None])

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the result of ``query``, such as ``q5``, in any order."""
        return self._database.execute(SQL[query]).fetchall()

    def _load(self, table: str, records: Sequence[tuple[int, Any]]) -> None:
        if not records:
            raise ValueError(f"the events have no {table}: generate at least 50")
        names: Iterable[str] = records[0][1].__struct_fields__
        columns = {
            # AT is a keyword of DuckDB.
            "ts" if name == "at" else name: _ARROW.array(
                [getattr(record, name) for _, record in records]
            )
            for name in names
        }
        columns["number"] = _ARROW.array([number for number, _ in records])
        self._database.register("loaded", _ARROW.table(columns))
        self._database.execute(f"CREATE TABLE {table} AS SELECT * FROM loaded")
        self._database.unregister("loaded")
