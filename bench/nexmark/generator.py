"""The generator of Nexmark: persons, auctions and bids, seeded.

Proportions, hot keys, sizes, prices and durations are those of Apache Beam's generator, and channels and URLs those of
Flink's. An event is determined by the settings and the preceding random numbers, so equal settings give equal events;
they are not the events of those generators, whose random numbers are others.

- Events have numbers. Of each 50, the first is a person, the next 3 are auctions, and 46 are bids.
- Ids of persons and auctions count from 1,000. Up to 10 ids ahead of the newest one are used, so an auction or a bid
  may precede its person or auction.
- The hot auction is the first of each hundred auctions, the hot seller the first and the hot bidder the second of each
  hundred persons.
- Prices are 100 to 100,000,000, with a uniform logarithm.
- An auction takes up to twice the time in which ``auctions_in_flight`` auctions are opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

from bench.nexmark.model import Auction, Bid, MarketEvent, Person
from bench.nexmark.settings import PERMUTATION, NexmarkSettings
from bench.nexmark.timeline import Timeline

FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
#: Number of ids ahead of the newest one that are used.
LEAD: Final = 10
#: One of this many auctions or persons is hot.
HOT_OF: Final = 100
CHANNELS: Final = 10_000

_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES: Final = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
_LAST_NAMES: Final = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels"),
    *("Walton", "Smith", "Jones", "Noris"),
)
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
#: Length of the text of which ``extra`` is a part.
_TEXT: Final = 1 << 16


def generate(events: int, settings: NexmarkSettings | None = None) -> list[MarketEvent]:
    """Return the first ``events`` events, in the order of arrival."""
    return list(MarketGenerator(settings or NexmarkSettings()).events(events))


class MarketGenerator:
    """Generates the events of ``settings``, once."""

    def __init__(self, settings: NexmarkSettings) -> None:
        self._settings: Final = settings
        self._timeline: Final = Timeline(settings)
        self._random: Final = Random(settings.seed)
        self._strings: Final = RandomStrings(self._random)
        self._channels: Final = channels_of(settings.seed)
        #: Events from the opening of an auction to its expected end.
        self._horizon: Final = settings.auctions_in_flight * settings.total // settings.auctions

    def events(self, count: int) -> Iterator[MarketEvent]:
        """Yield the first ``count`` events, in the order of arrival."""
        settings, time = self._settings, self._timeline.at
        total, persons = settings.total, settings.persons
        persons_and_auctions = persons + settings.auctions
        group = settings.out_of_order
        for arrived in range(count):
            number = arrived - arrived % group + arrived * PERMUTATION % group
            at = time(number)
            kind = number % total
            if kind >= persons_and_auctions:
                yield MarketEvent(at, bid=self._bid(number, at))
            elif kind >= persons:
                yield MarketEvent(at, auction=self._auction(number, at))
            else:
                yield MarketEvent(at, person=self._person(number, at))

    # --- the kinds of events

    def _person(self, number: int, at: int) -> Person:
        choose = self._random.choice
        name = f"{choose(_FIRST_NAMES)} {choose(_LAST_NAMES)}"
        email = f"{self._strings.short(7)}@{self._strings.short(5)}.com"
        card = " ".join(f"{self._below(10_000):04}" for _ in range(4))
        city, state = choose(_CITIES), choose(_STATES)
        size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
        extra = self._extra(self._settings.person_bytes - size)
        person = self._newest_person(number) + FIRST_ID
        return Person(person, name, email, card, city, state, at, extra)

    def _auction(self, number: int, at: int) -> Auction:
        settings = self._settings
        if self._below(settings.hot_sellers):
            seller = self._newest_person(number) // HOT_OF * HOT_OF
        else:
            seller = self._any_person(number)
        item, description = self._strings.short(20), self._strings.short(100)
        initial_bid = self._price()
        reserve = initial_bid + self._price()
        horizon = self._timeline.at(number + self._horizon) - at
        expires = at + 1 + self._below(max(horizon * 2, 1))
        category = FIRST_CATEGORY + self._below(CATEGORIES)
        extra = self._extra(settings.auction_bytes - 48 - len(item) - len(description))
        return Auction(
            id=self._newest_auction(number) + FIRST_ID,
            item=item,
            description=description,
            initial_bid=initial_bid,
            reserve=reserve,
            at=at,
            expires=expires,
            seller=seller + FIRST_ID,
            category=category,
            extra=extra,
        )

    def _bid(self, number: int, at: int) -> Bid:
        settings = self._settings
        newest = self._newest_auction(number)
        if self._below(settings.hot_auctions):
            auction = newest // HOT_OF * HOT_OF
        else:
            oldest = max(newest - settings.auctions_in_flight, 0)
            auction = oldest + self._below(newest - oldest + 1 + LEAD)
        if self._below(settings.hot_bidders):
            bidder = self._newest_person(number) // HOT_OF * HOT_OF + 1
        else:
            bidder = self._any_person(number)
        price = self._price()
        if self._below(2):
            channel, url = self._channels.hot[self._below(len(_HOT_CHANNELS))]
        else:
            channel, url = self._channels.others[self._below(CHANNELS)]
        extra = self._extra(settings.bid_bytes - 32)
        return Bid(auction + FIRST_ID, bidder + FIRST_ID, price, channel, url, at, extra)

    # --- ids, from 0

    def _newest_person(self, number: int) -> int:
        """Return the newest person at event ``number``, itself included."""
        settings = self._settings
        rounds, place = divmod(number, settings.total)
        return rounds * settings.persons + min(place, settings.persons - 1)

    def _newest_auction(self, number: int) -> int:
        """Return the newest auction at event ``number``, itself included; -1 if there is none."""
        settings = self._settings
        rounds, place = divmod(number, settings.total)
        opened = min(max(place - settings.persons + 1, 0), settings.auctions)
        return rounds * settings.auctions + opened - 1

    def _any_person(self, number: int) -> int:
        """Return one of the active persons, or one of the next ids."""
        people = self._newest_person(number) + 1
        active = min(people, self._settings.active_people)
        return people - active + self._below(active + LEAD)

    # --- random values

    def _below(self, end: int) -> int:
        # Hot path: some eight times per event; randrange takes five times as long.
        return int(self._random.random() * end)

    def _price(self) -> int:
        return round(10 ** (self._random.random() * 6) * 100)

    def _extra(self, size: int) -> str:
        """Return a text of ``size`` letters, or up to a fifth more or less; none for a ``size`` of 0 or less."""
        if size <= 0:
            return ""
        spread = round(size * 0.2)
        length = size - spread + (self._below(2 * spread) if spread else 0)
        begin = self._below(_TEXT - length)
        return self._channels.text[begin : begin + length]


class RandomStrings:
    """Random strings of ``random``."""

    def __init__(self, random: Random) -> None:
        self._random: Final = random

    def short(self, maximum: int, special: str = " ") -> str:
        """Return 3 to ``maximum`` - 1 letters, one of thirteen of them ``special``, without spaces at the ends."""
        draw = self._random.random
        length = 3 + int(draw() * (maximum - 3))
        letters = (
            special if draw() * 13 < 1 else _LETTERS[int(draw() * 26)] for _ in range(length)
        )
        return "".join(letters).strip()


@dataclass(frozen=True, slots=True)
class Channels:
    """Names and URLs of the channels of bids, and a text of which ``extra`` is a part."""

    hot: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    text: str


@lru_cache(maxsize=2)
def channels_of(seed: int) -> Channels:
    """Return the channels of ``seed``; nine of ten URLs that are not hot have the id of their channel."""
    random = Random(seed)
    strings = RandomStrings(random)
    hot = tuple((name, _url(strings)) for name in _HOT_CHANNELS)
    others: list[tuple[str, str]] = []
    for number in range(CHANNELS):
        channel_id = f"&channel_id={number * 2_654_435_761 % 2**31}" if number % 10 else ""
        others.append((f"channel-{number}", _url(strings) + channel_id))
    return Channels(hot, tuple(others), "".join(random.choices(_LETTERS, k=_TEXT)))


def _url(strings: RandomStrings) -> str:
    folders = "/".join(strings.short(5, "_") for _ in range(3))
    return f"https://www.nexmark.com/{folders}/item.htm?query=1"
