"""Types of the records of ``KafkaSource``; checked by ``make types``, never run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, assert_type

import aflow as af
from aflow_connectors.formats import Json, Text
from aflow_connectors.kafka import KafkaSink, KafkaSource
from aflow_connectors.message import Message

SERVER = "localhost:9092"


@dataclass(frozen=True)
class Order:
    id: int


def sources(flow: af.Flow) -> None:
    assert_type(KafkaSource(SERVER, "t"), KafkaSource[Any])
    assert_type(KafkaSource(SERVER, ["t"], of=Order, until="now"), KafkaSource[Order])
    assert_type(KafkaSource(SERVER, re.compile("t"), format=Text()), KafkaSource[str])
    assert_type(
        KafkaSource(SERVER, "t", of=Order, messages=True), KafkaSource[Message[bytes, Order]]
    )
    assert_type(
        KafkaSource(SERVER, "t", format=Text(), messages=True), KafkaSource[Message[bytes, str]]
    )
    assert_type(
        KafkaSource(SERVER, "t", of=Order, messages=True, key_format=Text()),
        KafkaSource[Message[str, Order]],
    )
    assert_type(
        KafkaSource(SERVER, "t", format=Text(), messages=True, key_format=Json(int)),
        KafkaSource[Message[int, str]],
    )
    orders = flow.source(KafkaSource(SERVER, "t", of=Order), name="in")
    assert_type(orders, af.Stream[Order])
    orders.to(KafkaSink(SERVER, "t", key=lambda order: str(order.id)), name="out")
