"""Types of the records of ``RedisSource``; checked by ``make types``, never run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_type

import aflow as af
from aflow_connectors.formats import Json, Text
from aflow_connectors.message import Message
from aflow_connectors.redis import RedisSink, RedisSource, RedisUpsert

URL = "redis://localhost:6379/0"


@dataclass(frozen=True)
class Order:
    id: int


def sources(flow: af.Flow) -> None:
    assert_type(RedisSource(URL, "s"), RedisSource[dict[str, str]])
    assert_type(RedisSource(URL, ["s"], of=Order, until="now"), RedisSource[Order])
    assert_type(RedisSource(URL, re.compile("s"), format=Text()), RedisSource[str])
    assert_type(RedisSource(URL, "s", messages=True), RedisSource[Message[bytes, dict[str, str]]])
    assert_type(RedisSource(URL, "s", of=Order, messages=True), RedisSource[Message[bytes, Order]])
    assert_type(
        RedisSource(URL, "s", format=Text(), messages=True), RedisSource[Message[bytes, str]]
    )
    assert_type(
        RedisSource(URL, "s", format=Text(), messages=True, key_format=Json(int)),
        RedisSource[Message[int, str]],
    )
    orders = flow.source(RedisSource(URL, "s", of=Order), name="in")
    assert_type(orders, af.Stream[Order])
    orders.to(RedisSink(URL, lambda order: f"orders-{order.id}"), name="out")
    orders.to(RedisUpsert(URL, lambda order: f"order:{order.id}"), name="latest")
