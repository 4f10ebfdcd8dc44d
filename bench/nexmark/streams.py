"""The streams that the queries read: one source of events, and its persons, auctions and bids."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import aflow as af
from bench.nexmark.model import Auction, Bid, MarketEvent, Person

#: Maximum difference in time from the newest event to a later one in the stream. The watermark of Flink's version has the same delay.
MAX_DELAY: Final = timedelta(seconds=4)


def read(flow: af.Flow, events: af.Source[MarketEvent]) -> af.Stream[MarketEvent]:
    """Return the events with their event time."""
    source = flow.source(events, name="events")
    return source.event_time(lambda event: event.at, max_delay=MAX_DELAY, name="time")


def persons(events: af.Stream[MarketEvent]) -> af.Stream[Person]:
    """Return the persons of ``events``."""
    return events.flat_map(
        lambda event: () if event.person is None else (event.person,), name="persons"
    )


def auctions(events: af.Stream[MarketEvent]) -> af.Stream[Auction]:
    """Return the auctions of ``events``."""
    return events.flat_map(
        lambda event: () if event.auction is None else (event.auction,), name="auctions"
    )


def bids(events: af.Stream[MarketEvent]) -> af.Stream[Bid]:
    """Return the bids of ``events``."""
    return events.flat_map(lambda event: () if event.bid is None else (event.bid,), name="bids")


def read_bids(flow: af.Flow, events: af.Source[MarketEvent]) -> af.Stream[Bid]:
    """Return the bids with their event time."""
    return bids(read(flow, events))
