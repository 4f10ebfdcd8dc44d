"""Types of the records of HTTP services; checked by ``make types``, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import aflow as af
import aflow.web
from aflow_connectors.formats import Text
from aflow_connectors.http import HttpEvents, HttpPage, HttpPoll, HttpSink, HttpWebSocket
from aflow_connectors.message import Message

URL = "http://host/"


@dataclass(frozen=True)
class Order:
    id: int


def after(page: HttpPage[Order]) -> dict[str, int]:
    return {"after": page.records[-1].id}


def sources(flow: af.Flow) -> None:
    assert_type(HttpPoll(URL), HttpPoll[Any])
    assert_type(HttpPoll(URL, of=Order, cursor=after), HttpPoll[Order])
    assert_type(HttpPoll(URL, format=Text()), HttpPoll[str])
    assert_type(HttpEvents(URL), HttpEvents[Any])
    assert_type(HttpEvents(URL, of=Order), HttpEvents[Order])
    assert_type(HttpEvents(URL, format=Text()), HttpEvents[str])
    assert_type(HttpEvents(URL, of=Order, messages=True), HttpEvents[Message[bytes, Order]])
    assert_type(HttpEvents(URL, format=Text(), messages=True), HttpEvents[Message[bytes, str]])
    assert_type(HttpWebSocket(URL), HttpWebSocket[Any])
    assert_type(
        HttpWebSocket(URL, of=Order, position=lambda order: order.id, resume=str),
        HttpWebSocket[Order],
    )
    assert_type(HttpWebSocket(URL, format=Text()), HttpWebSocket[str])
    orders = flow.source(HttpPoll(URL, of=Order), name="in")
    assert_type(orders, af.Stream[Order])
    orders.to(HttpSink(URL, on_refused=lambda refused: print(refused.status)), name="out")


def accepted(source: af.DurablePushSource[Order]) -> None:
    aflow.web.ingest(source, of=Order, id=lambda order: str(order.id))
    aflow.web.aiohttp_ingest(source, of=Order)
