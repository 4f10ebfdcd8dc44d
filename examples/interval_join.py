"""Join clicks with the orders of the same user within ten minutes: an interval join.

The join pairs a click with each order whose timestamp is up to ten minutes later. A left join also emits each click
without an order, as soon as the watermark shows that none can follow.

Prints:

    ada clicked at 12:00 and ordered a lamp at 12:04
    ada clicked at 12:00 and ordered a bulb at 12:09
    bob clicked at 12:01 and ordered nothing
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aflow as af

TEN_MINUTES = timedelta(minutes=10)


@dataclass(frozen=True)
class Click:
    user: str
    at: str


@dataclass(frozen=True)
class Order:
    user: str
    at: str
    item: str


CLICKS = [Click("ada", "12:00"), Click("bob", "12:01")]
ORDERS = [
    Order("ada", "12:04", "lamp"),
    Order("ada", "12:09", "bulb"),
    Order("bob", "12:30", "chair"),
]


def time_of(record: Click | Order) -> datetime:
    return datetime.fromisoformat(f"2025-06-01T{record.at}").replace(tzinfo=UTC)


def outcome(click: Click, order: Order | None) -> str:
    done = "nothing" if order is None else f"a {order.item} at {order.at}"
    return f"{click.user} clicked at {click.at} and ordered {done}"


def build(clicks: list[Click], orders: list[Order], results: af.Sink[str]) -> af.Flow:
    flow = af.Flow("clicks and orders")
    clicked = flow.source(clicks, name="clicks").event_time(time_of, name="click time")
    ordered = flow.source(orders, name="orders").event_time(time_of, name="order time")
    clicked.key_by(lambda click: click.user).interval_join(
        ordered.key_by(lambda order: order.user),
        between=(timedelta(0), TEN_MINUTES),
        of=Click,
        other_of=Order,
    ).left(outcome, name="orders of clicks").to(results, name="show")
    return flow


if __name__ == "__main__":
    asyncio.run(build(CLICKS, ORDERS, af.CallbackSink(print)).run())
