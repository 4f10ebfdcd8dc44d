"""What fragments make of history is what one live job makes of it, and what they leave is where that job would be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

import aflow as af
from tests.backfill.locally import backfill_locally

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True, slots=True)
class Bid:
    who: str
    at: int
    price: int


def bids(count: int, seed: int = 1) -> list[Bid]:
    """Bids of seven people, at times that grow; several may be at one."""
    random = Random(seed)
    at = 0
    made: list[Bid] = []
    for _ in range(count):
        at += random.choice([0, 1, 5, 40, 400])
        made.append(Bid(random.choice("abcdefg"), at, random.randrange(100)))
    return made


def millis(count: int) -> timedelta:
    return timedelta(milliseconds=count)


async def test_windows_over_history_are_those_of_a_live_job() -> None:
    def build(source: Any, sink: Any) -> af.Flow:
        flow = af.Flow("sums")
        (
            flow.source(source, name="bids")
            .event_time(lambda bid: bid.at, max_delay=millis(10))
            .filter(lambda bid: bid.price > 3)
            .key_by(lambda bid: bid.who)
            .window(af.Tumbling(millis(1000)))
            .fold(int, lambda total, bid: total + bid.price, name="sums")
            .to(sink, name="results")
        )
        return flow

    records = bids(3000)
    live = af.CollectSink[Any]()
    await build(records, live).run(parallelism=2)

    done = await backfill_locally(build([], af.CollectSink[Any]()), {"bids": records})

    assert sorted(done.results["results"], key=repr) == sorted(live.values, key=repr)
    assert len(live.values) > 300
