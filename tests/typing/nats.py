"""Types of the records of ``NatsSource``; checked by ``make types``, never run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, assert_type

import aflow as af
from aflow_connectors.formats import Text
from aflow_connectors.message import Message
from aflow_connectors.nats import NatsSink, NatsSource

URL = "nats://localhost:4222"


@dataclass(frozen=True)
class Order:
    id: int


def sources(flow: af.Flow) -> None:
    assert_type(NatsSource(URL, "s"), NatsSource[Any])
    assert_type(NatsSource(URL, ["s"], of=Order, until="now"), NatsSource[Order])
    assert_type(NatsSource(URL, re.compile("s"), format=Text()), NatsSource[str])
    assert_type(NatsSource(URL, "s", of=Order, messages=True), NatsSource[Message[str, Order]])
    assert_type(NatsSource(URL, "s", format=Text(), messages=True), NatsSource[Message[str, str]])
    orders = flow.source(NatsSource(URL, "s", of=Order, subject="s.>"), name="in")
    assert_type(orders, af.Stream[Order])
    orders.to(NatsSink(URL, lambda order: f"orders.{order.id}", stream="s"), name="out")
