"""Arguments of the connector for NATS are checked where they enter; no server is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from aflow.connect import Delivery
from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import Raw
from aflow_connectors.nats import NatsSink, NatsSource
from aflow_connectors.nats.output import StreamLimits
from aflow_connectors.nats.reply_subject import numbers_of

URL = "nats://localhost:4222"
source: Callable[..., Any] = NatsSource
sink: Callable[..., Any] = NatsSink


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: source("localhost:4222", "s"), "must be URLs like 'nats://"),
        (lambda: source([], "s"), "the servers must be URLs"),
        (lambda: source([URL, "nats://h:port"], "s"), "one, several in a list"),
        (lambda: source(URL, ""), "the streams must be"),
        (lambda: source(URL, ["a", "a"]), "must be different"),
        (lambda: source(URL, "s", of=int, format=Raw()), "leave it out"),
        (lambda: source(URL, "s", format="json"), "format= must be a Format"),
        (lambda: source(URL, "s", start="first"), "start= must be 'earliest'"),
        (lambda: source(URL, "s", start=datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001
        (lambda: source(URL, "s", start={"s": 0}), "{'orders': 1000}"),
        (lambda: source(URL, "s", until="later"), "until= must be 'now'"),
        (lambda: source(URL, "s", idle_after=timedelta(0)), "idle_after= must be"),
        (lambda: source(URL, "s", on_lost_messages="skip"), "on_lost_messages= must be"),
        (lambda: source(URL, "s", subject=""), "subject= must be"),
        (lambda: source(URL, "s", timeout=3), "timeout= must be"),
        (lambda: source(URL, "s", reconnect=3), "reconnect= must be"),
        (lambda: source(URL, "s", client={"servers": 1}), "servers, which are chosen by other"),
        (lambda: source(URL, "s", client={"tsl": 1}), "tsl, which are no arguments"),
        (lambda: source(URL, "s", client=["x"]), "client= must be a mapping"),
        (lambda: sink(URL, 7), "the subject must be"),
        (lambda: sink(URL, "a.*"), "without wildcards"),
        (lambda: sink(URL, str), "stream= must name the stream"),
        (lambda: sink(URL, "s", headers={}), "headers= must be a function"),
        (lambda: sink(URL, "s", progress="a.b"), "progress= must be"),
        (lambda: sink(URL, "s", stream=""), "stream= must be the name"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        make()


def test_no_message_shows_a_secret() -> None:
    shown: list[str] = []
    for url, client in (
        ("user:hunter2@host:4222", {}),
        ("nats://user:hunter2@host:port", {}),
        (URL, {"password": "hunter2", "x": 1}),
    ):
        with pytest.raises(FlowDefinitionError) as caught:
            source(url, "s", client=client)
        shown.append(str(caught.value))
    made = source("nats://user:hunter2@host:4222", "s", client={"token": "hunter2"})
    shown += [repr(made._settings), made._settings.servers.place]

    assert not any("hunter2" in text for text in shown)


def test_delivery_follows_the_choice() -> None:
    assert sink(URL, "s").delivery is Delivery.TRANSACTIONAL
    assert sink(URL, "s", exactly_once=False).delivery is Delivery.AT_LEAST_ONCE


def test_a_source_that_ends_discovers_nothing() -> None:
    bounded, unbounded = source(URL, "s", until="now"), source(URL, "s")

    assert (bounded.bounded, bounded.discover_every) == (True, None)
    assert (unbounded.bounded, unbounded.discover_every) == (False, timedelta(minutes=1))


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a", False),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.b", True),
        (">", "a", True),
    ],
)
def test_a_stream_captures_subjects_as_the_server_does(
    pattern: str, subject: str, expected: bool
) -> None:
    limits = StreamLimits.of({"name": "s", "subjects": ["x", pattern]}, 1024)

    assert limits.captures(subject) is expected


def test_a_sequence_is_read_from_both_forms_of_a_reply() -> None:
    numbers = (42, 7, 1_700_000_000_000_000_000)
    assert numbers_of("$JS.ACK.stream.consumer.1.42.7.1700000000000000000.0") == numbers
    assert numbers_of("$JS.ACK._.hash.stream.consumer.1.42.7.1700000000000000000.0.x") == numbers
    assert numbers_of("") is None
