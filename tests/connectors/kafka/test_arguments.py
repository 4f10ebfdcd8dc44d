"""Arguments of the Kafka connector are checked where they enter; no broker is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from aflow.connect import Delivery
from aflow.errors import FlowDefinitionError, RestoreError
from aflow_connectors.formats import Json, Raw, Text
from aflow_connectors.kafka import KafkaSink, KafkaSource
from aflow_connectors.kafka.transactions import PreparedMessages, WriterId, packed
from aflow_connectors.reconnect import Reconnect

SERVER = "localhost:9092"
source: Callable[..., Any] = KafkaSource
sink: Callable[..., Any] = KafkaSink


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: source("localhost", "t"), "a server is host:port"),
        (lambda: source("a:1,b:x", "t"), "'b:x'"),
        (lambda: source([], "t"), "the servers must be"),
        (lambda: source(SERVER, ""), "the topics must be"),
        (lambda: source(SERVER, ["a", "a"]), "must be different"),
        (lambda: source(SERVER, "t", of=int, format=Raw()), "leave it out"),
        (lambda: source(SERVER, "t", format="json"), "format= must be a Format"),
        (lambda: source(SERVER, "t", key_format=Text()), "needs messages=True"),
        (lambda: source(SERVER, "t", start="first"), "start= must be 'earliest'"),
        (lambda: source(SERVER, "t", start=datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001
        (lambda: source(SERVER, "t", start={"t": 1}), "('orders', 0)"),
        (lambda: source(SERVER, "t", until="later"), "until= must be 'now'"),
        (lambda: source(SERVER, "t", idle_after=timedelta(0)), "idle_after= must be"),
        (lambda: source(SERVER, "t", on_lost_offsets="skip"), "on_lost_offsets= must be"),
        (lambda: source(SERVER, "t", group=""), "group= must be"),
        (lambda: source(SERVER, "t", isolation="none"), "isolation= must be"),
        (lambda: source(SERVER, "t", reconnect=3), "reconnect= must be"),
        (
            lambda: source(SERVER, "t", client={"group_id": "x"}),
            "group_id, which are chosen by other arguments",
        ),
        (lambda: source(SERVER, "t", client={"sasl": "x"}), "are not settings of it"),
        (lambda: source(SERVER, "t", client=["x"]), "client= must be a mapping"),
        (lambda: sink(SERVER, 7), "the topic must be"),
        (lambda: sink(SERVER, str), "offsets_topic= must name a topic"),
        (lambda: sink(SERVER, "t", offsets_topic=7), "offsets_topic= must be"),
        (lambda: sink(SERVER, "t", key="id"), "key= must be a function"),
        (lambda: sink(SERVER, "t", headers={}), "headers= must be a function"),
        (lambda: sink(SERVER, "t", format=str), "KafkaSink: format= must be a Format"),
        (lambda: sink(SERVER, "t", transactional_id_prefix="a b"), "transactional_id_prefix="),
        (
            lambda: sink(SERVER, "t", client={"acks": 0}),
            "acks, which are chosen by other arguments",
        ),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        make()


def test_no_message_shows_a_secret() -> None:
    client = {"sasl_plain_password": "hunter2", "sasl": "x"}

    with pytest.raises(FlowDefinitionError) as caught:
        source("user:hunter2@host:9092", "t")
    with pytest.raises(FlowDefinitionError) as also:
        source(SERVER, "t", client=client)

    shown = [
        str(caught.value),
        str(also.value),
        repr(source(SERVER, "t", client={"sasl_plain_password": "hunter2"})._settings),
    ]
    assert not any("hunter2" in text for text in shown)


def test_delivery_follows_the_choice() -> None:
    assert sink(SERVER, "t").delivery is Delivery.TRANSACTIONAL
    assert sink(SERVER, "t", exactly_once=False).delivery is Delivery.AT_LEAST_ONCE
    assert sink(SERVER, str, offsets_topic="t").delivery is Delivery.TRANSACTIONAL


def test_a_source_that_ends_discovers_nothing() -> None:
    bounded, unbounded = source(SERVER, "t", until="now"), source(SERVER, "t")

    assert (bounded.bounded, bounded.discover_every) == (True, None)
    assert (unbounded.bounded, unbounded.discover_every) == (False, timedelta(minutes=1))


def test_a_committable_survives_storage() -> None:
    id = WriterId("aflow-", "0123456789abcdef", 2, "t")
    output = ("t", b"\x00", None, 5, (("h", b"\xff"),))

    epoch = PreparedMessages.of(PreparedMessages(id, 7, (packed([output]),)).stored(), sink="out")

    assert (epoch.id.name, epoch.checkpoint) == ("aflow-0123456789abcdef-2", 7)
    assert list(epoch.messages()) == [output]


@pytest.mark.parametrize(
    "change",
    [
        {"owner": "me"},
        {"writer": -1},
        {"writer": "1"},
        {"messages": ["text"]},
        {"checkpoint": None},
    ],
    ids=str,
)
def test_a_foreign_committable_is_refused(change: dict[str, object]) -> None:
    id = WriterId("aflow-", "0123456789abcdef", 2, "t")
    stored: Any = PreparedMessages(id, 7, ()).stored()

    with pytest.raises(RestoreError, match="another kind of sink"):
        PreparedMessages.of({**stored, **change}, sink="out")


def test_damaged_messages_are_an_error() -> None:
    id = WriterId("aflow-", "0123456789abcdef", 2, "t")

    with pytest.raises(RestoreError, match="damaged"):
        list(PreparedMessages(id, 7, (b"\xc1",)).messages())


def test_a_key_is_bytes_or_text_by_default() -> None:
    assert isinstance(sink(SERVER, "t", key_format=Json())._key_format, Json)
    assert [sink(SERVER, "t")._key_format.encode(key) for key in (b"\xff", "é")] == [
        b"\xff",
        "é".encode(),
    ]
    assert Reconnect().give_up_after is not None
