"""Fragments over history give the results of one live job, for all types of records and keys, in any partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

import aflow as af
from aflow.testing import virtual_time
from tests.backfill.items import drawn, millis
from tests.backfill.locally import backfill_locally


@dataclass(frozen=True, slots=True)
class Bid:
    who: str
    at: int
    price: int


class Named(NamedTuple):
    who: str
    at: int
    price: int


class Packed(msgspec.Struct):
    who: str
    at: int
    price: int


@dataclass
class Nested:
    """Needs pickle."""

    bid: Bid
    more: list[int]


class Plain:
    """No dataclass."""

    def __init__(self, bid: Bid) -> None:
        self.bid = bid


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Outer:
    """Holds a class."""

    @dataclass
    class Inner:
        who: str
        price: int


BIDS = [
    Bid("abcdefg"[item.key], item.at, item.n)
    for item in drawn(Random(1), 200, keys=7, together=False)
]

KINDS: dict[str, tuple[Callable[[Bid], Any], Callable[[Any], int]]] = {
    "dataclass": (lambda bid: bid, lambda bid: bid.price),
    "named tuple": (lambda bid: Named(bid.who, bid.at, bid.price), lambda named: named.price),
    "struct": (lambda bid: Packed(bid.who, bid.at, bid.price), lambda packed: packed.price),
    "nested": (lambda bid: Nested(bid, [bid.price]), lambda nested: nested.more[0]),
    "class": (Plain, lambda plain: plain.bid.price),
    "inner class": (lambda bid: Outer.Inner(bid.who, bid.price), lambda inner: inner.price),
    "tuple": (lambda bid: (bid.who, bid.price), lambda row: row[1]),
    "dict": (lambda bid: {"who": bid.who, "price": bid.price}, lambda row: row["price"]),
    "list": (lambda bid: [bid.price, None], lambda row: row[0]),
    "int": (lambda bid: bid.price, lambda price: price),
    "huge int": (lambda bid: bid.price + 2**70, lambda price: price % 1000),
    "text": (lambda bid: f"{bid.price}\ud800", lambda text: int(text[:-1])),
    "none": (lambda bid: None, lambda _: 1),
    "mixed": (lambda bid: bid if bid.price % 2 else [bid.price], lambda one: 1),
    "decimal": (lambda bid: Decimal(bid.price), int),
    "set": (lambda bid: frozenset([bid.price]), sum),
}

KEYS: dict[str, Callable[[Bid], Any]] = {
    "text": lambda bid: bid.who,
    "tuple": lambda bid: (bid.who, bid.price % 2),
    "none or int": lambda bid: None if bid.price % 2 else bid.price % 3,
    "equal ones": lambda bid: [1, True, 1.0][bid.price % 3],
    "bytes": lambda bid: bid.who.encode(),
    "date": lambda bid: date(2020, 1, 1 + bid.price % 3),
    "moment": lambda bid: datetime(2020, 1, 1 + bid.price % 3, tzinfo=UTC),
    "enum": lambda bid: Colour.RED if bid.price % 2 else Colour.BLUE,
    "dataclass": lambda bid: Bid(bid.who, 0, 0),
}


def run_both(build: Callable[[af.Stream[Bid]], af.Stream[Any]]) -> tuple[list[str], list[str]]:
    """Results of a live job over the bids, and those over history, as texts, which show types."""
    live = af.CollectSink[Any]()

    def flow(bids: Sequence[Bid]) -> af.Flow:
        made = af.Flow("bids")
        build(made.source(bids, name="bids").event_time(lambda bid: bid.at)).to(live, name="out")
        return made

    async def main() -> Sequence[Any]:
        await flow(BIDS).run(parallelism=2)
        done = await backfill_locally(flow([]), {"bids": BIDS}, parallelism=3, block=30)
        return done.results["out"]

    found = virtual_time.run(main)
    return sorted(map(repr, live.values)), sorted(map(repr, found))


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_any_kind_are_sent_from_fragment_to_fragment(kind: str) -> None:
    make, worth = KINDS[kind]

    def build(bids: af.Stream[Bid]) -> af.Stream[Any]:
        by_worth = bids.map(make).key_by(lambda record: worth(record) % 5)
        summed = by_worth.fold(int, lambda so_far, record: so_far + worth(record), name="summed")
        return summed.key_by(lambda value: value % 3).deduplicate(name="once")

    live, found = run_both(build)

    assert found == live


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_kind_are_sent_from_fragment_to_fragment(kind: str) -> None:
    def build(bids: af.Stream[Bid]) -> af.Stream[Any]:
        windows = bids.key_by(KEYS[kind]).window(af.Tumbling(millis(200)))
        return windows.fold(int, lambda so_far, bid: so_far + bid.price, name="summed")

    live, found = run_both(build)

    assert found == live
    assert len(live) >= 3


def test_records_of_a_class_defined_in_a_function_are_refused_by_name() -> None:
    @dataclass
    class Local:
        bid: Bid

    def build(bids: af.Stream[Bid]) -> af.Stream[Any]:
        return bids.map(Local, name="made").key_by(lambda one: one.bid.who).deduplicate(name="once")

    with pytest.raises(af.OperatorError) as raised:
        run_both(build)

    message = str(raised.value)
    assert "step 'key_by #1' sent " in message
    assert "cannot go from one executor to another: class " in message
    assert f"{Local.__qualname__} is not found by its name in module {__name__!r}" in message
    assert message.endswith("define it at the top of a module")


def test_state_that_cannot_be_stored_fails_with_the_first_of_it() -> None:
    """The failure is early, not at the end of a long history."""
    seen: list[int] = []

    def count(value: Plain) -> bool:
        seen.append(value.bid.at)
        return True

    flow = af.Flow("unstorable")
    plain = flow.source(list[Bid](), name="bids").event_time(lambda bid: bid.at).map(Plain)
    windows = plain.key_by(lambda one: one.bid.who).window(af.Tumbling(millis(5)))
    windows.apply(lambda some: list(map(count, some)), name="held").to(
        af.CollectSink[Any](), name="out"
    )
    bids = [Bid(f"bidder {n % 3}", n, n) for n in range(1000)]

    with pytest.raises(af.CheckpointError, match=r"'held' cannot store .*Plain"):
        virtual_time.run(
            lambda: backfill_locally(flow, {"bids": bids}, until=1000, parallelism=1, block=50)
        )
    assert len(seen) < 100


def test_without_a_live_job_state_needs_no_type_for_storage() -> None:
    def build(bids: af.Stream[Bid]) -> af.Stream[Any]:
        plain = bids.map(Plain).key_by(lambda plain: plain.bid.who)
        return plain.window(af.Count(3)).apply(len, name="counted")

    live, found = run_both(build)

    assert found == live
    assert len(live) > 50
