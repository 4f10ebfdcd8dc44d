"""Settings of the generator, with the defaults of the benchmark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

#: 2015-07-14T23:59:50Z: results of days, minutes and hours differ within the first 10 s.
START: Final = 1_436_918_390_000

#: Factor by which event numbers are permuted within a group, a prime.
PERMUTATION: Final = 953

#: Maximum average size of an event.
MAXIMUM_BYTES: Final = 32_768


class RateShape(Enum):
    """Shape of a rate that changes between ``rate`` and ``next_rate``."""

    SQUARE = "square"
    """Two steps: ``rate``, then ``next_rate``."""
    SINE = "sine"
    """Ten steps of a cosine that begins at ``rate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkSettings:
    """Settings of the generator. Equal settings give equal events.

    Raises ``ValueError`` for a value out of its range.
    """

    seed: int = 7
    start: int = START
    """Event time of the first event, in epoch milliseconds."""
    rate: float = 10_000
    """Events per second of event time."""
    next_rate: float | None = None
    """The other rate of a rate that changes; None: constant."""
    shape: RateShape = RateShape.SQUARE
    period_s: int = 600
    """Seconds of event time in which a changing rate passes through its shape once."""
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    """Persons, auctions and bids of each ``persons + auctions + bids`` events."""
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    """Average sizes, to which ``extra`` fills up an event."""
    hot_auctions: int = 2
    """All but one of this many bids are for the hot auction, one of a hundred; 1: none."""
    hot_sellers: int = 4
    """All but one of this many auctions are of the hot seller, one person of a hundred; 1: none."""
    hot_bidders: int = 4
    """All but one of this many bids are of the hot bidder, one person of a hundred; 1: none."""
    active_people: int = 1_000
    """Number of newest persons who open auctions and bid."""
    auctions_in_flight: int = 100
    """Number of newest auctions that bids are for; also determines the duration of an auction."""
    out_of_order: int = 1
    """Size of groups of events that are permuted; 1: events are in order."""

    def __post_init__(self) -> None:
        for name in ("persons", "auctions", "bids", "auctions_in_flight", "active_people"):
            self._check(name, minimum=1)
        for name in ("hot_auctions", "hot_sellers", "hot_bidders", "out_of_order", "period_s"):
            self._check(name, minimum=1)
        for name in ("person_bytes", "auction_bytes", "bid_bytes"):
            self._check(name, minimum=0, maximum=MAXIMUM_BYTES)
        for rate in (self.rate, self.next_rate):
            if rate is not None and not (rate > 0 and math.isfinite(rate)):
                raise ValueError(f"a rate is a positive number of events per second, not {rate!r}")
        if self.out_of_order % PERMUTATION == 0:
            raise ValueError(
                f"out_of_order: a group of {self.out_of_order} events cannot be permuted, since it is a multiple of "
                f"{PERMUTATION}; choose another size"
            )

    @property
    def total(self) -> int:
        """Events of one round of persons, auctions and bids."""
        return self.persons + self.auctions + self.bids

    def _check(self, name: str, minimum: int, maximum: int | None = None) -> None:
        value = getattr(self, name)
        if value < minimum:
            raise ValueError(f"{name} is at least {minimum}, not {value}")
        if maximum is not None and value > maximum:
            raise ValueError(f"{name} is at most {maximum}, not {value}")
