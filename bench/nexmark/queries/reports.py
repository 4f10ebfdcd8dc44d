"""Daily reports: q15, q16 and q17. A report is emitted when its day has ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec

import aflow as af
from bench.nexmark.model import Bid, MarketEvent
from bench.nexmark.streams import read_bids

DAY: Final = timedelta(days=1)
#: Bounds of the ranks of prices: below the first, below the second, and all others.
LOW, HIGH = 10_000, 1_000_000

RankTotals: TypeAlias = tuple[list[int], list[set[int]], list[set[int]]]
"""Bids, bidders and auctions by rank."""


class BidFigures(msgspec.Struct, frozen=True, gc=False):
    """Numbers of bids, bidders and auctions: of all prices, and of each rank."""

    bids: tuple[int, int, int, int]
    bidders: tuple[int, int, int, int]
    auctions: tuple[int, int, int, int]


class DayReport(msgspec.Struct, frozen=True, gc=False):
    """Result of q15."""

    day: str
    figures: BidFigures


class ChannelReport(msgspec.Struct, frozen=True, gc=False):
    """Result of q16; ``minute`` is that of the last bid."""

    channel: str
    day: str
    minute: str
    figures: BidFigures


class AuctionDay(msgspec.Struct, frozen=True, gc=False):
    """Bids for an auction in a day."""

    bids: int
    low: int
    middle: int
    high: int
    cheapest: int
    dearest: int
    mean: float
    total: int


class AuctionReport(msgspec.Struct, frozen=True, gc=False):
    """Result of q17."""

    auction: int
    day: str
    figures: AuctionDay


class LatestFigures(msgspec.Struct, frozen=True, gc=False):
    """Figures and the time of the last bid."""

    latest: int
    figures: BidFigures


def rank(price: int) -> int:
    """Return the rank of a price: 0, 1 or 2."""
    return 0 if price < LOW else 1 if price < HIGH else 2


class BidStatistics(af.Aggregate[Bid, RankTotals, BidFigures]):
    """Count bids, and distinct bidders and auctions, of each rank."""

    def create(self) -> RankTotals:
        return [0, 0, 0], [set(), set(), set()], [set(), set(), set()]

    def add(self, acc: RankTotals, value: Bid) -> RankTotals:
        found = rank(value.price)
        bids, bidders, auctions = acc
        bids[found] += 1
        bidders[found].add(value.bidder)
        auctions[found].add(value.auction)
        return acc

    def merge(self, a: RankTotals, b: RankTotals) -> RankTotals:
        for found in range(3):
            a[0][found] += b[0][found]
            a[1][found] |= b[1][found]
            a[2][found] |= b[2][found]
        return a

    def result(self, acc: RankTotals) -> BidFigures:
        bids, bidders, auctions = acc
        return BidFigures((sum(bids), *_three(bids)), _distinct(bidders), _distinct(auctions))


def _three(values: list[int]) -> tuple[int, int, int]:
    first, second, third = values
    return first, second, third


def _distinct(parts: list[set[int]]) -> tuple[int, int, int, int]:
    return (len(set[int]().union(*parts)), *_three([len(part) for part in parts]))


def q15(events: af.Source[MarketEvent], results: af.Sink[DayReport]) -> af.Flow:
    """Count bids, bidders and auctions of each day, also by rank of price."""
    flow = af.Flow("q15")
    (
        read_bids(flow, events)
        .window_all(af.Tumbling(DAY))
        .aggregate(BidStatistics(), name="statistics")
        .map(lambda one: DayReport(f"{one.window.start_time:%Y-%m-%d}", one.value))
        .to(results, name="results")
    )
    return flow


def q16(events: af.Source[MarketEvent], results: af.Sink[ChannelReport]) -> af.Flow:
    """Count bids, bidders and auctions of each channel and day, also by rank of price."""
    flow = af.Flow("q16")
    (
        read_bids(flow, events)
        .key_by(lambda bid: bid.channel)
        .window(af.Tumbling(DAY))
        .aggregate(
            af.aggregates.fields(
                LatestFigures,
                latest=af.aggregates.max(lambda bid: bid.at),
                figures=BidStatistics(),
            ),
            name="statistics",
        )
        .map(channel_report)
        .to(results, name="results")
    )
    return flow


def channel_report(one: af.Windowed[str, LatestFigures]) -> ChannelReport:
    """Return the report of a channel and day."""
    latest = datetime.fromtimestamp(one.value.latest / 1000, UTC)
    return ChannelReport(one.key, f"{latest:%Y-%m-%d}", f"{latest:%H:%M}", one.value.figures)


def q17(events: af.Source[MarketEvent], results: af.Sink[AuctionReport]) -> af.Flow:
    """Report the number and the prices of bids of each auction and day."""
    flow = af.Flow("q17")
    aggregates = af.aggregates
    (
        read_bids(flow, events)
        .key_by(lambda bid: bid.auction)
        .window(af.Tumbling(DAY))
        .aggregate(
            aggregates.fields(
                AuctionDay,
                bids=aggregates.count(),
                low=aggregates.sum(lambda bid: bid.price < LOW),
                middle=aggregates.sum(lambda bid: LOW <= bid.price < HIGH),
                high=aggregates.sum(lambda bid: bid.price >= HIGH),
                cheapest=aggregates.min(lambda bid: bid.price),
                dearest=aggregates.max(lambda bid: bid.price),
                mean=aggregates.mean(lambda bid: bid.price),
                total=aggregates.sum(lambda bid: bid.price),
            ),
            name="prices",
        )
        .map(lambda one: AuctionReport(one.key, f"{one.window.start_time:%Y-%m-%d}", one.value))
        .to(results, name="results")
    )
    return flow
