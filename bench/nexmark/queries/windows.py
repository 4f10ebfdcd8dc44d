"""Queries of bids in windows: q5, q7, q11 and q12."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

import aflow as af
from bench.nexmark.model import Bid, MarketEvent
from bench.nexmark.streams import read_bids

WINDOW: Final = timedelta(seconds=10)
SLIDE: Final = timedelta(seconds=2)
GAP: Final = timedelta(seconds=10)


class HotItem(msgspec.Struct, frozen=True, gc=False):
    """Result of q5: an auction with the most bids in a window that begins at ``start``."""

    auction: int
    bids: int
    start: int


class BidderCount(msgspec.Struct, frozen=True, gc=False):
    """Result of q11 and q12: the number of bids of a bidder in a session or a window."""

    bidder: int
    bids: int
    start: int
    end: int


def q5(events: af.Source[MarketEvent], results: af.Sink[HotItem]) -> af.Flow:
    """Find the auctions with the most bids in the last 10 s, every 2 s."""
    flow = af.Flow("q5")
    counts = (
        read_bids(flow, events)
        .key_by(lambda bid: bid.auction)
        .window(af.Sliding(WINDOW, SLIDE))
        .aggregate(af.aggregates.count(), name="bids of auctions")
        .map(lambda one: HotItem(one.key, one.value, one.window.start))
    )
    # Results of one window have the time of its last millisecond, so each window of 2 s has those of one.
    (
        counts.window_all(af.Tumbling(SLIDE))
        .fold(no_items, hottest, name="hottest")
        .flat_map(lambda one: one.value)
        .to(results, name="results")
    )
    return flow


def no_items() -> list[HotItem]:
    """Return no items."""
    return []


def hottest(found: list[HotItem], item: HotItem) -> list[HotItem]:
    """Return the items with the most bids."""
    if not found or item.bids > found[0].bids:
        return [item]
    if item.bids == found[0].bids:
        found.append(item)
    return found


def q7(events: af.Source[MarketEvent], results: af.Sink[Bid]) -> af.Flow:
    """Find the highest bids of each 10 s."""
    flow = af.Flow("q7")
    (
        read_bids(flow, events)
        .window_all(af.Tumbling(WINDOW))
        .fold(no_bids, highest, name="highest")
        .flat_map(lambda one: one.value)
        .to(results, name="results")
    )
    return flow


def no_bids() -> list[Bid]:
    """Return no bids."""
    return []


def highest(found: list[Bid], bid: Bid) -> list[Bid]:
    """Return the bids with the highest price."""
    if not found or bid.price > found[0].price:
        return [bid]
    if bid.price == found[0].price:
        found.append(bid)
    return found


def q11(events: af.Source[MarketEvent], results: af.Sink[BidderCount]) -> af.Flow:
    """Count the bids of each bidder in sessions, which end after 10 s without a bid."""
    flow = af.Flow("q11")
    _count(read_bids(flow, events), af.Session(GAP)).to(results, name="results")
    return flow


def q12(events: af.Source[MarketEvent], results: af.Sink[BidderCount]) -> af.Flow:
    """Count the bids of each bidder in windows of 10 s of processing time."""
    flow = af.Flow("q12")
    by_the_clock = af.Tumbling(WINDOW, domain=af.TimeDomain.PROCESSING)
    _count(read_bids(flow, events), by_the_clock).to(results, name="results")
    return flow


def _count(bids: af.Stream[Bid], windows: af.Session | af.Tumbling) -> af.Stream[BidderCount]:
    return (
        bids.key_by(lambda bid: bid.bidder)
        .window(windows)
        .aggregate(af.aggregates.count(), name="bids of bidders")
        .map(lambda one: BidderCount(one.key, one.value, one.window.start, one.window.end))
    )
