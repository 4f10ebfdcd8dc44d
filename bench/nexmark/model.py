"""Events of Nexmark: persons open auctions, and persons bid on them.

The fields are those of the benchmark in Apache Beam, with the channel and the URL of a bid that the Flink version
added. Times are epoch milliseconds. The structs contain no cycles, so the garbage collector need not visit them
(``gc=False``).
"""

from __future__ import annotations

import msgspec


class Person(msgspec.Struct, frozen=True, gc=False):
    """A person who was registered."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    at: int
    extra: str


class Auction(msgspec.Struct, frozen=True, gc=False):
    """An auction that was opened; bids are valid from ``at`` to ``expires``, both inclusive."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    at: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(msgspec.Struct, frozen=True, gc=False):
    """A bid on an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    at: int
    extra: str


class MarketEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the one stream: exactly one of ``person``, ``auction`` and ``bid`` is set."""

    at: int
    person: Person | None = None
    auction: Auction | None = None
    bid: Bid | None = None
