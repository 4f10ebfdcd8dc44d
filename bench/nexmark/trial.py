"""Runs of the queries: each result is compared with that of DuckDB, then rates are compared."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

import aflow as af
from aflow.testing import Pause, ScriptedSource, run_flow
from aflow_connectors.files import JsonLinesSink
from bench.harness import run_async, timed
from bench.nexmark.catalog import NexmarkQuery
from bench.nexmark.generator import generate
from bench.nexmark.model import MarketEvent
from bench.nexmark.oracles import Oracle
from bench.nexmark.queries.stateless import LoggedBid
from bench.nexmark.queries.windows import BidderCount
from bench.nexmark.settings import NexmarkSettings

#: Events of the run in which a virtual clock follows event time: 25 s of 80 events each.
CLOCKED: Final = NexmarkSettings(rate=80)
CLOCKED_EVENTS: Final = 2_000

#: The query to which the rates of the others are compared.
REFERENCE: Final = "q0"


class QueryTrial:
    """Runs a query over ``events``, and compares its results with those of ``oracle``."""

    def __init__(self, query: NexmarkQuery, events: list[MarketEvent], oracle: Oracle) -> None:
        self.query: Final = query
        self._events: Final = events
        self._expected: Final = oracle.rows(query.name)
        self.seconds: Final = list[float]()

    def verify(self) -> None:
        """Run once without measuring. Raises ``SystemExit`` if the result is not that of DuckDB."""
        if self.query.delay is None:
            verify_by_clock(self.query)
        self.run()
        self.seconds.clear()

    def run(self) -> None:
        """Run once, measure, and compare. Raises ``SystemExit`` if the result is not that of DuckDB."""
        seconds, results = self._run_to_files() if self.query.to_files else self._run()
        if self.query.delay is None:
            is_right = _are_some(results, self._expected)
        else:
            is_right = self.query.same(results, self._expected)
        if not is_right:
            raise SystemExit(
                f"nexmark: {self.query.name} returned other rows than DuckDB; nothing was measured"
            )
        self.seconds.append(seconds)

    def _run(self) -> tuple[float, list[Any]]:
        sink = af.CollectSink[Any]()
        flow = self.query.build(af.IterableSource(self._events), sink)
        seconds, _ = timed(lambda: run_async(flow.run()))
        return seconds, sink.values

    def _run_to_files(self) -> tuple[float, list[LoggedBid]]:
        with TemporaryDirectory() as folder:
            sink = JsonLinesSink[LoggedBid](Path(folder) / "log")
            flow = self.query.build(af.IterableSource(self._events), sink)
            seconds, _ = timed(lambda: run_async(flow.run()))
            return seconds, list(logged_bids(Path(folder) / "log"))


def logged_bids(folder: Path) -> Iterator[LoggedBid]:
    """Yield the lines of all files in ``folder``."""
    decoder = msgspec.json.Decoder(LoggedBid)
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            yield from map(decoder.decode, lines)


def verify_by_clock(query: NexmarkQuery) -> None:
    """Run a query of processing time with a virtual clock that follows the times of the events.

    So its results are those of event time, and can be compared row by row. Raises
    ``SystemExit`` if the result is not that of DuckDB.
    """
    events = generate(CLOCKED_EVENTS, CLOCKED)
    sink = af.CollectSink[BidderCount]()
    run_flow(query.build(ScriptedSource(*_script(events)), sink), start=CLOCKED.start)
    with Oracle(events) as oracle:
        if not query.same(sink.values, oracle.rows(query.name)):
            raise SystemExit(f"nexmark: {query.name} returned other rows than DuckDB")


def _script(events: Sequence[MarketEvent]) -> Iterator[MarketEvent | Pause]:
    """Yield the events with pauses, so that each arrives at its time; the last window ends before the input does."""
    now = CLOCKED.start
    for event in events:
        if event.at > now:
            yield Pause(timedelta(milliseconds=event.at - now))
            now = event.at
        yield event
    yield Pause(timedelta(seconds=10))


def _are_some(results: Sequence[Any], expected: Sequence[tuple[Any, ...]]) -> bool:
    """Return True if no bidder has more bids than expected: windows that have not ended emit nothing."""
    found, most = Counter[int](), Counter[int]()
    for one in results:
        found[one.bidder] += one.bids
    for bidder, bids, *_ in expected:
        most[bidder] += bids
    return found <= most


def rates(
    queries: Sequence[NexmarkQuery], events: list[MarketEvent], rounds: int
) -> dict[str, float]:
    """Return the events per second of each query, and of the reference, by name; medians of ``rounds`` runs.

    All queries run in turn, so that a slow minute of the machine slows all of them.
    """
    with Oracle(events) as oracle:
        trials = [QueryTrial(query, events, oracle) for query in queries]
    for trial in trials:
        trial.verify()
    for _ in range(rounds):
        for trial in trials:
            trial.run()
    return {trial.query.name: len(events) / statistics.median(trial.seconds) for trial in trials}
