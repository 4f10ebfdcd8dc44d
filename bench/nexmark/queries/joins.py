"""Queries that join persons, auctions and bids: q3, q8 and q20."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Generic, TypeVar

import msgspec

import aflow as af
from bench.nexmark.model import Auction, Bid, MarketEvent, Person
from bench.nexmark.streams import auctions, bids, persons, read

ONE = TypeVar("ONE")
MANY = TypeVar("MANY")

CATEGORY: Final = 10
STATES: Final = frozenset({"OR", "ID", "CA"})
WINDOW: Final = timedelta(seconds=10)


class LocalItem(msgspec.Struct, frozen=True, gc=False):
    """Result of q3: an auction of a person in one of three states."""

    name: str
    city: str
    state: str
    auction: int


class NewSeller(msgspec.Struct, frozen=True, gc=False):
    """Result of q8: a person who opened an auction in the window in which they were registered."""

    id: int
    name: str
    start: int


class ExpandedBid(msgspec.Struct, frozen=True, gc=False):
    """Result of q20: a bid with its auction."""

    bid: Bid
    auction: Auction


class OneToManyJoin(af.CoProcess[int, ONE, MANY, tuple[ONE, MANY]], Generic[ONE, MANY]):
    """Join the one record of a key in the left stream with all of the right stream, without a bound of time.

    The left record is kept for ever. Right records are kept until it arrives.
    """

    def __init__(self, one: type[ONE], many: type[MANY]) -> None:
        self._one = af.ValueState("one", of=one)
        self._waiting = af.ListState("waiting", of=many)

    def process_left(self, value: ONE, ctx: af.Context[int]) -> Iterable[tuple[ONE, MANY]]:
        ctx.state(self._one).set(value)
        waiting = ctx.state(self._waiting)
        pairs = [(value, other) for other in waiting.get()]
        waiting.clear()
        return pairs

    def process_right(self, value: MANY, ctx: af.Context[int]) -> Iterable[tuple[ONE, MANY]]:
        one = ctx.state(self._one).get()
        if one is None:
            ctx.state(self._waiting).add(value)
            return []
        return [(one, value)]


def q3(events: af.Source[MarketEvent], results: af.Sink[LocalItem]) -> af.Flow:
    """Find the auctions of one category whose sellers live in one of three states."""
    flow = af.Flow("q3")
    market = read(flow, events)
    sellers = persons(market).filter(lambda person: person.state in STATES)
    items = auctions(market).filter(lambda auction: auction.category == CATEGORY)
    (
        sellers.key_by(lambda person: person.id)
        .connect(items.key_by(lambda auction: auction.seller))
        .process(OneToManyJoin(Person, Auction), name="join")
        .map(lambda pair: LocalItem(pair[0].name, pair[0].city, pair[0].state, pair[1].id))
        .to(results, name="results")
    )
    return flow


def q8(events: af.Source[MarketEvent], results: af.Sink[NewSeller]) -> af.Flow:
    """Find the persons who opened an auction within the 10 s in which they were registered."""
    flow = af.Flow("q8")
    market = read(flow, events)
    (
        persons(market)
        .key_by(lambda person: person.id)
        .co_group(
            auctions(market).key_by(lambda auction: auction.seller),
            af.Tumbling(WINDOW),
            into=lambda new, opened: new if opened else [],
            name="new sellers",
            of=Person,
            other_of=Auction,
        )
        .flat_map(
            lambda group: [NewSeller(one.id, one.name, group.window.start) for one in group.value]
        )
        .to(results, name="results")
    )
    return flow


def q20(events: af.Source[MarketEvent], results: af.Sink[ExpandedBid]) -> af.Flow:
    """Add its auction to each bid for an auction of one category."""
    flow = af.Flow("q20")
    market = read(flow, events)
    # All auctions are joined: bids for those of other categories would be kept for ever otherwise.
    (
        auctions(market)
        .key_by(lambda auction: auction.id)
        .connect(bids(market).key_by(lambda bid: bid.auction))
        .process(OneToManyJoin(Auction, Bid), name="join")
        .filter(lambda pair: pair[0].category == CATEGORY)
        .map(lambda pair: ExpandedBid(pair[1], pair[0]))
        .to(results, name="results")
    )
    return flow
