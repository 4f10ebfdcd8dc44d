"""The generator of Nexmark: proportions, hot keys, times and sizes of the specification."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import pytest

from bench.nexmark.generator import FIRST_ID, generate
from bench.nexmark.model import Auction, Bid, MarketEvent, Person
from bench.nexmark.settings import START, NexmarkSettings, RateShape
from bench.nexmark.timeline import Timeline


@dataclass
class Sample:
    """20,000 events of the default settings, also by kind."""

    events: list[MarketEvent]

    @cached_property
    def persons(self) -> list[Person]:
        return [event.person for event in self.events if event.person is not None]

    @cached_property
    def auctions(self) -> list[Auction]:
        return [event.auction for event in self.events if event.auction is not None]

    @cached_property
    def bids(self) -> list[Bid]:
        return [event.bid for event in self.events if event.bid is not None]


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample(generate(20_000))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_others_are_bids(
    sample: Sample,
) -> None:
    assert (len(sample.persons), len(sample.auctions), len(sample.bids)) == (400, 1_200, 18_400)


def test_ids_of_persons_and_auctions_are_consecutive(sample: Sample) -> None:
    assert [person.id for person in sample.persons] == list(range(1_000, 1_400))
    assert [auction.id for auction in sample.auctions] == list(range(1_000, 2_200))


def test_equal_settings_give_equal_events_and_another_seed_others(sample: Sample) -> None:
    some = sample.events[:1_000]

    assert generate(1_000) == some
    assert generate(1_000, NexmarkSettings(seed=8)) != some


def test_half_of_the_bids_are_for_hot_auctions_and_three_quarters_of_hot_bidders(
    sample: Sample,
) -> None:
    hot_auctions = sum(bid.auction % 100 == 0 for bid in sample.bids) / len(sample.bids)
    hot_bidders = sum(bid.bidder % 100 == 1 for bid in sample.bids) / len(sample.bids)
    hot_sellers = sum(auction.seller % 100 == 0 for auction in sample.auctions) / len(
        sample.auctions
    )

    assert hot_auctions == pytest.approx(0.5, abs=0.02)
    assert hot_bidders == pytest.approx(0.75, abs=0.02)
    assert hot_sellers == pytest.approx(0.75, abs=0.04)


def test_without_hot_keys_all_keys_are_chosen_alike(sample: Sample) -> None:
    events = generate(20_000, NexmarkSettings(hot_auctions=1, hot_sellers=1, hot_bidders=1))

    bids = Counter(event.bid.bidder for event in events if event.bid is not None)

    assert max(bids.values()) < len(sample.bids) / 20


def test_some_bids_precede_their_auction_but_none_is_far_ahead(sample: Sample) -> None:
    opened, ahead = FIRST_ID - 1, list[int]()
    for event in sample.events:
        if event.auction is not None:
            opened = event.auction.id
        elif event.bid is not None:
            ahead.append(event.bid.auction - opened)

    assert max(ahead) == 10
    assert min(ahead) >= -100


def test_prices_are_between_a_hundred_and_a_hundred_million_with_a_uniform_logarithm(
    sample: Sample,
) -> None:
    prices = sorted(bid.price for bid in sample.bids)

    assert prices[0] >= 100
    assert prices[-1] <= 100_000_000
    assert prices[len(prices) // 2] == pytest.approx(100_000, rel=0.1)


def test_extra_fills_events_up_to_the_average_size(sample: Sample) -> None:
    bids = [32 + len(bid.extra) for bid in sample.bids]
    auctions = [48 + len(a.item) + len(a.description) + len(a.extra) for a in sample.auctions]
    persons = [
        8 + sum(map(len, (p.name, p.email, p.credit_card, p.city, p.state, p.extra)))
        for p in sample.persons
    ]

    averages = [sum(sizes) / len(sizes) for sizes in (bids, auctions, persons)]

    assert averages == pytest.approx([100, 500, 200], rel=0.03)


def test_half_of_the_channels_are_hot_and_nine_of_ten_others_have_an_id(sample: Sample) -> None:
    hot = {"Google", "Facebook", "Baidu", "Apple"}
    others = [bid for bid in sample.bids if bid.channel not in hot]

    assert len(others) / len(sample.bids) == pytest.approx(0.5, abs=0.02)
    assert sum("channel_id=" in bid.url for bid in others) / len(others) == pytest.approx(
        0.9, abs=0.02
    )
    assert not any("channel_id=" in bid.url for bid in sample.bids if bid.channel in hot)


def test_an_auction_lasts_for_the_time_of_a_hundred_auctions_on_average(sample: Sample) -> None:
    durations = [auction.expires - auction.at for auction in sample.auctions]

    assert min(durations) >= 1
    assert sum(durations) / len(durations) == pytest.approx(166.7, rel=0.1)


def test_events_are_at_the_rate_and_in_order(sample: Sample) -> None:
    assert [event.at - START for event in sample.events[::5_000]] == [0, 500, 1_000, 1_500]
    assert all(a.at <= b.at for a, b in pairwise(sample.events))


def test_events_of_a_group_are_out_of_order() -> None:
    permuted = generate(1_000, NexmarkSettings(rate=1_000, out_of_order=100))

    times = [event.at - START for event in permuted]

    assert sorted(times) == list(range(1_000))
    assert all(sorted(times[n : n + 100]) == list(range(n, n + 100)) for n in range(0, 1_000, 100))
    assert times != sorted(times)


def test_a_square_rate_changes_in_the_middle_of_its_period() -> None:
    at = Timeline(NexmarkSettings(rate=100, next_rate=400, period_s=20)).at

    numbers = [0, 500, 1_000, 3_000, 5_000, 5_500]

    assert [at(number) - START for number in numbers] == [0, 5_000, 10_000, 15_000, 20_000, 25_000]


def test_a_sine_has_the_first_rate_at_the_beginning_and_the_next_in_the_middle() -> None:
    settings = NexmarkSettings(rate=100, next_rate=300, period_s=100, shape=RateShape.SINE)
    at = Timeline(settings).at

    times = [at(number) for number in range(20_000)]
    by_second = Counter((time - START) // 1_000 for time in times)

    assert (by_second[5], by_second[55]) == (100, 300)
    assert by_second[95] == pytest.approx(119, abs=1)
    assert at(20_000) - START == 100_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": 0}, "a rate is a positive number of events per second, not 0"),
        ({"next_rate": float("nan")}, "a rate is a positive number"),
        ({"bids": 0}, "bids is at least 1, not 0"),
        ({"hot_auctions": 0}, "hot_auctions is at least 1, not 0"),
        ({"person_bytes": 100_000}, "person_bytes is at most 32768, not 100000"),
        ({"bid_bytes": -1}, "bid_bytes is at least 0, not -1"),
        ({"out_of_order": 1906}, "a group of 1906 events cannot be permuted"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(NexmarkSettings(), **wrong)
