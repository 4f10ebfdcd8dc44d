"""Queries of winning bids: q4, q6 and q9.

The winning bid of an auction is the highest one from its opening to its expiry; of equal ones the earliest. It is known
when event time has passed the expiry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

import aflow as af
from bench.nexmark.model import Auction, Bid, MarketEvent
from bench.nexmark.streams import auctions, bids, read

#: Closed auctions of a seller whose prices q6 averages.
LAST: Final = 10


class WinningBid(msgspec.Struct, frozen=True, gc=False):
    """An auction that has closed, and its winning bid; the result of q9."""

    auction: Auction
    bid: Bid


class CategoryTotal(msgspec.Struct, frozen=True, gc=False):
    """Number of closed auctions of a category, and the total of their prices."""

    category: int
    auctions: int
    total: int


class CategoryMean(msgspec.Struct, frozen=True, gc=False):
    """Result of q4, for each closed auction: the average price of the ``auctions`` of its category so far."""

    category: int
    auctions: int
    mean: float


class SellerPrice(msgspec.Struct, frozen=True, gc=False):
    """Result of q6, for each closed auction: the average price of the last ten auctions of a seller."""

    seller: int
    mean: float


class AuctionClosing(af.CoProcess[int, Auction, Bid, WinningBid]):
    """Emit the winning bid of an auction when it expires.

    A bid may arrive before its auction, and after the auction has expired. Both find no auction. They are kept until
    event time has passed them: an auction that was open then has arrived by that time, so they are no bids for any.
    """

    auction = af.ValueState("auction", of=Auction)
    best = af.ValueState("best", of=Bid)
    early = af.ListState("early", of=Bid)

    def process_left(self, value: Auction, ctx: af.Context[int]) -> None:
        ctx.state(self.auction).set(value)
        ctx.set_event_timer(value.expires)
        early = ctx.state(self.early)
        for bid in early.get():
            self._offer(value, bid, ctx)
        early.clear()

    def process_right(self, value: Bid, ctx: af.Context[int]) -> None:
        auction = ctx.state(self.auction).get()
        if auction is not None:
            self._offer(auction, value, ctx)
        else:
            ctx.state(self.early).add(value)
            ctx.set_event_timer(value.at)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[WinningBid]:
        auction = ctx.state(self.auction).get()
        if auction is None:
            early = ctx.state(self.early)
            early.set([bid for bid in early.get() if bid.at > at])
        elif at == auction.expires:
            best = ctx.state(self.best).get()
            ctx.state(self.auction).clear()
            ctx.state(self.best).clear()
            if best is not None:
                yield WinningBid(auction, best)

    def _offer(self, auction: Auction, bid: Bid, ctx: af.Context[int]) -> None:
        if not auction.at <= bid.at <= auction.expires:
            return
        state = ctx.state(self.best)
        best = state.get()
        if best is None or (bid.price, -bid.at) > (best.price, -best.at):
            state.set(bid)


def winning_bids(flow: af.Flow, events: af.Source[MarketEvent]) -> af.Stream[WinningBid]:
    """Return the winning bids of all auctions that have any, when they expire."""
    market = read(flow, events)
    return (
        auctions(market)
        .key_by(lambda auction: auction.id)
        .connect(bids(market).key_by(lambda bid: bid.auction))
        .process(AuctionClosing(), name="winning bids")
    )


def q4(events: af.Source[MarketEvent], results: af.Sink[CategoryMean]) -> af.Flow:
    """Average the winning bids of each category."""
    flow = af.Flow("q4")
    (
        winning_bids(flow, events)
        .key_by(lambda won: won.auction.category)
        .fold(no_price, plus_price, name="totals")
        .map(lambda sums: CategoryMean(sums.category, sums.auctions, sums.total / sums.auctions))
        .to(results, name="results")
    )
    return flow


def no_price() -> CategoryTotal:
    """Return the total of no auctions."""
    return CategoryTotal(0, 0, 0)


def plus_price(so_far: CategoryTotal, won: WinningBid) -> CategoryTotal:
    """Return the total with one more auction."""
    return CategoryTotal(won.auction.category, so_far.auctions + 1, so_far.total + won.bid.price)


def q6(events: af.Source[MarketEvent], results: af.Sink[SellerPrice]) -> af.Flow:
    """Average the winning bids of the last ten auctions of each seller, in the order in which the auctions expire."""
    flow = af.Flow("q6")
    (
        winning_bids(flow, events)
        .key_by(lambda won: won.auction.seller)
        .window(af.Count(LAST, slide=1))
        .aggregate(af.aggregates.mean(lambda won: won.bid.price), name="last prices", of=WinningBid)
        .map(lambda last: SellerPrice(last.key, last.value))
        .to(results, name="results")
    )
    return flow


def q9(events: af.Source[MarketEvent], results: af.Sink[WinningBid]) -> af.Flow:
    """Find the winning bid of each auction."""
    flow = af.Flow("q9")
    winning_bids(flow, events).to(results, name="results")
    return flow
