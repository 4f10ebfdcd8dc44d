"""Queries whose results replace earlier ones of the same key: q18 and q19."""

from __future__ import annotations

from typing import Final

import msgspec

import aflow as af
from bench.nexmark.model import Bid, MarketEvent
from bench.nexmark.streams import read_bids

#: Bids of an auction that q19 keeps.
BEST: Final = 10


class AuctionRanking(msgspec.Struct, frozen=True, gc=False):
    """Result of q19, on each change: the highest bids of an auction so far, highest first."""

    auction: int
    bids: tuple[Bid, ...]


def q18(events: af.Source[MarketEvent], results: af.Sink[Bid]) -> af.Flow:
    """Find the last bid of each bidder for each auction; emitted after each bid."""
    flow = af.Flow("q18")
    (
        read_bids(flow, events)
        .key_by(lambda bid: (bid.bidder, bid.auction))
        .reduce(lambda last, bid: bid if bid.at >= last.at else last, name="last", of=Bid)
        .to(results, name="results")
    )
    return flow


def q19(events: af.Source[MarketEvent], results: af.Sink[AuctionRanking]) -> af.Flow:
    """Find the ten highest bids of each auction; emitted on each change."""
    flow = af.Flow("q19")
    (
        read_bids(flow, events)
        .key_by(lambda bid: bid.auction)
        .top(BEST, by=lambda bid: bid.price, name="highest", of=Bid)
        .map(lambda best: AuctionRanking(best[0].auction, best))
        .to(results, name="results")
    )
    return flow
