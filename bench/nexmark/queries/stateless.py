"""Queries of single bids: q0, q1, q2, q10, q13, q14, q21 and q22."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import msgspec

import aflow as af
from bench.nexmark.model import Bid, MarketEvent
from bench.nexmark.streams import read_bids

#: Euros for a dollar.
RATE: Final = Decimal("0.908")

#: Rows of the side input of q13.
SIDE_ROWS: Final = 10_000

_CHANNEL_IDS: Final = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_CHANNEL_ID: Final = re.compile(r"(?:&|^)channel_id=([^&]*)")


class PassedBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q0."""

    auction: int
    bidder: int
    price: int
    at: int
    extra: str


class EuroBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q1: ``price`` is in euros."""

    auction: int
    bidder: int
    price: Decimal
    at: int
    extra: str


class AuctionPrice(msgspec.Struct, frozen=True, gc=False):
    """Result of q2."""

    auction: int
    price: int


class LoggedBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q10: a line of a log that is partitioned by day and minute."""

    auction: int
    bidder: int
    price: int
    at: int
    extra: str
    day: str
    minute: str


class EnrichedBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q13: a bid with a value of the side input."""

    auction: int
    bidder: int
    price: int
    at: int
    value: str


class ClassifiedBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q14."""

    auction: int
    bidder: int
    price: Decimal
    time: str
    at: int
    extra: str
    letters: int


class ChannelBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q21."""

    auction: int
    bidder: int
    price: int
    channel: str
    channel_id: str


class FolderBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q22: the folders of the URL."""

    auction: int
    bidder: int
    price: int
    channel: str
    first: str
    second: str
    third: str


def q0(events: af.Source[MarketEvent], results: af.Sink[PassedBid]) -> af.Flow:
    """Pass through: the cost of reading and writing."""
    flow = af.Flow("q0")
    read_bids(flow, events).map(
        lambda bid: PassedBid(bid.auction, bid.bidder, bid.price, bid.at, bid.extra)
    ).to(results, name="results")
    return flow


def q1(events: af.Source[MarketEvent], results: af.Sink[EuroBid]) -> af.Flow:
    """Convert the prices of bids into euros."""
    flow = af.Flow("q1")
    read_bids(flow, events).map(
        lambda bid: EuroBid(bid.auction, bid.bidder, RATE * bid.price, bid.at, bid.extra)
    ).to(results, name="results")
    return flow


def q2(events: af.Source[MarketEvent], results: af.Sink[AuctionPrice]) -> af.Flow:
    """Select the bids for some auctions."""
    flow = af.Flow("q2")
    read_bids(flow, events).filter(lambda bid: bid.auction % 123 == 0).map(
        lambda bid: AuctionPrice(bid.auction, bid.price)
    ).to(results, name="results")
    return flow


def q10(events: af.Source[MarketEvent], results: af.Sink[LoggedBid]) -> af.Flow:
    """Log all bids to files, with the day and minute of each."""
    flow = af.Flow("q10")
    read_bids(flow, events).map(logged).to(results, name="results")
    return flow


def logged(bid: Bid) -> LoggedBid:
    """Return the line of ``bid``."""
    at = datetime.fromtimestamp(bid.at / 1000, UTC)
    day, minute = f"{at:%Y-%m-%d}", f"{at:%H:%M}"
    return LoggedBid(bid.auction, bid.bidder, bid.price, bid.at, bid.extra, day, minute)


def side_input() -> dict[int, str]:
    """Return the side input of q13, as a program would read it from a file: numbers and their texts."""
    return {number: str(number) for number in range(SIDE_ROWS)}


class SideInputLookup(af.ProcessFunction[Bid, EnrichedBid]):
    """Look up each bid in a table that each subtask reads once."""

    def open(self) -> None:
        self._table = side_input()

    def process(self, value: Bid, ctx: af.ProcessContext) -> Iterable[EnrichedBid]:
        found = self._table.get(value.auction % SIDE_ROWS)
        if found is not None:
            yield EnrichedBid(value.auction, value.bidder, value.price, value.at, found)


def q13(events: af.Source[MarketEvent], results: af.Sink[EnrichedBid]) -> af.Flow:
    """Join bids with a bounded side input."""
    flow = af.Flow("q13")
    read_bids(flow, events).process(SideInputLookup(), name="lookup").to(results, name="results")
    return flow


def q14(events: af.Source[MarketEvent], results: af.Sink[ClassifiedBid]) -> af.Flow:
    """Select bids by their price in euros, and classify their times."""
    flow = af.Flow("q14")
    read_bids(flow, events).filter(lambda bid: 1_000_000 < RATE * bid.price < 50_000_000).map(
        classified
    ).to(results, name="results")
    return flow


def classified(bid: Bid) -> ClassifiedBid:
    """Return ``bid`` with its price in euros, the time of day, and the number of times that ``extra`` has a c."""
    hour = datetime.fromtimestamp(bid.at / 1000, UTC).hour
    if 8 <= hour <= 18:
        time = "dayTime"
    elif hour <= 6 or hour >= 20:
        time = "nightTime"
    else:
        time = "otherTime"
    price, letters = RATE * bid.price, bid.extra.count("c")
    return ClassifiedBid(bid.auction, bid.bidder, price, time, bid.at, bid.extra, letters)


def q21(events: af.Source[MarketEvent], results: af.Sink[ChannelBid]) -> af.Flow:
    """Add the id of the channel: a known one, or that of the URL; drop bids without any."""
    flow = af.Flow("q21")
    read_bids(flow, events).flat_map(with_channel_id, name="channel id").to(results, name="results")
    return flow


def with_channel_id(bid: Bid) -> Iterable[ChannelBid]:
    """Yield ``bid`` with the id of its channel, if it has one."""
    channel_id = _CHANNEL_IDS.get(bid.channel.lower())
    if channel_id is None:
        found = _CHANNEL_ID.search(bid.url)
        if found is None:
            return
        channel_id = found[1]
    yield ChannelBid(bid.auction, bid.bidder, bid.price, bid.channel, channel_id)


def q22(events: af.Source[MarketEvent], results: af.Sink[FolderBid]) -> af.Flow:
    """Add the folders of the URL."""
    flow = af.Flow("q22")
    read_bids(flow, events).map(with_folders).to(results, name="results")
    return flow


def with_folders(bid: Bid) -> FolderBid:
    """Return ``bid`` with the first three folders of its URL."""
    first, second, third = bid.url.split("/", 6)[3:6]
    return FolderBid(bid.auction, bid.bidder, bid.price, bid.channel, first, second, third)
